"""Samba's smbtorture against our server: each test of it in a process of its own, on a server and
a directory of its own.

    python -m tests.torture smb2.lock [smb2.create.open]    run what begins so, and say how it ended
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import quicksand_smb

from tests.conftest import free_port, listens

LIST = Path(__file__).with_name("smbtorture.txt")
PASSWORD = "Pa55word"
PATIENCE_S = 90
"""Some tests of samba's wait twice for the 35 s in which a client may answer."""
HANGS_AFTER_S = 10
"""For those that wait for what never comes."""


@dataclass(frozen=True)
class Expected:
    name: str
    ending: str
    """pass, fail, skip, or hang: it waits for what does not come."""
    reason: str


@dataclass(frozen=True)
class Ending:
    name: str
    ending: str
    detail: str


def expected() -> list[Expected]:
    """The lines of the list; each failure there has a reason."""
    found = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        said, _, reason = line.partition("  # ")
        ending, _, name = said.partition(" ")
        found.append(Expected(name.strip(), ending, reason.strip()))
    return found


@contextlib.contextmanager
def server(root: Path) -> Iterator[int]:
    """A server of its own process with the shares RW and OTHER below `root`; gives its port."""
    shares = {}
    for name in ("RW", "OTHER"):
        (root / name).mkdir()
        shares[name] = {"path": str(root / name)}
    config = root / "config.json"
    config.write_text(json.dumps({"shares": shares, "secret": PASSWORD, "leases": "all"}))
    port = free_port()
    package = str(Path(quicksand_smb.__file__).parents[1])
    with (root / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "quicksand_smb", "--config", str(config), "--listen",
             f"127.0.0.1:{port}"],
            stderr=errors, env={**os.environ, "PYTHONPATH": package},
        )  # fmt: skip
    try:
        _wait_for(process, port)
        yield port
    finally:
        process.kill()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    """Until the server takes connections."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if listens(port):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the server has ended with {process.wait(0.02)}")
    raise AssertionError("the server does not listen")


def run(name: str, *, patience_s: float = PATIENCE_S) -> Ending:
    """Run one test, and say how it ended, with what smbtorture told about it."""
    with tempfile.TemporaryDirectory(prefix="torture-") as directory:
        root = Path(directory)
        with server(root) as port:
            command = [
                "smbtorture", "//127.0.0.1/RW", "-p", str(port), f"-Uuser%{PASSWORD}",
                "--option=torture:share2=OTHER", name,
            ]  # fmt: skip
            try:
                done = subprocess.run(
                    command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    timeout=patience_s, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired as error:
                return Ending(name, "hang", _text(error.stdout))
            problems = (root / "errors").read_text(errors="replace")
    text = _text(done.stdout)
    if "Traceback" in problems:
        return Ending(name, "fail", problems + text)
    return Ending(name, _ending(done.returncode, text), text)


def _text(output: bytes | None) -> str:
    return (output or b"").decode(errors="replace")


def _ending(code: int, text: str) -> str:
    lines = text.splitlines()
    if any(line.startswith(("failure:", "error:")) for line in lines):
        return "fail"
    if code == 0 and any(line.startswith("success:") for line in lines):
        return "pass"
    return "skip" if any(line.startswith("skip:") for line in lines) else "fail"


def all_names() -> list[str]:
    """Of the tests of SMB2 that smbtorture has."""
    listed = subprocess.run(["smbtorture", "--list"], capture_output=True, check=True)
    return [one for one in listed.stdout.decode().splitlines() if one.startswith("smb2.")]


def group(name: str) -> str:
    """`smb2.lock` of `smb2.lock.cancel`."""
    return ".".join(name.split(".")[:2])


def main(wanted: list[str]) -> None:
    names = [one for one in all_names() if one.startswith(tuple(wanted))]
    with ThreadPoolExecutor(2) as pool:
        for ended in pool.map(run, names):
            told = [line for line in ended.detail.splitlines() if line.strip() not in ("", "]")]
            last = "" if ended.ending == "pass" else " | ".join(told[-2:])[:300]
            print(ended.ending, ended.name, f"  # {last}" if last else "", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

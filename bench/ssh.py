"""Measures SSH into a sandbox, and a sandbox of another machine. Prints JSON.

python bench/ssh.py [ROUNDS [PART…]]

The parts are `start` (ssh NAME.qs true: cold, and through its master), `bulk` (MEGABYTES through a
command, each way), `files` (300 small files by scp), `keys` (a key's way to a guest's terminal and
back, in `shell` and in `--host … shell`) and `serve` (memory of the far end). What is measured and
its control take turns, so that a busy host slows both: `exec` for SSH, and for `--host`, which is
this machine again over a private sshd, the same without it. Medians of ROUNDS (5).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from quicksand.base.paths import paths

from tests.conftest import fresh_places
from tests.pty_terminal import PtyTerminal
from tests.ssh_server import FarHost, far_environ, with_sshd

PROGRAM = [sys.executable, "-m", "quicksand_tui"]
NAME = "bench"
HOST = f"{NAME}.qs"
MEGABYTES = 64
FILES = 300
KEYS = 100
BETWEEN_KEYS_S = 0.02
PARTS = ("start", "bulk", "files", "keys", "serve")

Figures = dict[str, float]


def run(words: list[str], stdin: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """Run a program that succeeds; what it prints is thrown away."""
    with (stdin or Path(os.devnull)).open("rb") as source:
        subprocess.run(
            words, stdin=source, stdout=subprocess.DEVNULL, env=env, check=True, timeout=120
        )


def seconds(work: Callable[[], None]) -> float:
    """Return the seconds of some work."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def by_turns(rounds: int, ways: Mapping[str, Callable[[], None]]) -> dict[str, Figures]:
    """Measure each way in turn, after a turn that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, work in ways.items():
            found = seconds(work)
            if number:
                taken[name].append(found)
    return {
        name: {"s": round(statistics.median(values), 3), "min_s": round(min(values), 3)}
        for name, values in taken.items()
    }


class Bench:
    """A sandbox, and the ways to it."""

    def __init__(self, root: Path, far: FarHost, rounds: int) -> None:
        self._root = root
        self._far = far
        self._rounds = rounds
        self._config = root / "config"
        printed = subprocess.run([*PROGRAM, "ssh-config"], capture_output=True, check=True).stdout
        self._config.write_bytes(printed)

    def _ssh(self, *words: str, alone: bool = False) -> list[str]:
        # A master that this would become lives on, and its work would not be counted.
        return ["ssh", "-F", str(self._config), *(["-S", "none"] if alone else []), *words]

    @contextmanager
    def _master(self) -> Iterator[None]:
        run(self._ssh("-o", "ControlPersist=600", HOST, "true"))
        try:
            yield
        finally:
            subprocess.run(self._ssh("-O", "exit", HOST), capture_output=True, check=False)

    def start(self) -> dict[str, Figures]:
        with self._master():
            return by_turns(
                self._rounds,
                {
                    "cold": lambda: run(self._ssh(HOST, "true", alone=True)),
                    "exec": lambda: run([*PROGRAM, "exec", NAME, "--", "true"]),
                    "through the master": lambda: run(self._ssh(HOST, "true")),
                },
            )

    def bulk(self) -> dict[str, Figures]:
        """Bytes of a file in the guest's memory to here, and bytes from here to nowhere in it. The
        time of `true` by the same way is subtracted."""
        data = self._root / "data"
        data.write_bytes(os.urandom(1 << 20) * MEGABYTES)
        made = f"head -c {MEGABYTES}M /dev/urandom >/dev/shm/data"
        run([*PROGRAM, "exec", NAME, "--", "sh", "-c", made])
        executed = [*PROGRAM, "exec", "-i", NAME, "--", "sh", "-c"]
        ways = {"ssh": self._ssh(HOST, alone=True), "exec": executed}
        commands = {"nothing": "true", "down": "cat /dev/shm/data", "up": "cat >/dev/null"}
        found = by_turns(
            self._rounds,
            {
                f"{direction} {name}": partial(
                    run, [*way, command], data if direction == "up" else None
                )
                for direction, command in commands.items()
                for name, way in ways.items()
            },
        )
        for name in ways:
            nothing = found[f"nothing {name}"]
            for direction in ("down", "up"):
                figures = found[f"{direction} {name}"]
                figures["MB/s"] = round(MEGABYTES * 1.048576 / (figures["s"] - nothing["s"]), 1)
        return found

    def files(self) -> dict[str, Figures]:
        tree = self._root / "tree"
        tree.mkdir()
        for number in range(FILES):
            (tree / f"file-{number}").write_bytes(os.urandom(2000))
        copy = ["scp", "-rq", "-F", str(self._config), "-o", "ControlPath=none"]
        return by_turns(
            self._rounds,
            {
                "scp": lambda: run([*copy, str(tree), f"{HOST}:"]),
                "cp": lambda: run([*PROGRAM, "cp", str(tree), f"{NAME}:/tmp/tree"]),
                "scp back": lambda: run([*copy, f"{HOST}:tree", str(self._root / "back")]),
            },
        )

    def keys(self) -> dict[str, Figures]:
        here = [*PROGRAM, "shell", NAME]
        there = [*PROGRAM, "--host", self._far.address, "shell", NAME]
        path = {"PATH": self._far.environ()["PATH"]}
        with PtyTerminal(here) as near, PtyTerminal(there, env=path) as away:
            taken: dict[str, list[float]] = {"shell": [], "--host shell": []}
            for terminal in (near, away):
                terminal.type(b"stty -icanon echo; echo rea''dy; exec cat >/dev/null\r")
                terminal.sees("ready")
            for number in range(KEYS):
                for name, terminal in (("shell", near), ("--host shell", away)):
                    time.sleep(BETWEEN_KEYS_S)
                    taken[name].append(_echo_s(terminal, b"abcdefghij"[number % 10 :][:1]))
            for terminal in (near, away):
                terminal.type(b"\x03")
        return {
            name: {
                "ms": round(statistics.median(values) * 1000, 1),
                "p90_ms": round(sorted(values)[KEYS * 9 // 10] * 1000, 1),
            }
            for name, values in taken.items()
        }

    def serve(self) -> dict[str, Figures]:
        """The far end's memory while it serves a client that follows events, another that lists,
        and MEGABYTES that go through it."""
        data = self._root / "data"
        if not data.exists():
            data.write_bytes(os.urandom(1 << 20) * MEGABYTES)
        words = [*PROGRAM, "--host", self._far.address, "exec", "-i", NAME, "--", "sh", "-c"]
        # The sleep is for the looks.
        command = [*words, "cat >/dev/null; echo done; sleep 60"]
        before = set(_ends())
        with data.open("rb") as source:
            client = subprocess.Popen(
                command, stdin=source, stdout=subprocess.PIPE, env=self._far.environ()
            )
        assert client.stdout is not None
        client.stdout.readline()
        found = [_status_mib(pid) for pid in set(_ends()) - before]
        client.terminate()
        client.communicate()
        return {f"far end {number}": figures for number, figures in enumerate(found, 1)}


def _echo_s(terminal: PtyTerminal, key: bytes) -> float:
    seen, started = len(terminal.output), time.perf_counter()
    terminal.type(key)
    while len(terminal.output) == seen:
        time.sleep(0.0002)
    return time.perf_counter() - started


def _ends() -> Iterator[int]:
    """Processes that serve a client of another machine."""
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (directory / "cmdline").read_bytes().split(b"\0")
            if b"serve" in words and b"--stdio" in words and b"ssh" not in words[0]:
                yield int(directory.name)


def _status_mib(pid: int) -> Figures:
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    wanted = {"VmRSS:": "rss_mib", "VmHWM:": "peak_mib"}
    return {wanted[w[0]]: round(int(w[1]) / 1024, 1) for w in lines if w and w[0] in wanted}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    parts = sys.argv[2:] or list(PARTS)
    with (
        fresh_places(paths()),
        tempfile.TemporaryDirectory(prefix="qsb-") as directory,
        with_sshd(Path(directory), far_environ()) as far,
    ):
        run([*PROGRAM, "run", "debian", "--name", NAME, "--detach"])
        try:
            bench = Bench(Path(directory), far, rounds)
            found = {part: getattr(bench, part)() for part in parts}
        finally:
            run([*PROGRAM, "rm", "-f", NAME])
        for place in (paths().runtime / "ssh", paths().runtime / "hosts"):
            with suppress(OSError):
                place.rmdir()
    print(json.dumps({"load": os.getloadavg()[0], **found}, indent=1))


if __name__ == "__main__":
    main()

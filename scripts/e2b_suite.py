"""Runs the tests of E2B's own Python SDK against `quicksand-tui api`, and prints counts.

    python scripts/e2b_suite.py --suite DIR [--sdk VERSION | --python FILE] [--internet] [PART…]

DIR (or $E2B_SUITE) has the directory `tests` of packages/python-sdk of E2B's repository, at the tag
of the SDK; it is not part of this project. The SDK is installed from PyPI into a virtual
environment that is removed afterwards, unless --python names an interpreter that has it, with
pytest, pytest-asyncio, pytest-dotenv and pytest-timeout. PARTs are directories or files below
`tests`; by default those that talk to a server. Sandboxes are real VMs. The server listens with
TLS, too, since `get_host` leads there.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from xml.etree import ElementTree

LIVE = (
    "sync/sandbox_sync/commands", "sync/sandbox_sync/files", "sync/sandbox_sync/pty",
    "sync/sandbox_sync/test_*.py", "sync/api_sync",
    "async/sandbox_async/commands", "async/sandbox_async/files", "async/sandbox_async/pty",
    "async/sandbox_async/test_*.py", "async/api_async",
)  # fmt: skip
USUAL = (
    "sync/sandbox_sync/test_config_propagation.py",
    "async/sandbox_async/test_config_propagation.py",
)
"""They ask no server, and assert the addresses that the SDK has if no variable names others."""

ADDRESSES = ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_DOMAIN", "SSL_CERT_FILE")

RESOLVER = """
import socket

usual = socket.getaddrinfo

def getaddrinfo(host, *more, **named):
    name = host.decode() if isinstance(host, bytes) else host
    loopback = isinstance(name, str) and name.endswith(".localhost")
    return usual("127.0.0.1" if loopback else host, *more, **named)

socket.getaddrinfo = getaddrinfo
"""
"""Has Python find names below localhost where the host's resolver does not (RFC 6761, 6.3)."""

TOOLS = ("pytest", "pytest-asyncio", "pytest-dotenv", "pytest-timeout")
ROOT = Path(__file__).parents[1]
SERVER = (sys.executable, "-m", "quicksand_tui", "api")


def main() -> int:
    options = parse()
    tests = Path(options.suite or "/nonexistent").absolute() / "tests"
    if not tests.is_dir():
        print(f"the suite is not there: {tests}; say where with --suite or E2B_SUITE")
        return 2
    with tempfile.TemporaryDirectory(prefix="e2b-suite-") as scratch:
        python = options.python or install(Path(scratch) / "venv", options.sdk)
        tls = f"127.0.0.1:{free_port()}"
        command = [*SERVER, "--listen", "127.0.0.1:0", "--tls", tls]
        if options.internet:
            command.append("--internet")
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        (Path(scratch) / "sitecustomize.py").write_text(RESOLVER)
        try:
            environment = {**os.environ, **variables(server, tls), "PYTHONPATH": scratch}
            environment.pop("E2B_DEBUG", None)
            return run(python, tests, options.parts or (*LIVE, *USUAL), environment, Path(scratch))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", default=os.environ.get("E2B_SUITE"))
    parser.add_argument("--sdk", default="2.45.1")
    parser.add_argument("--python")
    parser.add_argument("--internet", action="store_true", help="let sandboxes have it")
    parser.add_argument("parts", nargs="*")
    return parser.parse_args()


def install(place: Path, version: str) -> str:
    venv.create(place, with_pip=True)
    python = str(place / "bin" / "python")
    subprocess.run([python, "-m", "pip", "-q", "install", f"e2b=={version}", *TOOLS], check=True)
    return python


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def variables(server: subprocess.Popen[bytes], tls: str) -> dict[str, str]:
    """What `api env` prints for the server that has just started, and where its authority is."""
    assert server.stdout is not None
    found = re.search(rb"http://(\S+:\d+)", server.stdout.readline())
    assert found is not None, "the server did not start"
    plain, secure = (
        dict(re.findall(r"export (\w+)=(\S+)", printed))
        for printed in (
            subprocess.run(
                [*SERVER, "env", *words], check=True, capture_output=True, text=True
            ).stdout
            for words in (("--listen", found[1].decode()), ("--tls", tls))
        )
    )
    return {**plain, "SSL_CERT_FILE": secure["SSL_CERT_FILE"]}


def run(
    python: str, tests: Path, parts: list[str], environment: dict[str, str], scratch: Path
) -> int:
    """Run each part by itself; returns 1 if a test has failed."""
    failed: list[str] = []
    all_passed = 0
    print(f"{'part':44} passed failed skipped")
    for part in parts:
        usual = {tests / name for name in USUAL}
        files = [str(f) for f in sorted(tests.glob(part)) if part in USUAL or f not in usual]
        without = ADDRESSES if part in USUAL else ()
        report = scratch / "report.xml"
        report.unlink(missing_ok=True)
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "120"]
        subprocess.run(
            [*command, f"--junitxml={report}", *files],
            cwd=tests.parent,
            env={name: text for name, text in environment.items() if name not in without},
            capture_output=True,
            check=False,
        )
        passed, bad, skipped = count(report)
        print(f"{part:44} {passed:6} {len(bad):6} {skipped:7}", flush=True)
        all_passed += passed
        failed += bad
    print(f"{'in all':44} {all_passed:6} {len(failed):6}")
    for name in failed:
        print("failed:", name)
    return 1 if failed else 0


def count(report: Path) -> tuple[int, list[str], int]:
    passed, failed, skipped = 0, [], 0
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


if __name__ == "__main__":
    sys.exit(main())

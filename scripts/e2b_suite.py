"""Runs the tests of E2B's own Python SDK against `quicksand-tui api`, and prints counts.

    python scripts/e2b_suite.py --suite DIR [--sdk VERSION | --python FILE] [--internet] [PART…]

DIR (or $E2B_SUITE) has the directory `tests` of packages/python-sdk of E2B's repository, at the tag
of the SDK; it is not part of this project. The SDK is installed from PyPI into a virtual
environment that is removed afterwards, unless --python names an interpreter that has it, with
pytest, pytest-asyncio, pytest-dotenv and pytest-timeout. PARTs are directories or files below
`tests`; by default those that talk to a server. Sandboxes are real VMs. The tests have the
variables that `api env --tls` prints, and nothing else. Where the host does not resolve names below
localhost, `api env` says so, and tests that open an address of `get_host` fail. Returns 1 if a test
fails that is not in EXPECTED.
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
"""Tests that use no server, and assert the SDK's addresses without variables."""

ADDRESSES = ("E2B_DOMAIN", "SSL_CERT_FILE")

EXPECTED = frozenset(
    {
        "test_internet_access_enabled", "test_internet_access_default",
        "test_allow_specific_ip_with_deny_all", "test_deny_specific_ip",
        "test_allow_takes_precedence_over_deny", "test_update_network_applies_restrictions",
        "test_update_network_clears_existing_rules", "test_firewall_transform_injects_headers",
        "test_mcp_gateway_start_failure_kills_created_sandbox",
    }
)  # fmt: skip
"""Tests of the internet, which sandboxes lack here, and of refused requests
(docs/internals/e2b-api.md)."""

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
        try:
            inherited = {n: text for n, text in os.environ.items() if not n.startswith("E2B_")}
            environment = {**inherited, **variables(server, tls)}
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
    """Returns the variables that `api env --tls` prints for the server that has just started."""
    assert server.stdout is not None
    assert b"http://" in server.stdout.readline(), "the server did not start"
    command = [*SERVER, "env", "--tls", tls]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(re.findall(r"export (\w+)=(\S+)", printed))


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
    unknown = [name for name in failed if name.rpartition("::")[2] not in EXPECTED]
    for name in failed:
        print("failed:" if name in unknown else "failed, as expected:", name)
    return 1 if unknown else 0


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

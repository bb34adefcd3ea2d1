"""Runs esctest2, a suite of tests for terminals by George Nachman and Thomas Dickey, against the
emulator, and compares how each test ends with tests/unit/terminal/esctest.txt.

    python scripts/esctest.py DIRECTORY [--include REGEX] [--write]

The suite (https://github.com/ThomasDickey/esctest2) is not part of this project; DIRECTORY is a
copy of it, or $QUICKSAND_ESCTEST names one.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path

from quicksand_vt import Terminal

VARIABLE = "QUICKSAND_ESCTEST"
LIST = Path(__file__).parent.parent / "tests" / "unit" / "terminal" / "esctest.txt"

COLUMNS, ROWS = 80, 25
"""The size that the suite asks for."""
CELL_PIXELS = (8, 16)

OPTIONS = (
    "--expected-terminal=xterm",
    "--max-vt-level=4",
    "--xterm-reverse-wrap=383",
    "--timeout=0.3",
    "--no-print-logs",
    "--v=2",
)
FAST = 1000
"""The factor by which the emulator's clock is faster, since the suite asks often."""
PATIENCE_S = 300.0

_ENDED = re.compile(r"Run test: (\S+)\n(.*?)(?=Run test: |\Z)", re.DOTALL)
_WHY = re.compile(r"^(?:esctypes\.)?\w+: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Ending:
    name: str
    ending: str
    """pass, fail, or skip: the suite itself expects a failure of xterm's, or a higher level."""
    reason: str = ""


def find_suite(given: str | None) -> Path | None:
    """Returns the directory with esctest.py, in the given one or below it; None without it."""
    place = given or os.environ.get(VARIABLE)
    if not place:
        return None
    return next((d for d in (Path(place), Path(place) / "esctest") if is_suite(d)), None)


def is_suite(directory: Path) -> bool:
    return (directory / "esctest.py").is_file()


def run(suite: Path, include: str = ".*") -> list[Ending]:
    """Runs the tests whose names match ``include``."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        argv = [sys.executable, str(suite / "esctest.py"), *OPTIONS]
        argv += [f"--logfile={log}", f"--include={include}"]
        _serve(argv, Path(directory))
        return _endings(log.read_text(encoding="utf-8", errors="replace"))


def _serve(argv: list[str], directory: Path) -> None:
    """Runs a program on a pseudo terminal of the emulator."""
    terminal = Terminal(
        COLUMNS,
        ROWS,
        scrollback=100,
        cell_pixels=CELL_PIXELS,
        checksums=True,
        resizable=True,
        clock=lambda: time.monotonic() * FAST,
    )
    master, slave = os.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
    with (directory / "errors").open("wb") as errors:
        process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=errors, env=env, cwd=directory
        )
    deadline = time.monotonic() + PATIENCE_S
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if not select.select([master], [], [], 0.1)[0]:
                continue
            with contextlib.suppress(BlockingIOError):
                terminal.feed(os.read(master, 65536))
            terminal.take_events()
            if replies := terminal.take_replies():
                os.write(master, replies)
    finally:
        process.kill()
        process.wait()
        os.close(slave)
        os.close(master)
    if process.returncode:
        said = (directory / "errors").read_text(errors="replace")
        sys.exit(f"error: the suite ended with {process.returncode}\n{said}")


def _endings(log: str) -> list[Ending]:
    endings = []
    for name, said in _ENDED.findall(log):
        if "\nPassed." in f"\n{said}":
            endings.append(Ending(name, "pass"))
        elif "*** TEST" in said:
            why = _WHY.findall(said)
            endings.append(Ending(name, "fail", why[-1] if why else ""))
        else:
            endings.append(Ending(name, "skip"))
    return sorted(endings, key=lambda one: one.name)


def expected() -> list[Ending]:
    """Returns the list; a failure there has a reason."""
    found = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            said, _, reason = line.partition("  # ")
            ending, _, name = said.partition(" ")
            found.append(Ending(name.strip(), ending, reason.strip()))
    return found


def write(endings: list[Ending]) -> None:
    """Writes the list anew; its reasons stay, new ones must be written by hand."""
    old = LIST.read_text(encoding="utf-8").splitlines()
    head = [line for line in old if line.startswith("#")]
    reasons = {one.name: one.reason for one in expected() if one.ending == "fail"}
    lines = []
    for one in endings:
        reason = f"  # {reasons.get(one.name, 'TODO')}" if one.ending == "fail" else ""
        lines.append(f"{one.ending} {one.name}{reason}")
    LIST.write_text("\n".join([*head, "", *lines]) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("directory", nargs="?", help=f"the suite; else ${VARIABLE}")
    parser.add_argument("--include", default=".*", help="a regular expression for names of tests")
    parser.add_argument("--write", action="store_true", help="write the list anew")
    options = parser.parse_args()
    suite = find_suite(options.directory)
    if suite is None:
        parser.error(f"esctest.py is not there: name its directory, or set ${VARIABLE}")
    endings = run(suite, options.include)
    counts = {kind: sum(one.ending == kind for one in endings) for kind in ("pass", "fail", "skip")}
    if options.write:
        write(endings)
    known = {one.name: one.ending for one in expected()}
    new = [one for one in endings if known.get(one.name) != one.ending]
    for one in new:
        print(f"{one.ending} {one.name} (expected {known.get(one.name, 'none')}): {one.reason}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())

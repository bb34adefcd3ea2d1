"""Measures how soon the app shows its first screen and what it costs when idle. The app runs on a
pseudo-terminal (120x36) that answers all questions. Prints JSON.

python bench/app.py [SANDBOXES] [RUNS]

All times begin with the process, and are medians. `first_paint_ms` ends when the outline is
written, and `listed_ms` when all sandboxes are listed in it, both before Textual is imported.
`frame_ms` ends with the app's own first frame, which lists them and accepts keys, and `whole_ms`
when images and the host are shown as well. `listed_cpu_ms` and `frame_cpu_ms` are the processor
time of the process until then, which depends less on what else runs. `python_ms` and `textual_ms`
are the times to start Python, and to import Textual in it, in the same run, as a measure of the
machine. `idle_percent` is the use of one core over twenty seconds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.commands import make_sandboxes, places_in
from tests.pty_terminal import WHOLE, PtyTerminal

COLUMNS, LINES = 120, 36
MOUSE_ON = b"\x1b[?1000h"
"""Textual writes this before its first frame."""
IDLE_S = 20.0
SETTLE_S = 3.0
WAIT_S = 60.0


def open_app(env: dict[str, str]) -> PtyTerminal:
    argv = [str(Path(sys.executable).with_name("quicksand-tui"))]
    return PtyTerminal(argv, columns=COLUMNS, rows=LINES, answers=WHOLE, env=env)


def when(terminal: PtyTerminal, word: bytes, *, after: bytes = b"") -> float:
    """Return the milliseconds from the start until ``word`` was written behind ``after``."""
    end = terminal.output.index(word, terminal.output.index(after)) + len(word)
    seconds = next(seconds for seconds, count in terminal.times if count >= end)
    return 1000 * (seconds - terminal.started)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def leave(terminal: PtyTerminal) -> None:
    terminal.type(b"q")
    terminal.ends()


def run_python(code: str) -> float:
    """Return the milliseconds of a Python process that runs only ``code``."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", f"import gc; gc.disable(); {code}"], check=True)
    return 1000 * (time.monotonic() - started)


def used_ms(pid: int) -> float:
    """Return the processor time of all threads of a process (clock_getcpuclockid(3), Linux)."""
    return 1000 * time.clock_gettime(~pid << 3 | 2)


def used_until(terminal: PtyTerminal, word: bytes, *, after: bytes = b"") -> float:
    """Return the milliseconds of processor time until ``word`` was written behind ``after``."""
    deadline = time.monotonic() + WAIT_S
    while word not in terminal.output[max(0, terminal.output.find(after)) :]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {word!r} after {WAIT_S} s")
        time.sleep(0.001)
    return used_ms(terminal.process.pid)


def measure(count: int, runs: int, env: dict[str, str]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    last = f"bench-{count - 1}".encode()
    for _ in range(runs + 1):
        with open_app(env) as terminal:
            used = used_until(terminal, last)
            used_until(terminal, MOUSE_ON)
            framed = used_until(terminal, last, after=MOUSE_ON)
            terminal.sees(f"{count} stopped", "disk free")
            times = {
                "first_paint_ms": when(terminal, b"quicksand"),
                "listed_ms": when(terminal, last),
                "frame_ms": when(terminal, last, after=MOUSE_ON),
                "whole_ms": when(terminal, b"disk free"),
                "listed_cpu_ms": used,
                "frame_cpu_ms": framed,
                "python_ms": run_python("pass"),
                "textual_ms": run_python("import textual.app"),
            }
            leave(terminal)
        for name, value in times.items():
            found.setdefault(name, []).append(value)
    with open_app(env) as terminal:
        terminal.sees(f"{count} stopped")
        time.sleep(SETTLE_S)
        before, since = cpu_seconds(terminal.process.pid), time.monotonic()
        time.sleep(IDLE_S)
        used = cpu_seconds(terminal.process.pid) - before
        idle = 100 * used / (time.monotonic() - since)
        leave(terminal)
    # The first run fills caches and has no outline.
    medians = {name: statistics.median(values[1:]) for name, values in found.items()}
    return {**medians, "idle_percent": idle}


def main() -> None:
    count, runs = (int(word) for word in [*sys.argv[1:], "5", "15"][:2])
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory)
        make_sandboxes(data, count)
        result = measure(count, runs, places_in(data))
    rounded = {name: round(value, 1) for name, value in result.items()}
    print(json.dumps({"sandboxes": count, "runs": runs} | rounded))


if __name__ == "__main__":
    main()

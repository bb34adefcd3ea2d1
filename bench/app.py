"""Measures how soon the app shows its first screen and what it costs when idle. The app runs on a
pseudo-terminal (120x36) that answers all questions. Prints JSON.

python bench/app.py [SANDBOXES] [RUNS]

All times begin with the process: `first_paint_ms` ends when the outline is written, `frame_ms` when
the app's own first frame is, which accepts keys, and `listed_ms` when it lists all sandboxes.
`textual_ms` is the time to start Python and import Textual in the same run, as a measure of the
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


def import_textual() -> float:
    """Return the milliseconds of a process that only imports Textual."""
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", "import gc; gc.disable(); import textual.app"], check=True
    )
    return 1000 * (time.monotonic() - started)


def measure(count: int, runs: int, env: dict[str, str]) -> dict[str, float]:
    painted, framed, listed, imported = [], [], [], []
    for _ in range(runs + 1):
        with open_app(env) as terminal:
            terminal.sees(f"{count} stopped")
            painted.append(when(terminal, b"Sandboxes"))
            framed.append(when(terminal, b"Sandboxes", after=MOUSE_ON))
            listed.append(when(terminal, f"{count} stopped".encode()))
            leave(terminal)
        imported.append(import_textual())
    with open_app(env) as terminal:
        terminal.sees(f"{count} stopped")
        time.sleep(SETTLE_S)
        before, since = cpu_seconds(terminal.process.pid), time.monotonic()
        time.sleep(IDLE_S)
        used = cpu_seconds(terminal.process.pid) - before
        idle = 100 * used / (time.monotonic() - since)
        leave(terminal)
    return {
        # The first run fills caches and has no outline.
        "first_paint_ms": statistics.median(painted[1:]),
        "frame_ms": statistics.median(framed[1:]),
        "listed_ms": statistics.median(listed[1:]),
        "textual_ms": statistics.median(imported[1:]),
        "idle_percent": idle,
    }


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

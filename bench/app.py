"""How soon the app shows its first screen, and what it takes while nothing happens (120x36, on a
pseudo-terminal that answers as a good one does). Prints JSON.

python bench/app.py [SANDBOXES] [RUNS]

`first_paint_ms`: from the start of the process until the outline has been written, the parts in
their places; `frame_ms`: until the app's own first frame has, which takes keys at once.
`listed_ms`: until all sandboxes on disk are in it. `textual_ms`: what a Python takes to start and
to import Textual, in the same run, as a measure of the machine. `idle_percent`: of one core, over
twenty seconds.
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
"""What Textual writes before its first frame."""
IDLE_S = 20.0
SETTLE_S = 3.0


def open_app(env: dict[str, str]) -> PtyTerminal:
    argv = [str(Path(sys.executable).with_name("quicksand-tui"))]
    return PtyTerminal(argv, columns=COLUMNS, rows=LINES, answers=WHOLE, env=env)


def when(terminal: PtyTerminal, word: bytes, *, after: bytes = b"") -> float:
    """Milliseconds from the start until ``word`` had been written, behind ``after``."""
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
    """Milliseconds for a process that does only that."""
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
        # The first run has caches to fill, and no outline.
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

"""Counts the bytes that the app writes to its terminal (140x45, 40 sandboxes). Prints JSON.

python bench/bandwidth.py [--ssh]

`idle_10s` counts ten idle seconds, `tick` one change of the CPU and memory figures of all visible
sandboxes, `down` a cursor move by a line, `page` a move by a page.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.world import World
from tests.pty_terminal import WHOLE, PtyTerminal
from tests.unit.app.fakes import HOST, MIB, WEB, FakeService

ROWS, COLUMNS, LINES = 40, 140, 45
QUIET_S = 0.6
"""Seconds without output after which a change counts as drawn."""

IDLE_S = 10.0


class Ticking(FakeService):
    """A service whose figures change with the file that ``TICK`` names."""

    def read(
        self,
        *,
        visible: Collection[str] = (),
        network: Collection[str] = (),
        fresh: bool = False,
    ) -> World:
        turn = int(Path(os.environ["TICK"]).read_text() or "0")
        views = tuple(_sandbox(number, turn) for number in range(ROWS))
        return World(taken=1_700_000_000.0, sandboxes=views, host=HOST)


def _sandbox(number: int, turn: int) -> SandboxView:
    return replace(
        WEB,
        id=f"{number:012x}",
        name=f"sandbox-{number}",
        created=1_699_990_000.0 + number,
        cpu_percent=float((number * 7 + turn * 13) % 100),
        memory_used=(100 + (number * 11 + turn * 17) % 300) * MIB,
    )


def run_child() -> None:
    from quicksand_tui.door import service
    from quicksand_tui.opening.opening import run_app

    service.EngineService = Ticking  # type: ignore[misc]
    sys.exit(run_app())


def quiet(terminal: PtyTerminal) -> int:
    """Wait until nothing more is written; return the number of bytes written so far."""
    count, since = len(terminal.output), time.monotonic()
    while time.monotonic() - since < QUIET_S:
        time.sleep(0.02)
        if len(terminal.output) != count:
            count, since = len(terminal.output), time.monotonic()
    return count


def measure(env: dict[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as directory:
        tick = Path(directory) / "tick"
        tick.write_text("0")
        env = {**env, "TICK": str(tick), "QUICKSAND_STATE_DIR": directory}
        argv = [sys.executable, __file__, "--child"]
        with PtyTerminal(argv, columns=COLUMNS, rows=LINES, answers=WHOLE, env=env) as terminal:
            terminal.sees("sandbox-0")
            before = found["first_paint"] = quiet(terminal)
            time.sleep(IDLE_S)
            found["idle_10s"] = len(terminal.output) - before
            ticks = []
            for turn in range(1, 6):
                before = len(terminal.output)
                tick.write_text(str(turn))
                while len(terminal.output) == before:
                    time.sleep(0.02)
                ticks.append(quiet(terminal) - before)
            found["tick"] = max(ticks)
            for name, key in (("down", b"j"), ("page", b"\x1b[6~")):
                before = quiet(terminal)
                terminal.type(key)
                while len(terminal.output) == before:
                    time.sleep(0.02)
                found[name] = quiet(terminal) - before
            terminal.type(b"q")
            terminal.ends()
    return found


def main() -> None:
    if "--child" in sys.argv:
        run_child()
    env = {"SSH_TTY": "/dev/pts/0"} if "--ssh" in sys.argv else {}
    print(json.dumps(measure(env)))


if __name__ == "__main__":
    main()

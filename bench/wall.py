"""Measures what the wall costs: the share of a processor that the app takes with twelve tiles that
are silent, that write a few lines per second, and that flood; and while the wall is not shown.
Prints JSON.

python -m bench.wall [SECONDS]

The app runs on a pseudo-terminal of 160x45 with guests that write by themselves, for SECONDS (20)
in each case. A guest that floods has written more whenever it is asked. The frames are the drawings
of the wall in that time.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from quicksand.things.status import Status

from bench.panes import User
from quicksand_tui.cockpit.wall import WallView
from quicksand_tui.door.service import EngineService
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.wall_plan import Heard, WatchedTerminal
from quicksand_tui.model.world import World
from quicksand_tui.ui.app import QuicksandApp

COLUMNS, ROWS = 160, 45
TILES = 12
LINES_PER_S = 3
FLOOD_BYTES = 16 * 1024
"""Bytes that a flooding guest has written each time: as much as the door keeps
(`door.wall_feeds`)."""

LINE = b"%06d \x1b[3%dmsome output\x1b[m of a program that tells what it does\r\n"
VIEWS = tuple(
    SandboxView(id=f"{n:012x}", name=f"agent-{n}", state=Status.RUNNING, image="debian")
    for n in range(1, TILES + 1)
)
CASES = {"silent": "i", "some lines": "l", "floods": "f"}
"""The guests' behaviours, by the letters that select them."""


class Guests:
    """Terminals whose output depends on the case."""

    def __init__(self, case: Path) -> None:
        self._case = case
        self._begun = time.monotonic()
        self._said: dict[str, int] = {}

    def want(self, sandbox_ids: Collection[str]) -> None:
        pass

    def terminals(self, sandbox_id: str) -> tuple[WatchedTerminal, ...]:
        one = WatchedTerminal(
            session="p1", birth="", columns=80, rows=24, program="pytest -q", directory="/root"
        )
        return (one,)

    def why(self, sandbox_id: str) -> str:
        return ""

    def take(self, sandbox_id: str, session: str, birth: str) -> Heard:
        said = self._said.get(sandbox_id, 0)
        case = self._case.read_text()
        due = said
        if case == "l":
            due = int((time.monotonic() - self._begun) * LINES_PER_S)
            due = min(due, said + 3 * LINES_PER_S)
        elif case == "f":
            due = said + FLOOD_BYTES // len(LINE)
        self._said[sandbox_id] = max(said, due)
        lines = b"".join(LINE % (n, n % 8) for n in range(said, due))
        return Heard(fresh=lines, skipped=case == "f")

    def close(self) -> None:
        pass


class Service(EngineService):
    """A service with twelve sandboxes."""

    def read(
        self,
        *,
        visible: Collection[str] = (),
        network: Collection[str] = (),
        fresh: bool = False,
    ) -> World:
        return World(taken=time.time(), sandboxes=VIEWS)

    def open_wall(self) -> Any:
        return Guests(Path(os.environ["BENCH_CASE"]))


def used_s(pid: int) -> float:
    """Return the seconds of processor that a process has used, with its children's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def share(app: int, user: User, seconds: float) -> float:
    """Return the percent of a processor that the app takes over ``seconds``."""
    begun, before = time.monotonic(), used_s(app)
    user.rest(seconds)
    return round(100 * (used_s(app) - before) / (time.monotonic() - begun), 1)


def measure(app: int, user: User, case: Path, frames: Path, seconds: float) -> dict[str, object]:
    case.write_text(CASES["silent"])
    user.wait(b"agent-12")
    user.rest(3.0)
    found: dict[str, object] = {"not shown, %": share(app, user, seconds)}
    user.type(b"W")
    user.wait(b"12 tiles")
    for name, letter in CASES.items():
        case.write_text(letter)
        user.rest(8.0)  # until the pace has settled
        before = frames.stat().st_size
        percent = share(app, user, seconds)
        drawn = (frames.stat().st_size - before) / seconds
        found[name] = {"percent of a processor": percent, "frames per second": round(drawn, 1)}
    case.write_text(CASES["silent"])
    user.type(b"q")
    user.rest(3.0)
    found["left, %"] = share(app, user, seconds)
    return found


def run_app() -> None:
    """Run the app as the command does, and note each frame."""
    update = WallView.update_tiles
    with Path(os.environ["BENCH_FRAMES"]).open("ab", buffering=0) as frames:

        def noted(view: WallView) -> None:
            frames.write(b".")
            update(view)

        WallView.update_tiles = noted  # type: ignore[method-assign,assignment]
        gc.disable()
        QuicksandApp(Service(), painted=collect_garbage).run()


def collect_garbage() -> None:
    gc.freeze()
    gc.enable()


def main() -> None:
    seconds = float([*sys.argv[1:], "20"][0])
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
    with tempfile.TemporaryDirectory() as directory:
        case, frames = Path(directory, "case"), Path(directory, "frames")
        frames.touch()
        case.write_text(CASES["silent"])
        environment = {
            **os.environ,
            **{"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONUTF8": "1"},
            **{"QUICKSAND_DATA_DIR": directory, "QUICKSAND_RUNTIME_DIR": f"{directory}/run"},
            **{"BENCH_CASE": str(case), "BENCH_FRAMES": str(frames)},
        }
        app = subprocess.Popen(
            [sys.executable, "-m", "bench.wall", "--app"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        user = User(master)
        try:
            found = measure(app.pid, user, case, frames, seconds)
        finally:
            app.send_signal(signal.SIGTERM)
            with contextlib.suppress(OSError):
                user.rest(2.0)
            app.kill()
            app.wait()
        print(json.dumps({"size": [COLUMNS, ROWS], "tiles": TILES, **found}, indent=1))


if __name__ == "__main__":
    if sys.argv[1:] == ["--app"]:
        run_app()
    else:
        main()

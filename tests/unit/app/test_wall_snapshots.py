"""What the wall looks like. ``pytest --snapshot-update`` after a change that is meant."""

from __future__ import annotations

import time
from dataclasses import replace

from quicksand.things.status import Status
from textual.pilot import Pilot

from quicksand_tui.model.wall_plan import Heard
from quicksand_tui.screens.wall_screen import WallScreen
from tests.unit.app.fakes import WEB, app_of, make_app, ready, until
from tests.unit.app.test_snapshots import LARGE, SMALL, Compare, unhurried
from tests.unit.app.test_wall import WallService, terminal

__all__ = ["unhurried"]

SAID = {
    "web": (
        "pytest -q",
        "....F..\r\n\x1b[31m1 failed\x1b[m, 6 passed in 2.31s\r\nroot@web:~/src# ",
    ),
    "dev": (
        "cargo build",
        "   \x1b[1;32mCompiling\x1b[m serde v1.0\r\n   \x1b[1;32mCompiling\x1b[m tokio v1.40\r\n"
        "    Building [==========>      ] 142/210: 漢字",
    ),
    "agent": ("agent --edit", "Read src/main.rs\r\nApply this edit? [y/n] "),
    "docs": ("-bash", "root@docs:~/src# "),
    "old": ("top", "\x1b[?1049h\x1b[?25l\x1b[7m  PID USER   %CPU\x1b[m\r\n    1 root    0.3\r\n"),
    "idle": ("vim notes.md", "\x1b[?1049h\x1b[34m# Notes\x1b[m\r\n\r\n~\r\n~\r\n"),
}
VIEWS = tuple(
    replace(WEB, id=f"{n:012x}", name=name, cpu_percent=float(3 * n))
    for n, name in enumerate(SAID, 1)
)


class RichService(WallService):
    """Six terminals, one of them in a paused sandbox."""

    def __init__(self) -> None:
        super().__init__((*VIEWS[:-1], replace(VIEWS[-1], state=Status.PAUSED)))
        for view in VIEWS:
            program, text = SAID[view.name]
            self.wall.put(view.id, terminal(program=program))
            heard = Heard(repeated=text.encode(), begun=True)
            self.wall.said[view.id, "p1"] = heard


def test_wall(snap_compare: Compare) -> None:
    async def drawn(pilot: Pilot[int]) -> None:
        await ready(pilot)
        await pilot.press("W")
        await until(lambda: isinstance(app_of(pilot).screen, WallScreen))
        screen = app_of(pilot).screen
        assert isinstance(screen, WallScreen)
        view = screen.view
        await until(lambda: len(view.tiles.shown) == len(VIEWS) and view.tiles.calling == 1)
        for tile in view.tiles.shown[:3]:
            tile.screen.heard = time.monotonic() - 270
        view.update_tiles()
        await until(lambda: not any(t.fresh or t.screen.is_behind for t in view.tiles.shown))
        await pilot.pause()

    assert snap_compare(make_app(RichService()), terminal_size=LARGE, run_before=drawn)


def test_wall_where_nothing_runs_any_more(snap_compare: Compare) -> None:
    service = WallService(VIEWS[:1])

    async def emptied(pilot: Pilot[int]) -> None:
        app = await ready(pilot)
        await pilot.press("W")
        await until(lambda: isinstance(app.screen, WallScreen))
        service.change(VIEWS[0].id, Status.STOPPED)
        await app.look()
        await pilot.pause()

    assert snap_compare(make_app(service), terminal_size=SMALL, run_before=emptied)

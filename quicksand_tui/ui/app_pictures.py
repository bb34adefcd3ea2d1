"""Takes pictures of the app's real screens without a terminal."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from quicksand_driver.textual_compositor import drawn_lines, drawn_text

from quicksand_tui.actions.all_actions import find_action
from quicksand_tui.door.service import EngineService
from quicksand_tui.home.state import ThemeChoice
from quicksand_tui.kit.key_handling import ActionScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.ui.drawing import Run, runs_of, to_png, to_svg
from quicksand_tui.ui.shots import SHOTS, ShotSpec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from textual.pilot import Pilot


LOADED_WAIT_S = 30.0
"""Seconds to wait for the first look at the disk."""

SETTLED_S, SETTLED_WAIT_S = 0.15, 5.0
"""Seconds without a change before a picture is taken, and the most seconds to wait for that."""

TITLE = "quicksand-tui"


class ScreenshotError(Exception):
    """Raised if there is no picture; ``hint`` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def check_target(path: Path) -> None:
    """Checks that a picture can be written to ``path``. Raises ScreenshotError."""
    if path.suffix.lower() not in (".svg", ".png"):
        raise ScreenshotError(f"{path} is neither .svg nor .png", "name the file so")
    if not path.absolute().parent.is_dir():
        raise ScreenshotError(f"there is no directory {path.absolute().parent}", "make it first")


def write_picture(path: Path, shown: Shown) -> None:
    """Writes the picture completely or not at all, in the format that the path's suffix says.
    Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        is_png = path.suffix.lower() == ".png"
        temporary.write_bytes(shown.to_png() if is_png else shown.to_svg().encode())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Shown:
    """The contents of a screen."""

    runs: tuple[Run, ...]
    size: tuple[int, int]
    """Columns and rows."""

    def to_svg(self) -> str:
        return to_svg(self.runs, self.size, TITLE)

    def to_png(self) -> bytes:
        return to_png(self.runs, self.size, TITLE)


def shown_by(app: QuicksandApp) -> Shown:
    """Returns the contents of an app's screen."""
    return Shown(tuple(runs_of(drawn_lines(app))), (app.size.width, app.size.height))


async def picture(
    service: EngineService,
    spec: ShotSpec,
    *,
    then: Callable[[Pilot[int]], Awaitable[None]] | None = None,
) -> Shown:
    """Returns the contents of a screen; ``then`` may act before they are taken. Raises
    ScreenshotError."""
    app = QuicksandApp(
        service, ascii_glyphs=spec.ascii_glyphs, theme=ThemeChoice(wish=spec.theme or "quicksand")
    )
    app.animation_level = "none"
    if spec.theme and app.theme != spec.theme:
        known = ", ".join(sorted(app.available_themes))
        raise ScreenshotError(f"there is no theme {spec.theme!r}", f"there are {known}")
    async with app.run_test(size=spec.size) as pilot:
        if not await _until(lambda: app.world.knows_images, LOADED_WAIT_S):
            raise ScreenshotError("the store was not read in time", "`quicksand-tui doctor`")
        await _settle(app)
        await _go(app, spec)
        await _settle(app)
        if then is not None:
            await then(pilot)
            await pilot.pause()
        return shown_by(app)


async def _go(app: QuicksandApp, spec: ShotSpec) -> None:
    shot = SHOTS[spec.screen]
    if spec.sandbox:
        found = next((s for s in app.world.sandboxes if s.name == spec.sandbox), None)
        if found is None:
            raise ScreenshotError(
                f"there is no sandbox {spec.sandbox!r}", "`quicksand-tui ps -a` lists them"
            )
        app.main.sandboxes.table.select(found.id)
        await _settle(app)
    elif shot.of_sandbox and not app.world.sandboxes:
        raise ScreenshotError(f"the screen {spec.screen} needs a sandbox", "`quicksand-tui run`")
    for action in shot.actions:
        screen = app.screen
        assert isinstance(screen, ActionScreen)
        reason = find_action(action, screen.scope).disabled_reason(app.world, screen.selection)
        if reason is None:
            screen.action_do(action)
            if not shot.opens:
                await _settle(app)
                continue
            if await _until(partial(_has_left, app, screen), SETTLED_WAIT_S):
                continue
        raise ScreenshotError(
            f"the screen {spec.screen} cannot be shown: {reason or 'nothing opens'}"
        )


def _has_left(app: QuicksandApp, screen: ActionScreen) -> bool:
    return app.screen is not screen


async def _until(condition: Callable[[], object], wait_s: float) -> bool:
    deadline = asyncio.get_running_loop().time() + wait_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


async def _settle(app: QuicksandApp) -> None:
    """Waits until the screen stops changing, but at most `SETTLED_WAIT_S`."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + SETTLED_WAIT_S
    drawn, since = "", clock()
    while clock() < deadline and clock() - since < SETTLED_S:
        await asyncio.sleep(0.03)
        now = drawn_text(app.screen)
        if now != drawn or not now.strip():
            drawn, since = now, clock()


def take(path: Path, spec: ShotSpec) -> None:
    """Writes a picture of this user's sandboxes. Raises ScreenshotError or OSError."""
    check_target(path)
    service = EngineService()
    try:
        shown = asyncio.run(picture(service, spec))
    finally:
        service.close()
    write_picture(path, shown)

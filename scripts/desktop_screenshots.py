"""Make screenshots/desktop-*.svg: Firefox in the app's desktop tab, opened by a click, typed into,
closed, and back by a revert.

Called by `make screenshots-desktop`; it needs what `make setup` prepares, builds the image
`debian-desktop` if it is missing, and takes some minutes without an accelerator.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from quicksand import Sandbox
from quicksand.base.paths import paths
from quicksand.life.image_building import build_if_missing, suggested_options
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.warm.template_maker import warm
from textual.geometry import Offset
from textual.pilot import Pilot

from quicksand_tui.door.service import EngineService
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.ui.app_pictures import picture, shown_by, write_picture
from quicksand_tui.ui.shots import ShotSpec
from screenshots import TARGET, places, say

IMAGE, NAME = "debian-desktop", "d"
SIZE = (200, 56)
ICON = (116, 14)
"""The middle of Firefox's icon in the panel, in pixels."""

ADDRESS = (640, 93)
FIELD = (230, 330)
"""Places in Firefox's address bar and in the page's field."""

PAGE = (
    "data:text/html,<title>Notes</title><style>*{font:90px sans-serif}</style>Hello<br><textarea>"
)
"""The page, so large that half cells show it."""

TEXT = "typed in the app"
PREFIX = "ctrl+right_square_bracket"
WAIT_S = 240.0
QUIET_S = 3.0


class Visit:
    """The app, with the desktop of one sandbox in it."""

    def __init__(self, pilot: Pilot[int], sandbox: Sandbox) -> None:
        assert isinstance(pilot.app, QuicksandApp)
        self._pilot, self._app, self._sandbox = pilot, pilot.app, sandbox

    async def click(self, x: int, y: int) -> None:
        """Click where the app shows a pixel of the guest's screen."""
        desktop = self._app.main.area.desktop.view
        view = desktop.frame_view
        assert view is not None
        target = view.target
        place = Offset(
            target.x + x * target.width // view.width, target.y + y * target.height // view.height
        )
        await self._pilot.mouse_down(desktop, offset=place)
        await self._pilot.mouse_up(desktop, offset=place)

    async def type(self, text: str) -> None:
        self._app.main.area.desktop.view.type(text.encode())

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def until(self, is_there: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not await is_there():
            if time.monotonic() > deadline:
                raise TimeoutError("the desktop does not show what it should")
            await asyncio.sleep(0.5)

    async def guest_says(self, command: str) -> bool:
        return (await self._sandbox.execute(command, timeout=60)).exit_code == 0

    async def windows(self, name: str) -> bool:
        return await self.guest_says(f"xdotool search --onlyvisible --name '{name}'")

    async def no_firefox(self) -> bool:
        return not await self.guest_says("pgrep -f '[f]irefox-esr'")

    async def rest(self) -> None:
        """Wait until the guest's screen does not change, and the app has drawn it."""
        await self._sandbox.wait_for_screen("stable", quiet=QUIET_S, timeout=WAIT_S)
        await self._pilot.pause(1.0)

    async def shoot(self, name: str) -> None:
        await self.rest()
        write_picture(TARGET / f"{name}.svg", shown_by(self._app))
        say(f"made {name}.svg")

    async def job_done(self) -> None:
        """Wait until the job that was begun has ended."""
        await self._pilot.pause(0.5)

        async def idle() -> bool:
            return not self._app.operations.jobs

        await self.until(idle)


async def scenario(visit: Visit) -> None:
    await visit.rest()
    await visit.press(PREFIX, "z")
    await visit.rest()
    await visit.click(*ICON)
    await visit.until(lambda: visit.windows("Mozilla Firefox"))
    await visit.rest()
    await visit.click(*ADDRESS)
    await visit.type(PAGE)
    await visit.press("enter")
    await visit.until(lambda: visit.windows("Notes"))
    await visit.rest()
    await visit.click(*FIELD)
    await visit.type(TEXT)
    await visit.rest()
    await visit.press(PREFIX, "c")
    await visit.press(*"typed", "enter")
    await visit.job_done()
    await visit.shoot("desktop-typed")
    await visit.press("ctrl+q")
    await visit.until(visit.no_firefox)
    await visit.shoot("desktop-closed")
    await visit.press(PREFIX, "u")
    await visit.press("enter")
    await visit.job_done()
    await visit.press("w")
    await visit.press(PREFIX, "z")
    await visit.until(lambda: visit.windows("Notes"))
    await visit.shoot("desktop-reverted")


async def run() -> None:
    registry = Registry(paths())
    await build_if_missing(IMAGE, registry.paths, build=True)
    say("making a template, if there is none")
    config = SandboxConfig.parse({**suggested_options(IMAGE, registry.paths), "image": IMAGE})
    await warm(registry, config)
    service = EngineService()
    try:
        async with Sandbox(image=IMAGE, name=NAME) as sandbox:
            spec = ShotSpec(screen="desktop", sandbox=NAME, size=SIZE)
            await picture(service, spec, then=lambda pilot: scenario(Visit(pilot, sandbox)))
    finally:
        service.close()


def main() -> int:
    with places():
        asyncio.run(run())
    return 0


if __name__ == "__main__":
    sys.exit(main())

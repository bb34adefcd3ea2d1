"""Make screenshots/revert.gif: a guest is wrecked in the app's shell and taken back.

Called by `make screenshots`; it needs what `make setup` prepares.
"""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

from PIL import Image
from quicksand import Sandbox
from quicksand_driver.textual_compositor import drawn_text
from textual.pilot import Pilot

from quicksand_tui.door.service import EngineService
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.ui.app_pictures import picture, shown_by
from quicksand_tui.ui.shots import ShotSpec
from screenshots import TARGET, places, say, text_of, type_into, until

SIZE = (100, 30)
WIDTH = 1000
"""Pixels of the recording; a page shows it at that size or smaller."""
COLOURS = 64

PREFIX = "ctrl+right_square_bracket"

KEY_MS, LOOK_MS, READ_MS = 70, 900, 2200
"""Milliseconds for which a typed letter, a screen and a result are shown."""


class Recording:
    """The app's screens, with the time for which each is shown."""

    def __init__(self, pilot: Pilot[int]) -> None:
        assert isinstance(pilot.app, QuicksandApp)
        self.app = pilot.app
        self._pilot = pilot
        self._frames: list[Image.Image] = []
        self._times: list[int] = []

    async def show(self, milliseconds: int) -> None:
        await self._pilot.pause(0.1)
        drawn = Image.open(io.BytesIO(shown_by(self.app).to_png())).convert("RGB")
        height = drawn.height * WIDTH // drawn.width
        self._frames.append(drawn.resize((WIDTH, height), Image.Resampling.LANCZOS))
        self._times.append(milliseconds)

    async def press(self, *keys: str, then: int = LOOK_MS) -> None:
        await self._pilot.press(*keys)
        await self.show(then)

    async def write(self, text: str) -> None:
        """Type into a dialog."""
        for letter in text:
            await self.press("space" if letter == " " else letter, then=KEY_MS)

    async def command(self, text: str, answer: str) -> None:
        """Type a command into the shell, and wait for a text of its answer."""
        before = self.shell.count(answer)
        for letter in text:
            type_into(self.app, letter)
            await self.show(KEY_MS)
        type_into(self.app, "\r")
        await until(lambda: self.shell.count(answer) > before)
        await self.show(READ_MS)

    @property
    def shell(self) -> str:
        pane = self.app.main.area.shells.pane
        return "" if pane is None else text_of(pane)

    def save(self, path: Path) -> None:
        """Write it with one set of colours, so that unchanged parts take no room."""
        palette = self._frames[-1].quantize(COLOURS)
        first, *rest = [
            frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self._frames
        ]
        first.save(
            path, save_all=True, append_images=rest, duration=self._times, loop=0, optimize=True
        )


async def play(recording: Recording) -> None:
    app = recording.app
    await recording.show(READ_MS)
    await recording.press("s", then=0)
    await until(lambda: "root@web" in recording.shell)
    await recording.command("ls /home", "root@web")
    await recording.press(PREFIX)
    await recording.press("c")
    await recording.write("clean")
    await recording.press("enter", then=0)
    await until(lambda: "checkpoint web clean  ✓" in drawn_text(app.screen))
    await recording.show(READ_MS)
    await recording.command("rm -rf /usr /home", "root@web")
    await recording.command("ls", "No such file")
    await recording.press(PREFIX)
    await recording.press("u", then=READ_MS)
    await recording.press("enter", then=0)
    await until(lambda: "revert web clean  ✓" in drawn_text(app.screen))
    await until(lambda: "No such file" not in recording.shell and "root@web" in recording.shell)
    await recording.show(READ_MS)
    await recording.command("ls /usr", "share")


async def record() -> None:
    async def finish(pilot: Pilot[int]) -> None:
        recording = Recording(pilot)
        await play(recording)
        recording.save(TARGET / "revert.gif")

    service = EngineService()
    try:
        await picture(service, ShotSpec(size=SIZE), then=finish)
    finally:
        service.close()
    say("made revert.gif")


async def prepare() -> None:
    for name in ("web", "agent"):
        say(f"starting {name}")
        sandbox = Sandbox(image="debian", name=name)
        await sandbox.start()
        sandbox.detach()
        sandbox.close()


def main() -> int:
    with places():
        asyncio.run(prepare())
        asyncio.run(record())
    return 0


if __name__ == "__main__":
    sys.exit(main())

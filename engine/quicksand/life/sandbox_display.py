"""The screen, keyboard and pointer of a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand_vnc import check_size, is_number, is_whole, parse_keys

from quicksand.base.effort import best_effort
from quicksand.base.error_text import choose
from quicksand.base.errors import AgentError, ConfigError, StateError
from quicksand.base.regular import read_word
from quicksand.base.remedies import Remedy, Words
from quicksand.base.threads import in_thread_to_the_end
from quicksand.display import any_text, hands
from quicksand.display.asked import (
    check_path,
    check_wait,
    choose_format,
    write_picture,
)
from quicksand.display.hands import Hands, Held, check_button, check_place, pixel_on, place_on
from quicksand.display.in_guest import (
    ANSWER_S,
    find_pointer,
    find_texts,
    has_driver,
    has_other_layout,
)
from quicksand.display.place import RfbClient, open_screen, vnc_errors
from quicksand.display.recording import Recording
from quicksand.display.screendump import is_driven, take_picture, take_size
from quicksand.display.sought import machine_with_screen
from quicksand.display.waiting import Until, check_text, wait_for, wait_for_text
from quicksand.life.sandbox_life import Life
from quicksand.records.layout import MachineDir

if TYPE_CHECKING:
    from quicksand_vnc import Picture

    from quicksand.display.in_guest import Pointer

TEXT_MAX = 65_536
"""Characters that `type` types at once; they take four minutes."""

PATH_MAX = 10_000
"""Places on the way of a drag."""

SCROLL_MAX = 10_000
HOLD_MAX_S = 60.0

LATE_S = 0.2
"""Seconds for a guest to bring the pointer to its new place."""

Region = tuple[int, int, int, int]


class Display:
    """The display of one sandbox. Each method raises what its namesake in `Desktop` raises.

    Calls that use the keyboard or the pointer wait for their turn: within this object in the order
    of the calls, among clients by a lock of the machine.
    """

    def __init__(self, life: Life) -> None:
        self._life = life
        self._turns = asyncio.Lock()

    def machine(self) -> MachineDir:
        """The directory of the QEMU that runs now. Raises NoDisplayError, StateError."""
        life = self._life
        return machine_with_screen(life.registry.paths, life.name, life.config, life.entry)

    def connect(self) -> AbstractAsyncContextManager[RfbClient]:
        return open_screen(self.machine())

    def vnc_port(self) -> int | None:
        return self._life.run.vnc_port if self._life.run is not None else None

    def vnc_password(self) -> str | None:
        if self.vnc_port() is None:
            return None
        with contextlib.suppress(OSError):
            return read_word(self.machine().vnc_password)
        return None

    # The screen

    async def picture(self, region: Region | None, scale: float | None) -> Picture:
        found = await take_picture(self.machine())

        def change() -> Picture:
            part = found if region is None else found.cut(region)
            return part if scale is None else part.scaled(scale)

        with vnc_errors():
            return await in_thread_to_the_end(change)

    async def screenshot(
        self, path: Path | None, region: Region | None, scale: float | None, form: str | None
    ) -> bytes:
        """Return the picture as a file's content, and write it to ``path`` if that is given."""
        kind = choose_format(form, path)
        picture = await self.picture(region, scale)
        data = await in_thread_to_the_end(lambda: picture.encode(kind))
        if path is not None:
            await in_thread_to_the_end(lambda: write_picture(path, data))
        return data

    async def size(self) -> tuple[int, int]:
        return await take_size(self.machine())

    async def set_size(self, width: int, height: int) -> None:
        with vnc_errors():
            check_size(width, height)  # before QEMU is connected to
        async with self.connect() as client:
            await client.resize(width, height)

    async def wait(
        self,
        until: str,
        timeout_s: float,
        quiet_s: float,
        region: Region | None,
        text: str | None,
    ) -> None:
        try:
            wanted = Until(until)
        except ValueError:
            raise ConfigError(f"{until!r} is nothing to wait for: {choose(Until)}") from None
        check_wait("timeout", timeout_s)
        check_wait("quiet", quiet_s)
        sought = check_text(wanted, text)
        machine = self.machine()

        async def driven() -> bool:
            return await is_driven(machine)

        if sought:
            if region is not None:
                raise ConfigError("a text is not waited for in a region")
            self._refuse_paused("its guest tells nothing")
            await wait_for_text(
                sought,
                timeout_s=timeout_s,
                is_driven=driven,
                has_driver=self._has_driver,
                find_texts=self._find_texts,
            )
            return
        async with self.connect() as client:
            await wait_for(
                client,
                wanted,
                timeout_s=timeout_s,
                quiet_s=quiet_s,
                region=region,
                is_driven=driven,
                has_driver=self._has_driver,
            )

    async def _has_driver(self) -> bool | None:
        """Whether the guest has the screen's driver; None if it does not tell."""
        if self._is_paused:
            return None
        with best_effort("ask the guest for its screen's driver", self._life.log):
            async with asyncio.timeout(2 * ANSWER_S):
                return await has_driver(await self._life.session())
        return None

    async def _find_texts(self) -> list[str] | None:
        return await find_texts(await self._life.session())

    def record(
        self, path: Path, *, seconds: float, fps: float, scale: float, replace: bool
    ) -> AbstractAsyncContextManager[Recording]:
        self.machine()  # refuses if there is none
        return Recording.open(
            path, self._find_machine, seconds=seconds, fps=fps, scale=scale, replace=replace
        )

    def _find_machine(self) -> MachineDir | None:
        """The directory of the QEMU that runs now; None if the sandbox has ended."""
        registry = self._life.registry
        entry = registry.inspect(self._life.id)
        if entry is None or not entry.is_live:
            return None
        return registry.machine(self._life.id)

    # Keyboard and pointer

    def _refuse_paused(self, why: str) -> None:
        """Raise StateError if the sandbox is paused."""
        if self._is_paused:
            raise StateError(f"the sandbox {self._life.name!r} is paused", hint=f"resume it: {why}")

    @property
    def _is_paused(self) -> bool:
        run = self._life.entry().run
        return run is not None and run.paused

    @contextlib.asynccontextmanager
    async def _hands(self) -> AsyncIterator[Hands]:
        machine = self.machine()
        self._refuse_paused("it takes no input")
        async with self._turns, Hands.turn(machine) as hands:
            yield hands

    async def type(self, text: str) -> None:
        """Type a text. A long one takes several turns, so that other clients get theirs."""
        any_text.check_text(text, TEXT_MAX)
        machine = self.machine()
        self._refuse_paused("it takes no input")
        async with self._turns:
            by_tool = any_text.needs_tool(text) or await self._has_other_layout()
            size = any_text.PIECE if by_tool else hands.PIECE
            for start in range(0, len(text), size):
                if start:
                    await hands.let_others()
                piece = text[start : start + size]
                async with hands.Hands.turn(machine) as both:
                    if by_tool:
                        await any_text.type_any(await self._life.session(), piece)
                    else:
                        await both.type(piece)

    async def _has_other_layout(self) -> bool:
        """Whether the keyboard layout of the guest's desktop is not the US one. A guest that cannot
        be asked, such as one with only a text console, counts as one with the US layout."""
        try:
            return await has_other_layout(await self._life.session())
        except AgentError:
            return False

    async def press(self, keys: Sequence[str], hold_s: float) -> None:
        names = _read_keys(keys)
        if not is_number(hold_s) or not 0 <= hold_s <= HOLD_MAX_S:
            raise ConfigError(
                f"hold must be 0 to {HOLD_MAX_S:g} seconds, not {hold_s!r}",
                hint="a key that is held for longer is pressed by key_down and released by key_up",
            )
        async with self._hands() as hands:
            await hands.press(names, hold_s=hold_s)

    async def set_keys(self, keys: Sequence[str], down: bool) -> None:
        names = _read_keys(keys)
        async with self._hands() as hands:
            await (hands.hold(names) if down else hands.let_go(names))

    async def move(self, x: int, y: int) -> None:
        place = check_place(x), check_place(y)
        async with self._hands() as hands:
            await hands.move(*place)

    async def place_of(self, x: int, y: int) -> tuple[int, int]:
        """Return the place to which the pointer must be moved to be at the pixel (x, y). Raises
        ConfigError if there is no such pixel."""
        return place_on(await self.size(), x, y)

    async def pixel_of(self, place: tuple[int, int]) -> tuple[int, int]:
        """Return the pixel at which the pointer is after it was moved to a place."""
        return pixel_on(await self.size(), place)

    async def click(self, button: str, count: int, place: tuple[int, int] | None = None) -> None:
        """Click where the pointer is, or at a place."""
        name = check_button(button)
        at = None if place is None else (check_place(place[0]), check_place(place[1]))
        async with self._hands() as hands:
            if at is not None:
                await hands.move(*at)
            await hands.click(name, count=count)

    async def set_button(self, button: str, down: bool) -> None:
        name = check_button(button)
        async with self._hands() as hands:
            await (hands.hold_button(name) if down else hands.let_go_button(name))

    async def drag(self, path: Sequence[tuple[int, int]], button: str, *, pixels: bool) -> None:
        name = check_button(button)
        wanted = check_path(path, PATH_MAX)
        if pixels:
            size = await self.size()  # once: each call takes a picture
            places = [place_on(size, x, y) for x, y in wanted]
        else:
            places = [(check_place(x), check_place(y)) for x, y in wanted]
        async with self._hands() as hands:
            await hands.drag(places, name)

    async def scroll(self, notches: int) -> None:
        if not is_whole(notches) or abs(notches) > SCROLL_MAX:
            raise ConfigError(
                f"notches must be a whole number to {SCROLL_MAX}, not {notches!r}",
                hint="above 0 turns the wheel down, below 0 up",
            )
        async with self._hands() as hands:
            await hands.scroll(notches)

    async def position(self) -> tuple[int, int]:
        noted = Held.read(self.machine()).position
        seen = await self._find_pointer()
        if noted is not None and (seen is None or seen.is_at(noted)):
            return noted
        if seen is None:
            raise StateError(
                f"it is not known where the pointer of {self._life.name!r} is: no client has moved "
                "it since this machine started, and the guest cannot tell",
                hint=Words(
                    "a guest tells that has an X server and xdotool; mouse_move moves it, or ",
                    Remedy("mouse_move", name=self._life.name),
                    python="a guest tells that has an X server and xdotool; mouse_move moves it",
                ),
            )
        if noted is not None:
            # A viewer has moved the pointer, or the guest is late: then it is there soon.
            await asyncio.sleep(LATE_S)
            seen = await self._find_pointer() or seen
            if seen.is_at(noted):
                return noted
        return seen.place

    async def _find_pointer(self) -> Pointer | None:
        """Return the pointer's place as the guest reports it; None if the guest cannot be asked."""
        if self._is_paused:
            return None
        try:
            return await find_pointer(await self._life.session())
        except AgentError:
            return None


def _read_keys(names: Sequence[str]) -> tuple[str, ...]:
    """Return QEMU's names of keys. Raises ConfigError."""
    with vnc_errors():
        return parse_keys(names)

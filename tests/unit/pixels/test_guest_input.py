"""Keys, texts and the pointer reach a guest in their order, and where they were meant."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from quicksand.base.errors import DisplayError
from quicksand_pixels.user_input import Chord

from quicksand_tui.door.engine_screen import WAITING_MAX, GuestInput
from tests.unit.app.fakes import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Guest:
    """Notes what arrives; texts take as long as the test says."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.told: list[str] = []
        self.may_type = asyncio.Event()
        self.failure: DisplayError | None = None

    async def key(self, keysym: int, down: bool) -> None:
        if down:
            self.got.append(chr(keysym) if keysym < 256 else keysym)

    async def pointer(self, x: int, y: int, buttons: int, *, width: int) -> None:
        assert width == 640
        self.got.append((x, y, buttons))

    async def type_text(self, text: str) -> None:
        await self.may_type.wait()
        if self.failure is not None:
            raise self.failure
        self.got.append(f"text:{text}")


@asynccontextmanager
async def reaching(guest: Guest) -> AsyncIterator[GuestInput]:
    found = GuestInput(guest, guest, guest.told.append)  # type: ignore[arg-type]
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_what_comes_after_a_text_waits_for_it() -> None:
    guest = Guest()
    async with reaching(guest) as hands:
        for key in ("a", "é"):
            hands.press(Chord(key))
        await until(lambda: guest.got == ["a"])
        for key in ("b", "ß", "enter"):
            hands.press(Chord(key))
        hands.press(Chord("c", control=True))
        hands.point(3, 4, 1, 640)
        hands.press(Chord("漢"))
        guest.may_type.set()
        await until(lambda: "text:漢" in guest.got)
    typed = ["text:é", "b", "text:ß", 0xFF0D, 0xFFE3, "c", (3, 4, 1), "text:漢"]
    assert guest.got == ["a", *typed]


async def test_characters_behind_a_text_that_waits_are_typed_with_it() -> None:
    guest = Guest()
    async with reaching(guest) as hands:
        hands.press(Chord("é"))
        await until(lambda: not hands._waiting)  # it is being typed
        for key in "xßyz":
            hands.press(Chord(key))
        guest.may_type.set()
        await until(lambda: len(guest.got) == 3)
    assert guest.got == ["text:é", "x", "text:ßyz"]


async def test_a_text_that_cannot_be_typed_is_told_and_the_rest_arrives() -> None:
    guest = Guest()
    guest.failure = DisplayError("the guest has no xdotool")
    guest.may_type.set()
    async with reaching(guest) as hands:
        hands.press(Chord("é"))
        hands.press(Chord("up"))
        await until(lambda: guest.got == [0xFF52])
    assert guest.told == ["not typed: the guest has no xdotool"]


async def test_a_paste_keeps_what_keys_type() -> None:
    guest = Guest()
    guest.may_type.set()
    async with reaching(guest) as hands:
        hands.type("one\r\ntwo\rthree\x1b\x07\ud800\t👩\u200d🚀")
        hands.type("\x07")
        await until(lambda: bool(guest.got))
    assert guest.got == ["text:one\ntwo\nthree\t👩\u200d🚀"]


async def test_of_a_movement_only_the_end_is_sent_but_each_button() -> None:
    guest = Guest()
    async with reaching(guest) as hands:
        hands.press(Chord("é"))
        for x, buttons in ((1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 0), (7, 0)):
            hands.point(x, 0, buttons, 640)
        guest.may_type.set()
        await until(lambda: (7, 0, 0) in guest.got)
    assert guest.got[1:] == [(2, 0, 0), (3, 0, 1), (5, 0, 1), (6, 0, 0), (7, 0, 0)]


async def test_a_guest_that_takes_nothing_costs_no_memory_without_end() -> None:
    guest = Guest()
    hands = GuestInput(guest, guest, guest.told.append)  # type: ignore[arg-type]
    for _ in range(WAITING_MAX + 100):
        hands.press(Chord("up"))
    assert len(hands._waiting) == WAITING_MAX

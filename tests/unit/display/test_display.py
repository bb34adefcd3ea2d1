"""`life.sandbox_display.Display`: turns of several clients, and where the pointer is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quicksand.base.errors import AgentUnreachableError, StateError
from quicksand.display import hands
from quicksand.display.hands import Hands, Held
from quicksand.display.in_guest import Pointer
from quicksand.life import sandbox_display as vm_display
from quicksand.life.sandbox_display import Display
from quicksand.life.sandbox_life import Life
from quicksand.records.layout import MachineDir

from tests.unit.display.test_hands import FakeQemu, fast

__all__ = ["fast"]

SIZE = (1280, 800)


class OneDisplay(Display):
    """The display of a machine whose QEMU is a fake."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.qemu = FakeQemu()
        self.found = MachineDir(place)
        self.sizes_asked = 0
        self.session_error: Exception | None = None
        life: Any = SimpleNamespace(
            name="box",
            entry=lambda: SimpleNamespace(run=SimpleNamespace(paused=False)),
            session=self._session,
        )
        super().__init__(cast("Life", life))
        real = Hands.turn

        @contextlib.asynccontextmanager
        async def turn(machine: MachineDir) -> AsyncIterator[Hands]:
            monitor: Any = self.qemu
            async with real(machine, monitor) as found:
                yield found

        monkeypatch.setattr(Hands, "turn", turn)

    def machine(self) -> MachineDir:
        return self.found

    async def size(self) -> tuple[int, int]:
        self.sizes_asked += 1
        return SIZE

    async def _session(self) -> Any:
        if self.session_error is not None:
            raise self.session_error
        return object()


@pytest.fixture
def display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OneDisplay:
    async def is_us(session: Any) -> bool:
        return False

    monkeypatch.setattr(vm_display, "has_other_layout", is_us)
    monkeypatch.setattr(vm_display, "LATE_S", 0.0)
    return OneDisplay(tmp_path, monkeypatch)


async def test_others_have_their_turn_within_a_long_text(
    display: OneDisplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands, "PIECE", 20)
    text = "0123456789" * 50
    typing = asyncio.ensure_future(display.type(text))
    while not display.qemu.typed:
        await asyncio.sleep(0)
    async with Hands.turn(display.found) as other:
        await other.move(3, 4)
        seen = len(display.qemu.typed)
    await typing
    assert 0 < seen < len(text) and seen % 20 == 0
    assert display.qemu.typed == text


async def test_calls_of_one_client_keep_their_order(
    display: OneDisplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands, "PIECE", 5)
    await asyncio.gather(display.type("a" * 50), display.type("b" * 50), display.type("c"))
    assert display.qemu.typed == "a" * 50 + "b" * 50 + "c"


async def test_a_drag_asks_once_for_the_size(display: OneDisplay) -> None:
    path = [(number, 5) for number in range(200)]
    await display.drag(path, "left", pixels=True)
    assert display.sizes_asked == 1
    assert display.qemu.presses == [("left", True), ("left", False)]


@pytest.mark.parametrize("is_us", [True, False])
async def test_another_layout_is_typed_by_the_guest(
    display: OneDisplay, monkeypatch: pytest.MonkeyPatch, is_us: bool
) -> None:
    typed: list[str] = []

    async def has_other_layout(session: Any) -> bool:
        return not is_us

    async def type_any(session: Any, text: str) -> None:
        typed.append(text)

    monkeypatch.setattr(vm_display, "has_other_layout", has_other_layout)
    monkeypatch.setattr("quicksand.display.any_text.type_any", type_any)
    await display.type("zy" * 150)
    assert "".join(typed) == ("" if is_us else "zy" * 150)
    assert display.qemu.typed == ("zy" * 150 if is_us else "")
    assert is_us or len(typed) == 2


async def test_a_guest_that_cannot_be_asked_is_typed_to(display: OneDisplay) -> None:
    display.session_error = AgentUnreachableError("it does not answer")
    await display.type("zy")
    assert display.qemu.typed == "zy"


@pytest.mark.parametrize(
    ("noted", "seen", "place"),
    [
        ((16384, 16384), Pointer(640, 400, *SIZE), (16384, 16384)),
        ((16384, 16384), Pointer(100, 400, *SIZE), Pointer(100, 400, *SIZE).place),
        ((16384, 16384), None, (16384, 16384)),
        (None, Pointer(0, 0, *SIZE), Pointer(0, 0, *SIZE).place),
    ],
)
async def test_the_guest_says_where_the_pointer_is(
    display: OneDisplay,
    monkeypatch: pytest.MonkeyPatch,
    noted: tuple[int, int] | None,
    seen: Pointer | None,
    place: tuple[int, int],
) -> None:
    async def find_pointer(session: Any) -> Pointer | None:
        return seen

    monkeypatch.setattr(vm_display, "find_pointer", find_pointer)
    if noted is not None:
        Held(position=noted).write(display.found)
    assert await display.position() == place


async def test_a_pointer_that_is_on_its_way(
    display: OneDisplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter((Pointer(0, 0, *SIZE), Pointer(640, 400, *SIZE)))

    async def find_pointer(session: Any) -> Pointer:
        return next(answers)

    monkeypatch.setattr(vm_display, "find_pointer", find_pointer)
    Held(position=(16384, 16384)).write(display.found)
    assert await display.position() == (16384, 16384)


async def test_where_nobody_knows(display: OneDisplay) -> None:
    display.session_error = AgentUnreachableError("it does not answer")
    with pytest.raises(StateError, match="not known where the pointer") as caught:
        await display.position()
    assert "mouse_move" in caught.value.hint

"""Keyboard and pointer against a QEMU that counts: nothing is lost, nothing stays pressed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import ConfigError, DisplayError, StateError
from quicksand.base.limits import BUTTONS
from quicksand.display import hands
from quicksand.display.hands import (
    ABS_MAX,
    Hands,
    Held,
    check_button,
    check_place,
    let_go_all,
    lift_all,
    may_hold,
)
from quicksand.qemu.qemu_hypervisor import Qemu
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import MachineDir
from quicksand_vnc import STROKES

QUEUE = 64
"""Buffers of a virtio-input device's queue (QEMU, hw/input/virtio-input.c)."""


class FakeQemu:
    """Drops what the guest has no buffer for, as QEMU does. The guest gives its buffers back when
    it is asked about them, ``pace`` at a time."""

    def __init__(
        self, *, pace: int = QUEUE, has_driver: bool = True, can_tell: bool = True
    ) -> None:
        self.pace, self.has_driver, self.can_tell = pace, has_driver, can_tell
        self.events: list[Any] = []
        self.viewers: list[Any] = []
        self.dropped = 0
        self.used = {"keyboard": 0, "tablet": 0}
        self.offered = {"keyboard": QUEUE, "tablet": QUEUE}
        self.down: set[str] = set()

    async def execute(self, command: str, **arguments: Any) -> Any:
        await asyncio.sleep(0)
        if command == "query-vnc-servers" and self.can_tell:
            return [{"id": "screen", "clients": self.viewers}, {"id": "port", "clients": []}]
        if command == "input-send-event":
            self._take(arguments["events"])
            return {}
        if not self.can_tell:
            raise StateError(f"QEMU refused {command}: CommandNotFound")
        device = arguments["path"].split("/")[3]
        match command:
            case "x-query-virtio-status":
                words = ["VIRTIO_CONFIG_S_ACKNOWLEDGE: Valid virtio device found"]
                if self.has_driver:
                    words.append("VIRTIO_CONFIG_S_DRIVER_OK: Driver setup and ready")
                return {"status": {"statuses": words}}
            case "x-query-virtio-queue-status":
                return {"last-avail-idx": self.used[device] % 0x10000}
            case "x-query-virtio-queue-element":
                self.offered[device] = min(
                    self.used[device] + QUEUE, self.offered[device] + self.pace
                )
                return {"avail": {"idx": self.offered[device] % 0x10000}}
        raise AssertionError(command)

    def _take(self, events: list[Any]) -> None:
        device = "keyboard" if events[0]["type"] == "key" else "tablet"
        if self.used[device] + len(events) + 1 > self.offered[device] and self.can_tell:
            self.dropped += len(events)
            return
        self.used[device] += len(events) + 1
        for event in events:
            data = event["data"]
            self.events.append(event)
            name = data["key"]["data"] if event["type"] == "key" else data.get("button")
            if name is not None:
                (self.down.add if data["down"] else self.down.discard)(name)

    async def close(self) -> None:
        raise AssertionError("it is not ours to close")

    @property
    def typed(self) -> str:
        """The text that a US keyboard has typed."""
        characters = {stroke: character for character, stroke in STROKES.items()}
        shift, text = False, ""
        for event in self.events:
            if event["type"] == "key":
                key, down = event["data"]["key"]["data"], event["data"]["down"]
                if key == "shift":
                    shift = down
                elif down:
                    text += characters[(key, shift)]  # type: ignore[index]
        return text

    @property
    def places(self) -> list[tuple[str, int]]:
        return [(e["data"]["axis"], e["data"]["value"]) for e in self.events if e["type"] == "abs"]

    @property
    def presses(self) -> list[tuple[str, bool]]:
        found = []
        for event in self.events:
            data = event["data"]
            if event["type"] == "key":
                found.append((data["key"]["data"], data["down"]))
            elif event["type"] == "btn":
                found.append((data["button"], data["down"]))
        return found


@pytest.fixture
def machine(tmp_path: Path) -> MachineDir:
    return MachineDir(tmp_path)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHARACTERS_PER_S", "MOVES_PER_S"):
        monkeypatch.setattr(hands, name, 1e9)
    monkeypatch.setattr(hands, "POLL_S", 0.0)
    for name in ("TAP_S", "BETWEEN_CLICKS_S", "READ_S"):
        monkeypatch.setattr(hands, name, 0.0)


def turn(machine: MachineDir, qemu: FakeQemu) -> contextlib.AbstractAsyncContextManager[Hands]:
    monitor: Any = qemu
    return Hands.turn(machine, monitor)


ASCII = "".join(chr(code) for code in range(0x20, 0x7F)) + "\n\t"


@pytest.mark.parametrize("pace", [1, 5, 64])
async def test_all_of_a_text_arrives_however_slow_the_guest(machine: MachineDir, pace: int) -> None:
    qemu, text = FakeQemu(pace=pace), ASCII * (2 if pace < QUEUE else 20)
    async with turn(machine, qemu) as keyboard:
        await keyboard.type(text)
    assert (qemu.typed, qemu.dropped, qemu.down) == (text, 0, set())


async def test_the_next_report_waits_until_the_guest_has_taken_the_last(
    machine: MachineDir,
) -> None:
    """Else a guest that was held up takes several at once, and its programs have no room."""
    waiting: list[int] = []

    class Noting(FakeQemu):
        def _take(self, events: list[Any]) -> None:
            waiting.append(self.used["keyboard"] + QUEUE - self.offered["keyboard"])
            super()._take(events)

    async with turn(machine, Noting(pace=5)) as keyboard:
        await keyboard.type("x" * 60)
    assert waiting == [0] * 10


async def test_counters_that_wrap(machine: MachineDir) -> None:
    qemu = FakeQemu()
    qemu.used["keyboard"], qemu.offered["keyboard"] = 0xFFF0, 0xFFF0 + QUEUE
    async with turn(machine, qemu) as keyboard:
        await keyboard.type("x" * 100)
    assert (qemu.typed, qemu.dropped) == ("x" * 100, 0)


async def test_a_qemu_that_cannot_be_asked_is_typed_to_all_the_same(machine: MachineDir) -> None:
    qemu = FakeQemu(can_tell=False)
    async with turn(machine, qemu) as keyboard:
        await keyboard.type("hello")
    assert qemu.typed == "hello"


async def test_a_guest_without_the_driver_is_an_error(machine: MachineDir) -> None:
    async with turn(machine, FakeQemu(has_driver=False)) as both:
        with pytest.raises(StateError, match="does not use its keyboard") as caught:
            await both.type("x")
        assert "virtio_input" in caught.value.hint
        with pytest.raises(StateError, match="does not use its pointer"):
            await both.move(0, 0)


async def test_a_guest_that_takes_nothing_is_given_up(
    machine: MachineDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands, "WAIT_S", 0.05)
    qemu = FakeQemu(pace=0)
    async with turn(machine, qemu) as keyboard:
        with pytest.raises(DisplayError, match="taken no input"):
            await keyboard.type("x" * 200)
    assert qemu.dropped == 0


async def test_a_chord_is_pressed_and_released_in_order(machine: MachineDir) -> None:
    qemu = FakeQemu()
    async with turn(machine, qemu) as keyboard:
        await keyboard.press(("ctrl", "alt", "t"), hold_s=0)
    down = [("ctrl", True), ("alt", True), ("t", True)]
    assert qemu.presses == [*down, ("t", False), ("alt", False), ("ctrl", False)]


async def test_what_was_held_before_a_chord_stays_held(machine: MachineDir) -> None:
    qemu = FakeQemu()
    async with turn(machine, qemu) as keyboard:
        await keyboard.hold(("shift",))
        await keyboard.press(("shift", "a"), hold_s=0)
    assert qemu.down == {"shift"}
    assert Held.read(machine).keys == ("shift",)


async def test_a_cancelled_chord_is_released(machine: MachineDir) -> None:
    qemu = FakeQemu()
    async with turn(machine, qemu) as keyboard:
        pressing = asyncio.ensure_future(keyboard.press(("ctrl", "c"), hold_s=60))
        while len(qemu.down) < 2:
            await asyncio.sleep(0)
        pressing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pressing
    assert qemu.down == set()
    assert Held.read(machine) == Held()


async def test_a_checkpoint_finds_nothing_pressed(machine: MachineDir) -> None:
    qemu = FakeQemu()
    async with turn(machine, qemu) as both:
        await both.hold(("shift", "a"))
        await both.hold_button("left")
    monitor: Any = qemu
    await let_go_all(machine, Qemu(monitor))
    assert qemu.down == set()
    before = len(qemu.events)
    await let_go_all(machine, Qemu(monitor))
    assert len(qemu.events) == before


@pytest.mark.parametrize("pace", [7, QUEUE])
async def test_a_guest_that_goes_on_finds_nothing_pressed(pace: int) -> None:
    """A viewer held these; nobody has noted it."""
    qemu = FakeQemu(pace=pace)
    qemu.down = {"shift", "a", "f12", "compose", "left", "extra"}
    monitor: Any = qemu
    await lift_all(Qemu(monitor))
    assert (qemu.down, qemu.dropped) == (set(), 0)
    assert not any(down for _, down in qemu.presses)


async def test_who_may_hold_something(machine: MachineDir) -> None:
    qemu = FakeQemu()
    monitor: Any = qemu
    assert not await may_hold(machine, Qemu(monitor))
    qemu.viewers = [{"host": ""}]
    assert await may_hold(machine, Qemu(monitor))
    qemu.viewers = []
    async with turn(machine, qemu) as both:
        await both.hold_button("left")
    assert await may_hold(machine, Qemu(monitor))
    await let_go_all(machine, Qemu(monitor))
    assert not await may_hold(machine, Qemu(monitor))
    qemu.can_tell = False
    assert await may_hold(machine, Qemu(monitor))


async def test_a_guest_that_cannot_be_released_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hands, "LIFT_S", 0.05)
    for qemu in (FakeQemu(has_driver=False), FakeQemu(pace=0)):
        monitor: Any = qemu
        await lift_all(Qemu(monitor))
        assert qemu.dropped == 0


async def test_a_checkpoint_does_not_wait_long_for_its_turn(
    machine: MachineDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands, "CHECKPOINT_TURN_S", 0.02)
    qemu = FakeQemu()
    monitor: Any = qemu
    async with turn(machine, qemu) as both:
        await both.hold(("shift",))
        with pytest.raises(StateError, match="another client"):
            await let_go_all(machine, Qemu(monitor))


async def test_clicks(machine: MachineDir) -> None:
    qemu = FakeQemu()
    async with turn(machine, qemu) as pointer:
        await pointer.move(5, 6)
        await pointer.click("right")
        await pointer.click("left", count=2)
    right, left = [("right", True), ("right", False)], [("left", True), ("left", False)]
    assert qemu.presses == [*right, *left, *left]
    assert qemu.places == [("x", 5), ("y", 6)]
    assert Held.read(machine).position == (5, 6)


async def test_a_drag_goes_all_the_way_in_small_steps(machine: MachineDir) -> None:
    qemu = FakeQemu(pace=3)
    path = [(0, 0), (ABS_MAX, 0), (ABS_MAX, ABS_MAX), (100, 7)]
    async with turn(machine, qemu) as pointer:
        await pointer.drag(path, "left")
    xs = [value for axis, value in qemu.places if axis == "x"]
    ys = [value for axis, value in qemu.places if axis == "y"]
    places = list(zip(xs, ys, strict=True))
    assert (places[0], places[-1]) == (path[0], path[-1])
    assert set(path) <= set(places)
    assert biggest(xs) <= hands.DRAG_STEP + 1 and biggest(ys) <= hands.DRAG_STEP + 1
    assert qemu.presses == [("left", True), ("left", False)]
    assert qemu.events[2]["type"] == "btn" and qemu.events[-1]["type"] == "btn"
    assert (qemu.dropped, Held.read(machine).position) == (0, (100, 7))


def biggest(values: list[int]) -> int:
    return max(abs(b - a) for a, b in pairwise(values))


@pytest.mark.parametrize(("notches", "wheel"), [(3, "wheel-down"), (-2, "wheel-up")])
async def test_the_wheel(machine: MachineDir, notches: int, wheel: str) -> None:
    qemu = FakeQemu()
    async with turn(machine, qemu) as pointer:
        await pointer.scroll(notches)
    assert qemu.presses == [(wheel, True), (wheel, False)] * abs(notches)


async def test_one_client_at_a_time(machine: MachineDir) -> None:
    qemu = FakeQemu(pace=7)

    async def type_one(text: str) -> None:
        async with turn(machine, qemu) as keyboard:
            await keyboard.type(text)

    texts = [character * 50 for character in "abcdefgh"]
    await asyncio.gather(*map(type_one, texts))
    assert sorted(pieces(qemu.typed)) == texts


def pieces(text: str) -> Iterable[str]:
    return [text[start : start + 50] for start in range(0, len(text), 50)]


async def test_a_turn_is_waited_for_only_so_long(
    machine: MachineDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands, "TURN_S", 0.02)
    async with turn(machine, FakeQemu()):
        with pytest.raises(StateError, match="another client"):
            async with turn(machine, FakeQemu()):
                pass


async def test_a_machine_that_has_ended(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="not running"):
        async with turn(MachineDir(tmp_path / "gone"), FakeQemu()):
            pass


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"position": [1], "buttons": [], "keys": []}',
        '{"position": [1, 99999], "buttons": [], "keys": []}',
        '{"position": null, "buttons": ["self-destruct"], "keys": []}',
        '{"position": null, "buttons": [], "keys": ["hyper"]}',
        '{"position": 7, "buttons": 7, "keys": 7}',
    ],
)
def test_a_damaged_record_is_passed_over(machine: MachineDir, text: str) -> None:
    machine.input_record.write_text(text)
    assert Held.read(machine) == Held()


@pytest.mark.parametrize("value", [-1, ABS_MAX + 1, 1.5, True, None, "1"])
def test_places_have_limits(value: object) -> None:
    with pytest.raises(ConfigError, match="no place"):
        check_place(value)


def test_buttons() -> None:
    assert [check_button(button) for button in BUTTONS] == [*BUTTONS]
    assert check_button("LEFT") == "left"
    for button in ("wheel-up", "", 1):
        with pytest.raises(ConfigError, match="no button"):
            check_button(button)


def test_the_fake_is_used_as_the_real_one_is() -> None:
    assert hasattr(Monitor, "execute") and hasattr(Monitor, "close")

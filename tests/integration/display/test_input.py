"""Keyboard, pointer and screen of a real machine: what the guest's kernel says that it got."""

from __future__ import annotations

import asyncio
import io
import random

import pytest
from PIL import Image
from quicksand import Sandbox
from quicksand.base.errors import (
    ConfigError,
    DisplayError,
    DisplayTimeoutError,
    MachineError,
    NoDisplayError,
    StateError,
)
from quicksand.base.paths import Paths
from quicksand.qemu.process import StartedMachine
from quicksand.records.registry import Registry
from quicksand.warm import template_maker
from quicksand_vnc import STROKES

from tests.integration.display.reports import (
    BUTTONS,
    EV_ABS,
    EV_KEY,
    EV_REL,
    LEFTSHIFT,
    Report,
    Reports,
    places_of,
    text_of,
)

pytestmark = pytest.mark.vm

LEFTCTRL, LEFTALT, KEY_T, KEY_F12 = 29, 56, 20, 88
F12_UP = (EV_KEY, KEY_F12, 0)
"""Pressed last, to know that all has arrived."""

SHIFT_L = 0xFFE1
"""The X11 keysym of the left shift key."""

LEFT_UP = (EV_KEY, 272, 0)
REL_WHEEL = 8
ASCII = "".join(chr(code) for code in range(0x20, 0x7F)) + "\n\t\b"


async def all_of_pointer(vm: Sandbox, reports: Reports) -> list[Report]:
    """What the pointer has done up to now; then it is moved to a place of its own."""
    await vm.mouse_move(30001, 30001)
    return await reports.until((EV_ABS, 1, 30001))


async def test_all_that_is_typed_and_pointed_at_arrives(vm: Sandbox, reports: Reports) -> None:
    async def typed(text: str) -> str:
        await vm.type_text(text)
        await vm.press_key("f12")
        return text_of(await reports.until(F12_UP))

    assert await typed(ASCII) == ASCII
    long = "".join(random.Random(1).choices(sorted(STROKES), k=300))
    assert await typed(long) == long

    await vm.press_key("ctrl", "alt", "t")
    seen = await reports.until((EV_KEY, LEFTCTRL, 0))
    # A key that a busy host holds for long is repeated by the guest (value 2), as it should be.
    keys = [report[2:] for report in seen if report.value in (0, 1)]
    assert keys == [
        (LEFTCTRL, 1),
        (LEFTALT, 1),
        (KEY_T, 1),
        (KEY_T, 0),
        (LEFTALT, 0),
        (LEFTCTRL, 0),
    ]

    await vm.mouse_move(1, 32767)
    await vm.mouse_click(double=True)
    seen = await reports.until(LEFT_UP) + await reports.until(LEFT_UP)
    assert places_of(seen)[-1] == (1, 32767)
    assert [r.value for r in seen if r.kind == EV_KEY] == [1, 0, 1, 0]
    assert await vm.query_mouse_position() == (1, 32767)

    for button in ("left", "right", "middle"):
        await vm.mouse_click(button)
    await vm.mouse_scroll(-2)
    await vm.mouse_scroll(3)
    pointer = await all_of_pointer(vm, reports)
    clicked = [BUTTONS[r.code] for r in pointer if r.kind == EV_KEY and r.value]
    assert clicked == ["left", "right", "middle"]
    wheel = [r.value for r in pointer if r.kind == EV_REL and r.code == REL_WHEEL]
    assert wheel == [1, 1, -1, -1, -1]

    await vm.mouse_drag((1000, 1000), (20000, 1000), (20000, 30000))
    dragged = await reports.until(LEFT_UP)
    down = next(n for n, report in enumerate(dragged) if report.kind == EV_KEY)
    assert places_of(dragged[:down])[-1] == (1000, 1000)
    places = places_of(dragged)
    assert {(20000, 1000), (20000, 30000)} <= set(places) and places[-1] == (20000, 30000)


async def test_a_thousand_events_of_many_clients(vm: Sandbox, reports: Reports) -> None:
    """Whole gestures, in some order, and nothing lost."""
    same = Sandbox.attach(vm.name)
    try:
        words = [f"{number:03}-{'xyz'[number % 3] * 4} " for number in range(60)]
        boxes = [vm, same]
        await asyncio.gather(
            *(boxes[number % 2].type_text(word) for number, word in enumerate(words)),
            *(boxes[number % 2].mouse_click("middle") for number in range(20)),
            *(vm.mouse_move(number, number) for number in range(40)),
            *(vm.screenshot() for _ in range(3)),
        )
        await vm.press_key("f12")
        text = text_of(await reports.until(F12_UP))
        pointer = await all_of_pointer(vm, reports)
    finally:
        same.close()
    assert sorted(text[start : start + 9] for start in range(0, len(text), 9)) == sorted(words)
    clicks = [r for r in pointer if r.kind == EV_KEY]
    assert [(r.code, r.value) for r in clicks] == [(274, 1), (274, 0)] * 20


async def test_pixels_and_pictures(vm: Sandbox, reports: Reports) -> None:
    width, height = await vm.query_display_size()
    for x, y in ((0, 0), (width - 1, height - 1), (width // 2, 7), (1, height // 3)):
        await vm.mouse_move_px(x, y)
        found = await vm.query_mouse_position()
        # However a guest makes a pixel of it: of all of the range, or of its last value.
        assert (found[0] * width // 32768, found[1] * height // 32768) == (x, y)
        assert abs(found[0] * (width - 1) / 32767 - x) <= 1
    with pytest.raises(ConfigError, match="no pixel of the screen"):
        await vm.mouse_move_px(width, 0)

    with Image.open(io.BytesIO(await vm.screenshot())) as image:
        assert (image.format, image.size) == ("PNG", (width, height))
        whole = image.convert("RGB")
    part = await vm.screenshot(region=(10, 20, 30, 40), format="image")
    assert part.tobytes() == whole.crop((10, 20, 40, 60)).tobytes()
    async with vm.display() as client, vm.display() as other:
        await client.next_update()
        await other.next_update()
        assert other.frame == client.frame
        pixels = Image.frombytes("RGBX", whole.size, bytes(client.frame.pixels)).convert("RGB")
    assert pixels.tobytes() == whole.tobytes()
    # This guest drives no screen, so what it shows counts for nothing.
    for until, text in (("stable", None), ("change", None), ("text", "Guest")):
        with pytest.raises(DisplayTimeoutError, match="not initialised by the guest"):
            await vm.wait_for_screen(until, timeout=0.5, quiet=0.1, text=text)


async def test_past_present_and_copies(
    vm: Sandbox, reports: Reports, places: Paths, patient: None
) -> None:
    assert vm.vnc_port is not None
    before = await greeting(vm.vnc_port)
    await vm.key_down("shift", "a")
    await vm.mouse_down()
    async with vm.display() as client:
        await client.next_update()
        shown = await vm.screenshot(format="image")
        await vm.checkpoint("one")
        small = await vm.checkpoint_screen("one")
        assert small is not None
        with Image.open(io.BytesIO(small), formats=("PNG",)) as image:
            assert max(image.size) == min(320, max(shown.size))
        keys = [report[1:] for report in await reports.until((EV_KEY, LEFTSHIFT, 0))]
        assert (EV_KEY, 30, 0) in keys
        await reports.until(LEFT_UP)
        await vm.mouse_move(3, 4)
        await vm.revert("one")
        assert before == await greeting(vm.vnc_port) == b"RFB 003.008\n\x01\x02"
        await client.key(SHIFT_L, False)  # a viewer stays
    with pytest.raises(StateError, match="not known where the pointer"):
        await vm.query_mouse_position()
    (copy,) = await vm.clone()
    try:
        (first,) = copy.checkpoints()
        assert await copy.checkpoint_screen(first.id)
        assert copy.vnc_port not in (None, vm.vnc_port)
        assert copy.vnc_password != vm.vnc_password
        for box in (vm, copy):
            async with Reports(box) as after:
                await box.type_text("Again!")
                await box.mouse_click()
                await box.press_key("f12")
                assert text_of(await after.until(F12_UP)) == "Again!"
            assert len(await box.screenshot()) > 100
    finally:
        await copy.kill()
    with pytest.raises(DisplayError, match="does not have what types it: xdotool"):
        await vm.type_text("é")
    await vm.pause()
    assert len(await vm.screenshot()) > 100
    with pytest.raises(StateError, match="is paused"):
        await vm.type_text("x")


async def test_what_a_viewer_holds_is_in_no_copy_of_the_guest(
    vm: Sandbox, places: Paths, patient: None
) -> None:
    async with Reports(vm) as reports, vm.display() as client:
        await client.next_update()
        await client.key(SHIFT_L, True)
        await client.pointer(5, 5, 1)
        await reports.until((EV_KEY, LEFTSHIFT, 1))
        await reports.until((EV_KEY, 272, 1))
        await vm.checkpoint("held")
        await vm.revert("held")
    (copy,) = await vm.clone(at="held")
    try:
        for box in (vm, copy):
            async with Reports(box) as after:
                # If a key were held down still, the kernel would not report that it is pressed.
                await box.type_text("A")
                await box.mouse_click()
                await box.press_key("f12")
                assert text_of(await after.until(F12_UP)) == "A"
                pointer = [r for r in await after.until(LEFT_UP) if r.kind == EV_KEY]
            assert [(r.code, r.value) for r in pointer] == [(272, 1), (272, 0)]
    finally:
        await copy.kill()


async def greeting(port: int) -> bytes:
    """What a viewer at a port is told: the version, and that it needs a password (RFC 6143)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        said = await reader.readexactly(12)
        writer.write(said)
        return said + await reader.readexactly(2)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_machine_without_a_screen_says_how_to_get_one(places: Paths) -> None:
    async with Sandbox(image="debian") as vm:
        with pytest.raises(NoDisplayError) as caught:
            await vm.screenshot()
        assert "enable_display=True" in caught.value.hint
        with pytest.raises(NoDisplayError):
            await vm.type_text("x")
        assert "-vnc" not in vm.qemu_command


@pytest.mark.soak
async def test_a_start_that_does_not_see_the_desktop_come(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = asyncio.Event()

    async def with_desktop(machine: StartedMachine, progress: object) -> StartedMachine:
        waits.set()
        await asyncio.Event().wait()
        return machine

    registry = Registry(places)

    async def cancel_start(vm: Sandbox) -> None:
        waits.clear()
        with monkeypatch.context() as patched:
            patched.setattr(template_maker, "with_desktop", with_desktop)
            starting = asyncio.ensure_future(vm.start())
            await waits.wait()
            # Others see it, and can use it.
            same = Sandbox.attach("late")
            assert (await same.execute("true", timeout=60)).exit_code == 0
            same.close()
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        assert not vm.is_running

    async def stop_meanwhile(machine: StartedMachine, progress: object) -> StartedMachine:
        same = Sandbox.attach("late")
        await same.kill()
        await machine.link.session()  # raises
        return machine

    with monkeypatch.context() as patched:
        patched.setattr(template_maker, "with_desktop", stop_meanwhile)
        vm = Sandbox(image="debian", name="late", enable_display=True, warm=False)
        with pytest.raises(MachineError):
            await vm.start()
    (entry,) = registry.list()
    assert not entry.is_live
    await asyncio.to_thread(registry.remove, entry.id)

    vm = Sandbox(image="debian", name="late", enable_display=True, warm=False)
    await cancel_start(vm)
    assert registry.list() == []
    await vm.start()
    await vm.stop()
    await cancel_start(vm)
    (entry,) = registry.list()
    assert not entry.is_live
    await vm.start()
    assert (await vm.execute("true", timeout=60)).exit_code == 0
    await vm.kill()


def test_the_reports_are_read_right() -> None:
    down, up = Report("keyboard", EV_KEY, 30, 1), Report("keyboard", EV_KEY, 30, 0)
    shift = Report("keyboard", EV_KEY, LEFTSHIFT, 1)
    assert text_of([down, up, shift, down, up]) == "aA"

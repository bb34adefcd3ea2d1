"""The screen of a guest that is reverted shows what it showed at the checkpoint, to viewers that
were there and to those that come; what they hold down is released."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest
from PIL import Image
from quicksand import Sandbox
from quicksand.base.errors import DisplayError
from quicksand.display.place import RfbClient

from tests.integration.display.reports import EV_KEY, Reports, text_of
from tests.integration.guests import say
from tests.integration.snapshots.witnesses import Witness

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("patient"), pytest.mark.timeout(300)]

ORANGE, BLUE, GREEN = "ff8000", "0000ff", "00ff00"

SHIFT_L, CONTROL_L = 0xFFE1, 0xFFE3
"""X11 keysyms."""

KEY_F12, BUTTON_LEFT, LEFTCTRL = 88, 272, 29


@pytest.fixture(scope="module")
def vm_options() -> dict[str, Any]:
    return {"enable_display": True}


@pytest.fixture
async def painter(vm: Sandbox) -> AsyncIterator[Witness]:
    painter = await Witness.start(vm, "painting")
    yield painter
    await painter.end()


async def paint(painter: Witness, colour: str) -> None:
    await painter.tell(colour)
    await painter.until(lambda now: now["colour"] == colour, what=f"a screen that is {colour}")


def colour_of(image: Image.Image) -> str:
    """The one colour of a picture."""
    pixels = image.convert("RGB").tobytes()
    assert pixels == pixels[:3] * (len(pixels) // 3), "it has several"
    return pixels[:3].hex()


async def shows(vm: Sandbox, colour: str) -> None:
    assert colour_of(await vm.screenshot(format="image")) == colour


class Viewer:
    """Looks all the time; if it is sent away, it comes again, as viewers do."""

    def __init__(self, vm: Sandbox) -> None:
        self._vm = vm
        self._seen = ""
        self.connections = 0
        self._more = asyncio.Condition()
        self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            with contextlib.suppress(DisplayError):  # it has ended: the next one is another
                async with self._vm.display() as client:
                    self.connections += 1
                    while True:
                        await client.next_update()
                        await self._note(client)

    async def _note(self, client: RfbClient) -> None:
        pixels = bytes(client.frame.pixels)
        pixel = pixels[:4]
        async with self._more:
            self._seen = pixel[:3].hex() if pixels == pixel * (len(pixels) // 4) else "mixed"
            self._more.notify_all()

    async def sees(self, colour: str) -> None:
        async with asyncio.timeout(60), self._more:
            await self._more.wait_for(lambda: self._seen == colour)

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))


async def test_everybody_sees_what_was_there(vm: Sandbox, painter: Witness) -> None:
    await vm.checkpoint("booted")
    await vm.revert("booted", keep_now=False)  # the first one may need another QEMU
    await vm.delete_checkpoint("booted")
    viewer = Viewer(vm)
    try:
        await paint(painter, ORANGE)
        await viewer.sees(ORANGE)
        await vm.checkpoint("orange")
        await paint(painter, BLUE)
        await viewer.sees(BLUE)
        await vm.revert("orange")
        await shows(vm, ORANGE)
        await viewer.sees(ORANGE)
        await paint(painter, GREEN)  # what drives the screen goes on
        await viewer.sees(GREEN)
        await vm.undo()
        await shows(vm, BLUE)
        await viewer.sees(BLUE)
        assert viewer.connections == 1
    finally:
        await viewer.leave()
    for made in vm.checkpoints():
        small = await vm.checkpoint_screen(made.id)
        assert small is not None
        with Image.open(io.BytesIO(small), formats=("PNG",)) as image:
            assert made.auto or colour_of(image) == ORANGE
    (clone,) = await vm.clone(at="orange")
    try:
        await shows(clone, ORANGE)
    finally:
        await clone.kill()


async def test_what_was_held_down_since_is_released(vm: Sandbox) -> None:
    await say(vm, "modprobe -a virtio_input evdev")
    await vm.checkpoint("calm")
    async with Reports(vm) as reports, vm.display() as client:
        await client.next_update()
        await client.key(SHIFT_L, True)
        await client.key(CONTROL_L, True)
        await client.pointer(5, 5, 1)
        await reports.until((EV_KEY, LEFTCTRL, 1))
        await reports.until((EV_KEY, BUTTON_LEFT, 1))
        await vm.key_down("alt")
        await vm.revert("calm")
    for _ in range(2):
        async with Reports(vm) as after:
            # If a key were held down still, the kernel would not report that it is pressed.
            await vm.press_key("ctrl", "shift", "alt")
            await vm.type_text("aA")
            await vm.mouse_click()
            await vm.press_key("f12")
            seen = await after.until((EV_KEY, KEY_F12, 0))
            pressed = [report.code for report in seen if report.kind == EV_KEY and report.value]
            assert pressed[:3] == [LEFTCTRL, 42, 56]
            assert text_of(seen) == "aA"
            pointer = [r for r in await after.until((EV_KEY, BUTTON_LEFT, 0)) if r.kind == EV_KEY]
            assert [r.value for r in pointer] == [1, 0]
        await vm.undo()  # nor in what was kept of the present

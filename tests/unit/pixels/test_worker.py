"""The process that encodes: how much of VNC's picture it takes for the guest's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from quicksand.base.errors import StateError
from quicksand.display import screendump as display
from quicksand.display.place import RfbClient
from quicksand.records.layout import MachineDir
from quicksand_pixels.ways import Colours
from quicksand_vnc import Framebuffer, Rect

from quicksand_tui.door import screen_worker
from quicksand_tui.door.screen_messages import TILES, Drawn, Kind, Order
from quicksand_tui.door.screen_worker import Worker
from tests.each import each
from tests.unit.pixels.decoders import KittyImages
from tests.unit.pixels.fake_desktop import FakeDesktop
from tests.unit.pixels.screens import desktop

ORDER = Order(way=TILES, first_id=1 << 16, grid=(60, 20, 10, 20), sharp=True)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[Drawn]:
    found: asyncio.Queue[Drawn] = asyncio.Queue()

    async def send(kind: Kind, data: bytes) -> None:
        assert kind is Kind.DRAWN
        found.put_nowait(Drawn.parse(data))

    monkeypatch.setattr(screen_worker, "_send", send)
    return found


@asynccontextmanager
async def working(path: Path) -> AsyncIterator[Worker]:
    async with RfbClient.open(path) as client:
        worker = Worker(client, MachineDir(path.parent), Colours.TRUE, ascii_only=False)
        worker.take(ORDER)
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            task.cancel()
            await asyncio.wait({task})


async def test_the_columns_that_vnc_adds_are_no_part_of_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: asyncio.Queue[Drawn]
) -> None:
    widths = iter([600, 320])

    async def true_width(frame: Framebuffer, machine: MachineDir) -> int:
        assert machine.root == tmp_path
        return next(widths)

    monkeypatch.setattr(screen_worker, "true_width", true_width)
    picture = Image.new("RGB", (608, 400), "red")
    picture.paste(desktop(600, 400), (0, 0))
    with FakeDesktop(tmp_path / "vnc.sock", picture) as guest:
        async with working(guest.path) as worker:
            first = await asyncio.wait_for(drawn.get(), 60)
            assert (first.width, first.height, first.is_whole) == (600, 400, True)
            shown = KittyImages((10, 20))
            shown.feed(first.data)
            right = shown.images[(1 << 16) + 3]  # the last tile of the first row
            assert right.size == (600 - 3 * 160, 160)
            assert right.tobytes() == desktop(600, 400).crop((480, 0, 600, 160)).tobytes()
            # It is asked for again for another size only.
            picture.paste("lime", (0, 0, 40, 40))
            guest.show(picture)
            worker.take(replace(ORDER, drained=1))
            second = await asyncio.wait_for(drawn.get(), 60)
            assert (second.width, second.is_whole) == (600, False)
            guest.show(Image.new("RGB", (320, 200), "blue"))
            worker.take(replace(ORDER, drained=2))
            third = await asyncio.wait_for(drawn.get(), 60)
            assert (third.width, third.height, third.is_whole) == (320, 200, True)


def sized(size: tuple[int, int]) -> Callable[[MachineDir], object]:
    async def take_size(_: MachineDir) -> tuple[int, int]:
        return size

    return take_size


@each(
    ("frame", "size", "width"),
    [
        ((1408, 900), (1400, 900), 1400),
        ((1408, 900), (1408, 900), 1408),
        ((1408, 900), (1300, 900), 1408),  # another mode, a moment later
        ((1408, 900), (1400, 800), 1408),
        ((5120, 2160), (8192, 4096), 5120),  # of which VNC shows a part
        ((1400, 900), (1300, 900), 1400),  # is not even asked for
    ],
)
async def test_the_true_width(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    frame: tuple[int, int],
    size: tuple[int, int],
    width: int,
) -> None:
    monkeypatch.setattr(display, "take_size", sized(size))
    assert await display.true_width(Framebuffer.blank(*frame), MachineDir(tmp_path)) == width


async def test_a_machine_that_cannot_be_asked_has_the_width_of_vnc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def fail(_: MachineDir) -> tuple[int, int]:
        raise StateError("it is not running")

    monkeypatch.setattr(display, "take_size", fail)
    assert await display.true_width(Framebuffer.blank(1408, 9), MachineDir(tmp_path)) == 1408
    monkeypatch.setattr(display, "WIDTH_S", 0.01)
    monkeypatch.setattr(display, "take_size", lambda _: asyncio.Event().wait())
    assert await display.true_width(Framebuffer.blank(1408, 9), MachineDir(tmp_path)) == 1408


async def test_a_screen_that_is_covered_is_not_asked_for_changes(tmp_path: Path) -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def next_update(*, brisk_s: float | None) -> list[Rect]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return []

    client: Any = SimpleNamespace(next_update=next_update, frame=Framebuffer.blank(16, 16))
    worker = Worker(client, MachineDir(tmp_path), Colours.TRUE, ascii_only=False)
    worker.take(ORDER)
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        await asked.wait()
        asked.clear()
        worker.take(replace(ORDER, grid=(0, 0, 10, 20)))
        await ended.wait()
        assert not asked.is_set()
        worker.take(ORDER)
        await asked.wait()
    task.cancel()
    await asyncio.wait({task})

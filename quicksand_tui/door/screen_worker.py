"""The process that encodes a guest's screen, so that encoding never delays a key: ``python -m
quicksand_tui.door.screen_worker PLACE COLOURS GLYPHS``, of which the first says where the screen is
(`quicksand.display.place`).

Orders come on standard input, messages go to standard output
(`quicksand_tui.door.screen_messages`). It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import io
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.errors import DisplayError
from quicksand.display.place import Place, RfbClient, open_screen, parse_place
from quicksand.display.screendump import true_width
from quicksand.qemu.keeper_parts.bounds import no_core_files
from quicksand_pixels import Colours, Rect, Way
from quicksand_pixels.encoding import (
    IMAGE_IDS,
    Canvas,
    Frame,
    HalfCells,
    KittyEncoder,
    PackedRows,
    PlaceholderEncoder,
    SixelEncoder,
)
from quicksand_vnc.client import BRISK_S

from quicksand_tui.door.screen_messages import ROWS, TILES, Drawn, Kind, Order, pack_message

if TYPE_CHECKING:
    from quicksand_pixels import Viewport
    from quicksand_pixels.encoding import Encoder

RESTING_S = 1.0
"""The least seconds between pictures from which QEMU is not asked to look for changes more often
than it does by itself."""


class Worker:
    """Draws the changes of one screen, one picture at a time."""

    def __init__(
        self, client: RfbClient, place: Place, colours: Colours, *, ascii_only: bool
    ) -> None:
        self._client = client
        self._place = place
        self._colours = colours
        self._ascii = ascii_only
        self._first_id = secrets.randbelow((1 << 31) // IMAGE_IDS) * IMAGE_IDS + 2
        self._order = Order()
        self._ordered = asyncio.Event()
        self._canvas: Canvas | None = None
        self._drawn_for = Order()
        """The order of the last picture."""
        self._view: Viewport | None = None
        self._sent = 0
        self._damage: list[Rect] = []
        self._next_at = 0.0
        self._saved = ""
        self._has_picture = False
        """The frame is the guest's screen, no longer blank."""
        self._seen = (0, 0)
        self._width = 0
        """The columns of the frame that are the guest's."""

    def take(self, order: Order) -> None:
        self._order = order
        self._ordered.set()

    async def run(self) -> None:
        """Draws until the screen is gone; raises DisplayError."""
        update: asyncio.Task[list[Rect]] | None = None
        try:
            while True:
                self._ordered.clear()
                if self._has_picture and self._order.save not in ("", self._saved):
                    await self._save(self._order.save)
                if self._may_draw():
                    await self._draw()
                if update is not None and not self._is_seen:
                    update.cancel()  # which loses nothing
                    await asyncio.wait([update])
                    update = None
                if update is None and self._wants_update():
                    update = asyncio.create_task(self._next_update())
                update = await self._wait(update)
        finally:
            if update is not None:
                update.cancel()
                await asyncio.wait([update])

    async def _next_update(self) -> list[Rect]:
        rests = self._order.interval_s >= RESTING_S
        found = await self._client.next_update(brisk_s=None if rests else BRISK_S)
        return [Rect(*rect) for rect in found]

    async def _wait(
        self, update: asyncio.Task[list[Rect]] | None
    ) -> asyncio.Task[list[Rect]] | None:
        """Waits for an order, a change, or the moment of the next picture."""
        ordered = asyncio.create_task(self._ordered.wait())
        waiting: set[asyncio.Task[bool] | asyncio.Task[list[Rect]]] = {ordered}
        if update is not None:
            waiting.add(update)
        left = self._next_at - asyncio.get_running_loop().time()
        timeout = left if self._damage and left > 0 and self._is_drained else None
        try:
            await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ordered.cancel()
        if update is not None and update.done():
            self._damage += update.result()
            self._has_picture = True
            return None
        return update

    @property
    def _is_drained(self) -> bool:
        return self._order.drained >= self._sent

    def _wants_update(self) -> bool:
        """Whether changes would be drawn: changes that are not asked for cost QEMU nothing."""
        return self._is_seen and self._is_drained and not self._damage

    @property
    def _is_seen(self) -> bool:
        grid = self._order.grid
        return self._order.save != self._saved or (grid[0] > 0 and grid[1] > 0)

    def _may_draw(self) -> bool:
        if not (self._is_drained and self._has_picture):
            return False
        if self._is_new_view():
            return True
        return bool(self._damage) and asyncio.get_running_loop().time() >= self._next_at

    def _is_new_view(self) -> bool:
        order, last = self._order, self._drawn_for
        frame = self._client.frame
        return (
            order.again != last.again
            or _canvas_of(order) != _canvas_of(last)
            or order.grid != last.grid
            or (frame.width, frame.height) != self._seen
            or order.view(self._width, frame.height) != self._view
        )

    async def _draw(self) -> None:
        order, damage = self._order, self._damage
        # From here on: encoding takes a part of the interval, and does not come on top of it.
        next_at = asyncio.get_running_loop().time() + order.interval_s
        is_whole = self._is_new_view()
        frame = await self._frame()
        view = order.view(frame.width, frame.height)
        before = b""
        last = self._drawn_for
        if self._canvas is None or _canvas_of(order) != _canvas_of(last):
            before = self._canvas.forget() if self._canvas is not None else b""
            self._canvas = Canvas(self._encoder(order), order.corner)
        elif is_whole and order.again != last.again:
            before = self._canvas.forget()
        self._damage, self._drawn_for, self._view = [], order, view
        if view is None:
            data = before + self._canvas.forget()
        else:
            data = before + self._canvas.draw(frame, view, damage)
        if data or is_whole:
            self._sent += 1
            self._next_at = next_at
            drawn = Drawn(frame.width, frame.height, is_whole, data, order.way == TILES)
            await _send(Kind.DRAWN, drawn.pack())

    async def _frame(self) -> Frame:
        """Returns the guest's screen, without the columns that VNC adds."""
        found = self._client.frame
        if (found.width, found.height) != self._seen:
            self._width = await true_width(found, self._place)
            self._seen = (found.width, found.height)
        return Frame(self._width, found.height, found.pixels, 4 * found.width)

    def _encoder(self, order: Order) -> Encoder:
        cell = (order.grid[2], order.grid[3])
        if order.way == ROWS:
            return PackedRows()
        if order.way == TILES:
            return PlaceholderEncoder(cell, first_id=order.first_id)
        if order.way == Way.KITTY.value:
            return KittyEncoder(cell, first_id=self._first_id)
        if order.way == Way.SIXEL.value:
            return SixelEncoder(cell)
        return HalfCells(self._colours, ascii_only=self._ascii)

    async def _save(self, path: str) -> None:
        """Writes the screen to a new file."""
        self._saved = path
        frame = await self._frame()
        why = ""
        try:
            encoded = io.BytesIO()
            picture = frame.image()
            picture.convert("RGB").save(encoded, "PNG")
            _write_new(Path(path), encoded.getbuffer())
        except (OSError, ValueError) as error:
            why = str(error)
        await _send(Kind.SAVED, why.encode())


def _canvas_of(order: Order) -> tuple[object, ...]:
    """Returns the part of an order on which the canvas depends."""
    return order.way, order.first_id, order.corner, order.grid[2:]


def _write_new(path: Path, data: memoryview) -> None:
    """Writes a new file, whole or not at all. Raises OSError."""
    with path.open("xb") as file:
        try:
            file.write(data)
            file.flush()
        except OSError:
            path.unlink(missing_ok=True)
            raise


async def _send(kind: Kind, data: bytes) -> None:
    """Writes a message; the reader is the viewer, which reads at once."""
    await asyncio.to_thread(_write_all, pack_message(kind, data))


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


async def _take_orders(worker: Worker) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        worker.take(Order.parse(line))


async def _work(where: str, colours: str, glyphs: str) -> None:
    place = parse_place(where)
    try:
        async with open_screen(place) as client:
            worker = Worker(client, place, Colours(colours), ascii_only=glyphs == "ascii")
            tasks = {
                asyncio.create_task(_take_orders(worker)),
                asyncio.create_task(worker.run()),
            }
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            for task in done:
                task.result()
    except DisplayError as error:
        await _send(Kind.FAILED, str(error).encode())


if __name__ == "__main__":
    no_core_files()
    asyncio.run(_work(*sys.argv[1:4]))

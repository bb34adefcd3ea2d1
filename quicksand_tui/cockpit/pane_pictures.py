"""Brings the pictures in panes to the user's terminal, as images that text shows.

A picture is cut into tiles, each an image of its own. Only visible tiles are sent, when the line
has room, one batch at a time: the next batch goes when the terminal has drawn the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, finalize, ref

from quicksand_driver.textual_private import driver_of
from quicksand_panes.widgets import PictureScreen
from quicksand_pixels import (
    MARKS,
    PLACEHOLDER,
    PLACEHOLDER_IDS,
    TILE_COLUMNS,
    TILE_ROWS,
    PlaceholderCell,
    Way,
    delete_images,
    take_ids,
)
from quicksand_pixels.encoding import transmit

from quicksand_tui.cockpit.text_pictures import cell_size, way_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from quicksand_driver.textual_private import RawDriver
    from quicksand_pixels.decoding import Part, Placed
    from textual.widget import Widget

    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.kit.outer_terminal import OuterTerminal

ROOM_FIRST: Final = 16 * 1024
ROOM_MIN: Final = 2 * 1024
ROOM_MAX: Final = 256 * 1024
"""Bytes of one batch: the first has the most, later ones have as many between the two as the line
takes."""
SHARE_S: Final = 0.1
"""The most seconds that a batch may take on the line; its tiles are coarser if they have to be."""
ENCODING_S: Final = 0.01
"""Seconds after which no further tile is encoded for a batch: keys wait meanwhile."""
COARSEST: Final = 8
"""The largest divisor of a tile's pixels."""
BUSY_S: Final = 0.05
"""Seconds until the next look whether the line is free."""
PATIENCE_S: Final = 2.0
"""Seconds to wait for the terminal's answer that it has drawn."""


@dataclass(eq=False)
class _Sheet:
    """The tiles of one picture."""

    placed: ref[Placed]
    first_id: int
    across: int
    """Tiles in a row."""
    tiles: int
    """The number of its ids, a power of two."""
    sent: dict[int, int] = field(default_factory=dict)
    """The tiles that the terminal has, and the divisor of their pixels."""
    had: set[int] = field(default_factory=set)
    """All tiles that it ever got: after a change the terminal may have them or not."""
    asked: int = 0
    """A number that grows with each tile that is missed, from the time of the last miss."""

    @property
    def ids(self) -> set[int]:
        """The images that the terminal may have."""
        return {self.first_id + tile for tile in self.had}


class PanePictureScreen(PictureScreen):
    """The terminal of the user of this app."""

    def __init__(
        self, widget: Widget, settings: Settings, terminal: OuterTerminal, *, ascii_only: bool
    ) -> None:
        """``widget`` has the panes in it."""
        super().__init__(ascii_only=ascii_only)
        self._widget = widget
        self._settings = settings
        self._terminal = terminal
        self._way = Way.HALF
        self._sheets: WeakKeyDictionary[Placed, _Sheet] = WeakKeyDictionary()
        self._gone: list[_Sheet] = []
        """The tiles of pictures that are forgotten, which the terminal still has."""
        self._free: dict[int, list[int]] = {}
        """The first of a range of ids that can be used again, by the length of the range."""
        self._next = self._end = 0
        self._wanted: dict[tuple[_Sheet, int], None] = {}
        self._asked = 0
        self._is_under_way = self._is_due = False
        self._batch = 0
        self._room = ROOM_FIRST
        self._begun = 0.0
        """The time when the batch was sent, by the monotonic clock."""
        self._quickest_s = math.inf
        """The shortest seconds that a batch took: the time of the line, and of the terminal."""
        self._coarse: dict[tuple[_Sheet, int], int] = {}
        """The bytes that coarse tiles would have had at their finest."""
        self._answers = True
        """Whether the terminal tells when it has drawn."""

    @property
    def cell(self) -> tuple[int, int]:
        return cell_size(self._widget.app, self._terminal)

    @property
    def draws(self) -> bool:
        app = self._widget.app
        return not app.no_color and app.console.color_system in ("truecolor", "256")

    def adapt(self) -> bool:
        """Chooses the way to draw again; returns whether it changed, so that panes are drawn
        anew."""
        before, self._way = self._way, way_of(self._widget, self._settings, self._terminal)
        return self._way is not before

    def meet(self) -> None:
        """Follows a change of the terminal, which may have lost all images."""
        for sheet in self._sheets.values():
            sheet.sent.clear()
        self._wanted.clear()
        self._coarse.clear()
        self._room, self._quickest_s = ROOM_FIRST, math.inf
        self._is_under_way = False
        self._answers = True
        self.adapt()

    def text(self, part: Part) -> PlaceholderCell | None:
        if self._way is not Way.KITTY:
            return None
        sheet = self._sheets.get(part.placed) or self._make(part.placed)
        if sheet is None:
            return None
        tile = part.row // TILE_ROWS * sheet.across + part.column // TILE_COLUMNS
        if tile not in sheet.sent and part.placed.stored.is_decoded:
            sheet.asked = self._asked = self._asked + 1
            self._wanted[sheet, tile] = None
            self._go_on_soon()
        number = sheet.first_id + tile
        text = PLACEHOLDER + MARKS[part.row % TILE_ROWS] + MARKS[part.column % TILE_COLUMNS]
        return PlaceholderCell(text, (number >> 16 & 255, number >> 8 & 255, number & 255))

    def _make(self, placed: Placed) -> _Sheet | None:
        across = -(-placed.columns // TILE_COLUMNS)
        count = across * -(-placed.rows // TILE_ROWS)
        if count > PLACEHOLDER_IDS:
            return None
        tiles = 1 << (count - 1).bit_length()  # so that ids are used again for other sizes
        if self._free.get(tiles):
            first = self._free[tiles].pop()
        else:
            if self._next + tiles > self._end:
                self._next = take_ids()
                self._end = self._next + PLACEHOLDER_IDS
            first, self._next = self._next, self._next + tiles
        sheet = self._sheets[placed] = _Sheet(ref(placed), first, across, tiles)
        finalize(placed, self._note_gone(), sheet).atexit = False
        return sheet

    def _note_gone(self) -> Callable[[_Sheet], None]:
        """Returns a function to be called when a picture is forgotten, on any thread: the garbage
        collector may do that. It does not keep this object."""
        loop, context, gone = asyncio.get_running_loop(), copy_context(), self._gone
        screen = ref(self)

        def go_on() -> None:
            if (found := screen()) is not None:
                found._go_on_soon()

        def note(sheet: _Sheet) -> None:
            gone.append(sheet)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(go_on, context=context)

        return note

    # Sending

    def _go_on_soon(self) -> None:
        if not self._is_due and not self._is_under_way:
            self._is_due = True
            self._widget.call_later(self._go_on)

    def _go_on(self) -> None:
        """Sends the next batch, if there is room for it."""
        self._is_due = False
        driver = driver_of(self._widget.app)
        if driver is None or not driver.has_terminal or self._is_under_way:
            return
        driver.last_images[self] = self._delete_all
        self._delete_gone(driver)
        is_asked = self._way is Way.KITTY
        self._wanted = {key: None for key in self._wanted if is_asked and key[0].placed()}
        if not self._wanted:
            return
        if driver.line.is_busy:
            self._is_due = True
            self._widget.set_timer(BUSY_S, self._go_on)
            return
        speed = driver.line.speed
        room = self._room if speed is None else min(self._room, round(speed * SHARE_S))
        if data := self._next_batch(max(room, ROOM_MIN)):
            whole = b"\x1b[?2026h%b\x1b[?2026l" if self._terminal.abilities.sync_output else b"%b"
            driver.write_images(whole % data)
            self._await(driver)

    def _next_batch(self, room: int) -> bytes:
        """Returns tiles of at most so many bytes, or a single one."""
        data, begun = b"", time.monotonic()
        while self._wanted and len(data) < room and time.monotonic() - begun < ENCODING_S:
            # First the tiles drawn last: the others may have gone from the screen by now.
            sheet, tile = key = max(self._wanted, key=lambda key: (key[0].asked, -key[1]))
            placed = sheet.placed()
            if placed is not None:
                more, divisor = self._tile(sheet, placed, tile, room)
                if data and len(data) + len(more) > room:
                    break
                # A tile no finer than the terminal has already would be sent again and again.
                if divisor < sheet.sent.get(tile, COARSEST + 1):
                    data += more
                    sheet.sent[tile] = divisor
                    sheet.had.add(tile)
            del self._wanted[key]
        return data

    def _tile(self, sheet: _Sheet, placed: Placed, tile: int, room: int) -> tuple[bytes, int]:
        """Returns the bytes that send a tile, coarser if it takes more than ``room``, and the
        divisor of its pixels."""
        row, column = divmod(tile, sheet.across)
        row, column = row * TILE_ROWS, column * TILE_COLUMNS
        columns = min(TILE_COLUMNS, placed.columns - column)
        rows = min(TILE_ROWS, placed.rows - row)
        self._coarse.pop((sheet, tile), None)
        divisor = 1
        while True:
            cell = (max(1, self.cell[0] // divisor), max(1, self.cell[1] // divisor))
            image = placed.part(column, row, columns, rows, cell)
            opaque = image.getchannel("A").getextrema() == (255, 255)
            image = image.convert("RGB") if opaque else image
            control = (
                f"a=T,U=1,q=2,f={24 if opaque else 32},o=z,s={image.width},v={image.height}"
                f",i={sheet.first_id + tile},c={columns},r={rows}"
            )
            data = transmit(control, image)
            if len(data) <= room or divisor >= COARSEST:
                return data, divisor
            if divisor == 1:
                self._coarse[sheet, tile] = len(data)
            divisor *= 2

    def _await(self, driver: RawDriver) -> None:
        """Goes on when the terminal has drawn."""
        self._is_under_way = True
        self._begun = time.monotonic()
        self._batch = batch = self._batch + 1
        loop, context = asyncio.get_running_loop(), copy_context()

        def drawn() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._drawn, batch, context=context)

        if self._answers and driver.when_drawn(drawn):
            self._widget.set_timer(PATIENCE_S, lambda: self._lose_patience(batch))
        else:
            self._widget.set_timer(BUSY_S, lambda: self._drained(batch))

    def _lose_patience(self, batch: int) -> None:
        if self._is_under_way and batch == self._batch:
            self._answers = False
            self._drained(batch)

    def _drawn(self, batch: int) -> None:
        """Learns from the time of a batch how large the next may be."""
        if batch != self._batch or not self._is_under_way:
            return
        took = time.monotonic() - self._begun
        self._quickest_s = min(self._quickest_s, took)
        late = took - self._quickest_s
        room = 2 * self._room if late < SHARE_S else round(self._room * SHARE_S / late)
        self._room = min(max(room, ROOM_MIN), ROOM_MAX)
        if not self._wanted:
            finer = [key for key, needed in self._coarse.items() if needed <= self._room]
            self._wanted.update(dict.fromkeys(finer))
        self._drained(batch)

    def _drained(self, batch: int) -> None:
        if batch == self._batch:
            self._is_under_way = False
            if self._wanted or self._gone:
                self._go_on_soon()

    # Deleting

    def _delete_gone(self, driver: RawDriver) -> None:
        while self._gone:  # which may grow meanwhile
            sheet = self._gone.pop()
            driver.write_images(delete_images(sheet.ids))
            for tile in sheet.had:
                self._coarse.pop((sheet, tile), None)
            self._free.setdefault(sheet.tiles, []).append(sheet.first_id)

    def _delete_all(self) -> bytes:
        """Returns the bytes that delete all images, before another program gets the terminal."""
        sheets = [*self._sheets.values(), *self._gone]
        return b"".join(delete_images(sheet.ids) for sheet in sheets)

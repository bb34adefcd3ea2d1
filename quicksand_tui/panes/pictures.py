"""Pictures of a guest's programs in a pane: as text, of half cells or of kitty's images."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from rich.color import Color
from rich.segment import Segment
from rich.style import Style as RichStyle

from quicksand_tui.pixels.budget import Budget
from quicksand_tui.pixels.cells import LOWER, UPPER
from quicksand_tui.pixels.guest_graphics import Decode, Decoded, GuestGraphics
from quicksand_tui.pixels.halfcells import TO_KEPT
from quicksand_tui.pixels.kitty_reading import RefusedError
from quicksand_tui.terminal import Terminal
from quicksand_tui.terminal.graphics import USUAL_CELL

if TYPE_CHECKING:
    from textual.widget import Widget

    from quicksand_tui.pixels.placed import Part, Placed
    from quicksand_tui.pixels.placeholders import PlaceholderCell
    from quicksand_tui.terminal import Run, Surface

ROWS_KEPT: Final = 256
"""Rows of half cells of one picture that are kept."""

SEEN: Final = 128
"""From this on, of 255, a pixel is drawn; below, what is behind is seen."""


class PictureScreen(Protocol):
    """The user's terminal, as panes draw pictures on it: one for all panes."""

    budget: Budget
    decoding: asyncio.Lock
    """Held while a picture is decoded on another thread."""

    @property
    def ascii_only(self) -> bool:
        """Whether it has no half cells; each cell has one colour then."""

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a cell in pixels."""

    @property
    def draws(self) -> bool:
        """Whether pictures can be drawn at all, for which colours are needed."""

    def text(self, part: Part) -> PlaceholderCell | None:
        """Returns what shows a part of a picture as one of kitty's images; None if half cells
        have to do."""


class HalfCellScreen:
    """A terminal of which nothing is known."""

    ascii_only = False
    draws = True
    cell = USUAL_CELL

    def __init__(self) -> None:
        self.budget = Budget()
        self.decoding = asyncio.Lock()

    def text(self, _: Part) -> PlaceholderCell | None:
        return None


class PanePictures:
    """The pictures of one pane."""

    def __init__(
        self, pane: Widget, screen: PictureScreen | None, changed: Callable[[], object]
    ) -> None:
        """``changed`` is called when a picture that took long is there."""
        self._pane = pane
        self._screen = screen or HalfCellScreen()
        self._changed = changed
        self._graphics: GuestGraphics | None = None
        self._rows: WeakKeyDictionary[Placed, _HalfRows] = WeakKeyDictionary()

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a cell in pixels, as programs are told."""
        return self._screen.cell

    def terminal(self, columns: int, rows: int) -> Terminal:
        """Makes the pane's terminal; the pictures are those of the last one made."""
        self._graphics = None
        make = self._make if self._screen.draws else None
        return Terminal(columns, rows, cell_pixels=self.cell, graphics=make)

    def _make(self, surface: Surface) -> GuestGraphics:
        self._graphics = GuestGraphics(
            surface, self._screen.budget, elsewhere=self._decode, changed=self._changed
        )
        return self._graphics

    def _decode(self, decode: Decode, done: Decoded) -> None:
        self._pane.run_worker(self._decode_in_turn(decode, done), group="pictures")

    async def _decode_in_turn(self, decode: Decode, done: Decoded) -> None:
        """Decodes on another thread, one picture at a time."""
        async with self._screen.decoding:
            try:
                done(await asyncio.to_thread(decode))
            except RefusedError as error:
                done(error)

    def drawn(self, run: Run, base: RichStyle) -> list[Segment] | None:
        """Returns what shows the parts of pictures that a run of cells has; None if they are
        forgotten. ``base`` is the style of cells without a picture."""
        if self._graphics is None:
            return None
        part = self._graphics.find(run.style.picture)
        if part is None:
            return None
        text = self._screen.text(part)
        if text is not None:
            look = Segment(text.text, base + _foreground(text.colour))
        else:
            glyph, style = _half_cell(self._pixels(part), self._screen.ascii_only)
            look = Segment(glyph, base + style)
        return [look] * run.columns

    def _pixels(self, part: Part) -> bytes:
        """Returns the upper and the lower pixel of a half cell, red, green, blue and alpha each."""
        if not part.placed.stored.is_decoded:
            return bytes(8)
        rows = self._rows.get(part.placed)
        if rows is None:
            rows = self._rows[part.placed] = _HalfRows()
        return rows.pixels(part)


class _HalfRows:
    """A picture in half cells, made row by row as they are seen."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[bytes, int]] = {}

    def pixels(self, part: Part) -> bytes:
        if part.row not in self._rows:
            if len(self._rows) >= ROWS_KEPT:
                self._rows.clear()
            placed = part.placed
            drawn = placed.part(0, part.row, placed.columns, 1, (1, 2))
            self._rows[part.row] = drawn.point(TO_KEPT).tobytes(), 4 * placed.columns
        data, line = self._rows[part.row]
        at = 4 * part.column
        return data[at : at + 4] + data[line + at : line + at + 4]


@lru_cache(maxsize=1 << 13)
def _half_cell(pixels: bytes, ascii_only: bool) -> tuple[str, RichStyle]:
    """Returns the character and style of a half cell."""
    if ascii_only:
        mixed = bytes((one + other) // 2 for one, other in zip(pixels[:4], pixels[4:], strict=True))
        return " ", RichStyle(bgcolor=Color.from_rgb(*mixed[:3])) if mixed[
            3
        ] >= SEEN else RichStyle()
    upper, lower = pixels[:3], pixels[4:7]
    sees_upper, sees_lower = pixels[3] >= SEEN, pixels[7] >= SEEN
    if sees_upper and sees_lower:
        glyph = " " if upper == lower else UPPER
        return glyph, RichStyle(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*lower))
    if sees_upper:
        return UPPER, RichStyle(color=Color.from_rgb(*upper))
    if sees_lower:
        return LOWER, RichStyle(color=Color.from_rgb(*lower))
    return " ", RichStyle()


@lru_cache(maxsize=1 << 13)
def _foreground(colour: tuple[int, int, int]) -> RichStyle:
    return RichStyle(color=Color.from_rgb(*colour))

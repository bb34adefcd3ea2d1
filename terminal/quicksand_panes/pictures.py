"""Pictures of a guest's programs in a pane: as text, of half cells or of kitty's images."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from quicksand_pixels import LOWER, UPPER
from quicksand_pixels.decoding import Budget, Decode, Decoded, GuestGraphics, RefusedError, outcome
from quicksand_pixels.encoding import TO_KEPT
from quicksand_vt import USUAL_CELL, Terminal
from rich.color import Color
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.message import Message

if TYPE_CHECKING:
    from PIL import Image
    from quicksand_pixels import PlaceholderCell
    from quicksand_pixels.decoding import Part, Placed
    from quicksand_vt import Run, Surface
    from textual.widget import Widget

PIECE: Final = 64
"""Columns of a picture that are made at once: most of a wide picture may be beyond the screen."""
HELD_MAX: Final = 4 << 20
"""Bytes of half cells that are kept for a pane: fifty screens of 200x50."""

SEEN: Final = 128
"""The least alpha, of 255, of a pixel that is drawn; through others the background is seen."""


class PictureDecoded(Message):
    """A picture that took long is there."""


class PictureScreen:
    """The user's terminal, as panes draw pictures on it: one for all panes. Of this one nothing is
    known."""

    def __init__(self, *, ascii_only: bool = False) -> None:
        self.budget = Budget()
        self.decoding = asyncio.Lock()
        """Held while a picture is decoded on another thread."""
        self.ascii_only = ascii_only
        """It has no half cells; each cell has one colour then."""

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a cell in pixels."""
        return USUAL_CELL

    @property
    def draws(self) -> bool:
        """Whether pictures can be drawn at all, for which colours are needed."""
        return True

    def text(self, _: Part) -> PlaceholderCell | None:
        """Returns the cell that shows a part of a picture as one of kitty's images; None if half
        cells have to do."""
        return None


class PanePictures:
    """The pictures of one pane."""

    def __init__(self, pane: Widget, screen: PictureScreen | None) -> None:
        """``pane`` is told of decoded pictures, for which its terminal may have answers."""
        self._pane = pane
        self._screen = screen or PictureScreen()
        self._terminal: Terminal | None = None
        self._graphics: GuestGraphics | None = None
        self._half_rows = HalfRows()

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a cell in pixels, as programs are told."""
        return self._screen.cell

    def terminal(self, columns: int, rows: int) -> Terminal:
        """Makes the pane's terminal; the pictures are those of the latest terminal."""
        self.close()
        make = self._make if self._screen.draws else None
        self._terminal = Terminal(
            columns, rows, name="quicksand-tui", cell_pixels=self.cell, graphics=make
        )
        return self._terminal

    def close(self) -> None:
        """Forgets the pictures; the terminal takes no further ones."""
        if self._terminal is not None:
            self._terminal.end_graphics()
        self._terminal = self._graphics = None

    def _make(self, surface: Surface) -> GuestGraphics:
        def changed() -> None:
            # The picture may have been decoded for an earlier terminal.
            if self._graphics is made:
                self._pane.post_message(PictureDecoded())

        self._graphics = made = GuestGraphics(
            surface, self._screen.budget, elsewhere=self._decode, changed=changed
        )
        return made

    def _decode(self, decode: Decode, done: Decoded) -> None:
        # The app does this work, not the pane: it would be cancelled with the pane, perhaps before
        # it begins, and nobody would know that the picture no longer waits.
        self._pane.app.run_worker(self._decode_in_turn(decode, done), group="pictures")

    async def _decode_in_turn(self, decode: Decode, done: Decoded) -> None:
        """Decodes on another thread, one picture at a time."""
        found: Image.Image | RefusedError = RefusedError("EINTR:the app ends")
        try:
            async with self._screen.decoding:
                found = await asyncio.to_thread(outcome, decode)
        finally:
            done(found)

    def drawn(self, run: Run, base: RichStyle) -> list[Segment] | None:
        """Returns segments that show the parts of pictures in a run of cells; None if the pictures
        are forgotten. ``base`` is the style of cells without a picture."""
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
        """Returns the upper and the lower pixel of a half cell: red, green, blue and alpha each."""
        return self._half_rows.pixels(part) if part.placed.stored.is_decoded else bytes(8)


class HalfRows:
    """Pictures in half cells, made piece by piece as they are seen."""

    def __init__(self) -> None:
        self._pieces: WeakKeyDictionary[Placed, dict[tuple[int, int], bytes]] = WeakKeyDictionary()
        """The upper and the lower pixels of each piece of a row, by place."""
        self.held = 0
        """The most bytes that the pieces take."""

    def pixels(self, part: Part) -> bytes:
        """Returns the upper and the lower pixel of a part."""
        piece, column = divmod(part.column, PIECE)
        data = self._pieces.get(part.placed, {}).get((part.row, piece))
        if data is None:
            data = self._make(part, piece)
        at, line = 4 * column, len(data) // 2
        return data[at : at + 4] + data[line + at : line + at + 4]

    def _make(self, part: Part, piece: int) -> bytes:
        placed, first = part.placed, piece * PIECE
        drawn = placed.part(first, part.row, min(PIECE, placed.columns - first), 1, (1, 2))
        data = drawn.point(TO_KEPT).tobytes()
        if self.held + len(data) > HELD_MAX:
            self._pieces.clear()
            self.held = 0
        self.held += len(data)
        self._pieces.setdefault(placed, {})[part.row, piece] = data
        return data


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

"""The messages between a viewer and the process that encodes for it.

The viewer sends lines of JSON (`Order`), the encoder framed messages (`Message`): a kind, a length
and that many bytes.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from quicksand_pixels import Grid, Viewport

MESSAGE_MAX = 256 * 1024 * 1024
"""Bytes of a message; a picture without loss of the largest terminal is smaller."""

ROWS, TILES = "rows", "tiles"
"""Ways for a program that draws the text itself: half cells as data, and images that placeholders
in its text show."""

_HEAD = struct.Struct(">BI")
_DRAWN = struct.Struct(">HH??")


class Kind(IntEnum):
    """The kinds of messages."""

    DRAWN = 0
    """A picture (`Drawn`)."""
    SAVED = 1
    """The answer to the order to save: "" or the reason why not."""
    FAILED = 2
    """The reason why the guest's screen is gone; the last message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The encoder's orders as a whole: each replaces the last one."""

    way: str = "half"
    """The value of a `quicksand_pixels.ways.Way`, or one of `ROWS` and `TILES`."""
    first_id: int = 0
    """The first of the images' ids, for `TILES`."""
    grid: tuple[int, int, int, int] = (0, 0, 10, 20)
    """Columns, rows, and the pixels of a cell; without columns or rows nothing is encoded."""
    corner: tuple[int, int] = (0, 0)
    """The cell of the terminal where the grid begins."""
    zoom: float = 1.0
    centre: tuple[float, float] = (0.5, 0.5)
    sharp: bool = False
    """Enlarge by whole numbers only (`Viewport.sharp`)."""
    drained: int = 0
    """The number of pictures that the terminal has taken. The next picture is encoded after the
    last is taken."""
    again: int = 0
    """A number that asks for the whole picture when it changes."""
    interval_s: float = 0.0
    """The least seconds between two pictures."""
    save: str = ""
    """A path to write the screen to as PNG, once for each new path."""

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> Order:
        """Reads what `line` wrote."""
        found: dict[str, Any] = json.loads(line)
        for name in ("grid", "corner", "centre"):
            found[name] = tuple(found[name])
        return cls(**found)

    def view(self, width: int, height: int) -> Viewport | None:
        """Returns the view of a frame; None if nothing of it is visible."""
        grid = Grid(*self.grid)
        if not (width and height and grid.columns > 0 and grid.rows > 0):
            return None
        return Viewport(
            width=width,
            height=height,
            grid=grid,
            zoom=self.zoom,
            centre=self.centre,
            sharp=self.sharp,
        )


class Drawn(NamedTuple):
    """A picture for the terminal."""

    width: int
    """The width of the guest's screen in pixels."""
    height: int
    is_whole: bool
    """Nothing of the picture before is visible any more."""
    data: bytes
    in_tiles: bool = False
    """It was drawn as `TILES`."""

    def pack(self) -> bytes:
        return _DRAWN.pack(self.width, self.height, self.is_whole, self.in_tiles) + self.data

    @classmethod
    def parse(cls, data: bytes) -> Drawn:
        width, height, is_whole, in_tiles = _DRAWN.unpack_from(data)
        return cls(width, height, is_whole, data[_DRAWN.size :], in_tiles)


HEAD_BYTES = _HEAD.size


def pack_message(kind: Kind, data: bytes) -> bytes:
    return _HEAD.pack(kind, len(data)) + data


def parse_head(head: bytes) -> tuple[Kind, int]:
    """Returns the kind and the length of a message. Raises ValueError."""
    kind, length = _HEAD.unpack(head)
    if length > MESSAGE_MAX:
        raise ValueError(f"a message of {length} bytes")
    return Kind(kind), length

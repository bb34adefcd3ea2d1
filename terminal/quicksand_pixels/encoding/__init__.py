"""From frames to the bytes that draw them in a terminal.

A `Canvas` scales the visible part of a frame, and has an encoder draw the changes: `KittyEncoder`,
`SixelEncoder` or `HalfCells`, or for programs that draw their text themselves `PlaceholderEncoder`
or `PackedRows`.
"""

from quicksand_pixels.encoding.canvas import Canvas, Encoder, Frame
from quicksand_pixels.encoding.half_cells import TO_KEPT, HalfCells, PackedRows, fit, read_png
from quicksand_pixels.encoding.kitty import IMAGE_IDS, KittyEncoder, PlaceholderEncoder, transmit
from quicksand_pixels.encoding.sixel import SixelEncoder

__all__ = [
    "IMAGE_IDS",
    "TO_KEPT",
    "Canvas",
    "Encoder",
    "Frame",
    "HalfCells",
    "KittyEncoder",
    "PackedRows",
    "PlaceholderEncoder",
    "SixelEncoder",
    "fit",
    "read_png",
    "transmit",
]

"""Pictures in a terminal: of the screen of a machine, and of programs that run in a terminal.

These names need no Pillow: the visible part of a screen (`Viewport`), the cells that show it
(placeholders of kitty's, and half cells), the best way of a terminal, and its keys and mouse as
events for the machine (`ScreenInput`). Further modules are `encoding` (from frames to kitty's
graphics, sixels or half cells) and `decoding` (the pictures that programs draw). Nothing is read or
written, and programs and machines are taken to be hostile.
"""

from quicksand_pixels.placeholders import (
    MARKS,
    PLACEHOLDER,
    PLACEHOLDER_IDS,
    TILE_COLUMNS,
    TILE_ROWS,
    PlaceholderCell,
    cell_at,
    delete_images,
    take_ids,
    tile_ids,
)
from quicksand_pixels.text_cells import LOWER, UPPER, Cells, PackedCells, Run, parse_cells, runs
from quicksand_pixels.user_input import (
    ESCAPE_WAIT_S,
    KEYS,
    PASTE_MAX,
    Chord,
    Command,
    Event,
    Focus,
    Pasted,
    Pointer,
    ScreenInput,
    Stroke,
    strokes,
)
from quicksand_pixels.viewport import USUAL_CELL, Grid, Rect, Viewport
from quicksand_pixels.ways import Colours, Way, choose_colours, choose_way, choose_way_in_text

__all__ = [
    "ESCAPE_WAIT_S",
    "KEYS",
    "LOWER",
    "MARKS",
    "PASTE_MAX",
    "PLACEHOLDER",
    "PLACEHOLDER_IDS",
    "TILE_COLUMNS",
    "TILE_ROWS",
    "UPPER",
    "USUAL_CELL",
    "Cells",
    "Chord",
    "Colours",
    "Command",
    "Event",
    "Focus",
    "Grid",
    "PackedCells",
    "Pasted",
    "PlaceholderCell",
    "Pointer",
    "Rect",
    "Run",
    "ScreenInput",
    "Stroke",
    "Viewport",
    "Way",
    "cell_at",
    "choose_colours",
    "choose_way",
    "choose_way_in_text",
    "delete_images",
    "parse_cells",
    "runs",
    "strokes",
    "take_ids",
    "tile_ids",
]

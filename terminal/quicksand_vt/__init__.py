"""A terminal emulator: a screen that is fed a program's bytes, and read cell by cell.

`Terminal` is the screen. It draws nothing, waits for nothing and depends on nothing but Python. The
program is taken to be hostile: no input raises, and memory and time stay within bounds. Beside it
are filters of output for real terminals: `Restoring` and `Unasking`.
"""

from quicksand_vt.boxes import Box
from quicksand_vt.cell_rows import Mark, Run
from quicksand_vt.emulator import CursorView, Damage, Terminal
from quicksand_vt.graphics import REGISTERS, USUAL_CELL, After, Graphics, Reader
from quicksand_vt.input_encoding import MouseAction, MouseButton, MouseEvent
from quicksand_vt.modes import CursorShape, Modes, MouseEncoding, MouseTracking
from quicksand_vt.motions import Motion, move
from quicksand_vt.numbered_lines import Lines, Position, Span
from quicksand_vt.outbox import (
    Allowance,
    Bell,
    ClipboardWrite,
    CommandFinished,
    CwdChanged,
    Event,
    Notification,
    PaletteChanged,
    TitleChanged,
)
from quicksand_vt.restoring import Restoring
from quicksand_vt.searching import Matches, search, search_pattern
from quicksand_vt.selecting import block_text, line_at, selected_text, word_at
from quicksand_vt.stored_lines import FrozenLines
from quicksand_vt.style import (
    DEFAULT_COLOUR,
    RGB,
    XTERM_COLOURS,
    Attribute,
    Palette,
    Special,
    Style,
    Underline,
    sgr_text,
)
from quicksand_vt.surface import MakeGraphics, Surface
from quicksand_vt.unasking import Unasking
from quicksand_vt.width import VS16, clusters_in, counted, is_disputed

__all__ = [
    "DEFAULT_COLOUR",
    "REGISTERS",
    "RGB",
    "USUAL_CELL",
    "VS16",
    "XTERM_COLOURS",
    "After",
    "Allowance",
    "Attribute",
    "Bell",
    "Box",
    "ClipboardWrite",
    "CommandFinished",
    "CursorShape",
    "CursorView",
    "CwdChanged",
    "Damage",
    "Event",
    "FrozenLines",
    "Graphics",
    "Lines",
    "MakeGraphics",
    "Mark",
    "Matches",
    "Modes",
    "Motion",
    "MouseAction",
    "MouseButton",
    "MouseEncoding",
    "MouseEvent",
    "MouseTracking",
    "Notification",
    "Palette",
    "PaletteChanged",
    "Position",
    "Reader",
    "Restoring",
    "Run",
    "Span",
    "Special",
    "Style",
    "Surface",
    "Terminal",
    "TitleChanged",
    "Unasking",
    "Underline",
    "block_text",
    "clusters_in",
    "counted",
    "is_disputed",
    "line_at",
    "move",
    "search",
    "search_pattern",
    "selected_text",
    "sgr_text",
    "word_at",
]

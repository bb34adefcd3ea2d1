"""A terminal emulator, which turns the output of a guest's program into lines to draw.

Imports of the app only `model.text`, and no Textual: its input is hostile, so it is tested and
fuzzed without a screen.
"""

from quicksand_tui.terminal.events import (
    Bell,
    ClipboardWrite,
    CommandFinished,
    CwdChanged,
    Event,
    Notification,
    PaletteChanged,
    TitleChanged,
)
from quicksand_tui.terminal.frozen import (
    FrozenLines,
    Matches,
    block_text,
    line_at,
    search,
    search_pattern,
    selected_text,
    word_at,
)
from quicksand_tui.terminal.graphics import After, Graphics, Reader
from quicksand_tui.terminal.grid import Motion, move
from quicksand_tui.terminal.lines import Lines, Position, Span
from quicksand_tui.terminal.modes import CursorShape, Modes, MouseEncoding, MouseTracking
from quicksand_tui.terminal.rows import Mark, Run
from quicksand_tui.terminal.style import (
    DEFAULT_COLOUR,
    RGB,
    Attribute,
    Palette,
    Special,
    Style,
    Underline,
)
from quicksand_tui.terminal.surface import MakeGraphics, Surface
from quicksand_tui.terminal.terminal import CursorView, Damage, Terminal
from quicksand_tui.terminal.user_input import MouseAction, MouseButton, MouseEvent
from quicksand_tui.terminal.width import VS16, clusters_in, counted, is_disputed

__all__ = [
    "DEFAULT_COLOUR",
    "RGB",
    "VS16",
    "After",
    "Attribute",
    "Bell",
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
    "Run",
    "Span",
    "Special",
    "Style",
    "Surface",
    "Terminal",
    "TitleChanged",
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
    "word_at",
]

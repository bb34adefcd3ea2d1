"""A terminal emulator: bytes of a guest's program in, lines to draw out. It knows no UI."""

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
from quicksand_tui.terminal.frozen import FrozenLines
from quicksand_tui.terminal.lines import Lines, Position, Span
from quicksand_tui.terminal.modes import CursorShape, Modes, MouseEncoding, MouseTracking
from quicksand_tui.terminal.mouse import MouseAction, MouseButton, MouseEvent
from quicksand_tui.terminal.movement import Motion, move
from quicksand_tui.terminal.palette import Palette, Special
from quicksand_tui.terminal.rows import Mark, Run
from quicksand_tui.terminal.search import Matches, search, search_pattern
from quicksand_tui.terminal.selection import block_text, line_at, selected_text, word_at
from quicksand_tui.terminal.style import DEFAULT_COLOUR, RGB, Attribute, Style, Underline
from quicksand_tui.terminal.terminal import CursorView, Damage, Terminal

__all__ = [
    "DEFAULT_COLOUR",
    "RGB",
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
    "Lines",
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
    "Run",
    "Span",
    "Special",
    "Style",
    "Terminal",
    "TitleChanged",
    "Underline",
    "block_text",
    "line_at",
    "move",
    "search",
    "search_pattern",
    "selected_text",
    "word_at",
]

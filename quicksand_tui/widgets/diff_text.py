"""The lines that differ within a file, coloured."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from quicksand_tui.model.text import plain
from quicksand_tui.widgets.log_view import LogView

CLASSES = {"+": "diff--added", "-": "diff--removed", "@": "diff--head"}


class DiffText(LogView):
    """Shows the lines of a `TextDiff`; scrolled and searched like a log."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*LogView.COMPONENT_CLASSES, *CLASSES.values()}
    DEFAULT_CSS = """
    DiffText > .diff--added { color: $text-success; }
    DiffText > .diff--removed { color: $text-error; }
    DiffText > .diff--head { color: $text-accent; }
    """

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self.following = False
        self._ascii = ascii_only
        self._signs: list[str] = []

    def show(self, lines: tuple[tuple[str, str], ...]) -> None:
        """Shows lines with their signs, from the first on."""
        self.clear()
        self._signs = [sign for sign, _ in lines]
        texts = [text if sign == "@" else f"{sign}{text}" for sign, text in lines]
        self.append([plain(text) for text in texts] if self._ascii else texts)
        self.scroll_to(y=0, x=0, animate=False, immediate=True)

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        row = self.scroll_offset.y + y
        if row >= len(self._rows):
            return strip
        number = self._rows[row][0]
        name = CLASSES.get(self._signs[number]) if number < len(self._signs) else None
        if name is None:
            return strip
        colour = Style(color=self.get_component_rich_style(name).color)
        coloured = [Segment(text, (style or Style.null()) + colour) for text, style, _ in strip]
        return Strip(coloured, strip.cell_length)

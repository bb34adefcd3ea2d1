"""A framed column of labelled lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.text import plain
from quicksand_tui.view import MUTED

STYLES = {
    "muted": MUTED,
    "success": "$text-success",
    "warning": "$text-warning",
    "error": "$text-error",
    "": "",
}
LABEL_WIDTH = 9

Part = tuple[str, str]
"""A text and its role."""

Line = tuple[str, list[Part]]
"""A label and what stands beside it."""


class Facts(VerticalScroll, can_focus=False):
    """Values are wrapped beside their labels."""

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self._text = Static(markup=False)
        self._ascii = ascii_only
        self._lines: list[Line] = []
        self._title = ""
        self._drawn = 0
        """How many lines are shown."""

    def compose(self) -> ComposeResult:
        yield self._text

    def show_lines(self, title: str, lines: list[Line]) -> None:
        if title != self._title:
            self._title = title
            self.border_title = Content(self._fit(title))
        if lines != self._lines:
            self._lines = lines
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    @property
    def _value_width(self) -> int:
        """Cells beside the labels."""
        return max(10, self.scrollable_content_region.width - LABEL_WIDTH)

    def _wrap(self, lines: Sequence[Line]) -> list[Content]:
        drawn: list[Content] = []
        for label, values in lines:
            parts = [(self._fit(text), STYLES[role]) for text, role in values]
            drawn += self._label([label], Content.assemble(*parts).wrap(self._value_width))
        return drawn

    def _label(self, labels: Sequence[str], pieces: Sequence[Content]) -> list[Content]:
        """The pieces one below the other, the labels beside the first of them."""
        return [
            Content.styled(f"{head:<{LABEL_WIDTH}}", STYLES["muted"]) + piece
            for head, piece in zip_longest(labels[: len(pieces)], pieces, fillvalue="")
        ]

    def _draw(self) -> None:
        self._put(self._wrap(self._lines))

    def _put(self, drawn: list[Content]) -> None:
        # A layout of the whole screen is only needed for another number of lines.
        self._text.update(Content("\n").join(drawn), layout=len(drawn) != self._drawn)
        self._drawn = len(drawn)

    def _fit(self, text: str) -> str:
        return plain(text) if self._ascii else text

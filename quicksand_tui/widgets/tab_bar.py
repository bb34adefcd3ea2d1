"""Names of what a part can show, on one line; the one that it shows stands out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from quicksand_tui.text import clip, plain
from quicksand_tui.view import MUTED


class TabBar(Static):
    """Tabs that can be clicked. ``lead`` stands before them."""

    class Chosen(Message):
        """A tab was clicked."""

        def __init__(self, bar: TabBar, tab: str) -> None:
            super().__init__()
            self.bar = bar
            self.tab = tab

        @property
        def control(self) -> TabBar:
            return self.bar

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(markup=False, **options)
        self._ascii = ascii_only
        self._tabs: Sequence[tuple[str, str]] = ()
        self._active = ""
        self._lead: tuple[str, str] = ("", "")
        self._places: list[tuple[int, int, str]] = []
        """(first cell, cell after the last, tab)."""

    def show(
        self, tabs: Sequence[tuple[str, str]], active: str, lead: tuple[str, str] = ("", "")
    ) -> None:
        """``tabs``: name and label of each; ``lead``: a text and its style."""
        if (tabs, active, lead) != (self._tabs, self._active, self._lead):
            self._tabs, self._active, self._lead = tabs, active, lead
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        parts: list[tuple[str, str]] = []
        self._places, at = [], 0
        for name, label in self._tabs:
            # Brackets tell it without colours.
            text = f"[{label}]" if name == self._active else f" {label} "
            style = "bold $text-accent" if name == self._active else MUTED
            parts.append((self._fit(text), style))
            self._places.append((at, at + cell_len(text), name))
            at += cell_len(text)
        text, style = self._lead
        room = self.size.width - at - 2
        if text and room >= 4:
            text = self._fit(clip(text, room))
            parts += [(" " * (room - cell_len(text) + 1), ""), (text, style)]
        self.update(Content.assemble(*parts), layout=False)

    def _fit(self, text: str) -> str:
        return plain(text) if self._ascii else text

    def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        for begin, end, name in self._places:
            if place is not None and begin <= place.x < end:
                self.post_message(self.Chosen(self, name))

"""A bordered list with words for when it is empty."""

from __future__ import annotations

from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.text import plain
from quicksand_tui.view import Row
from quicksand_tui.widgets.keyed_table import KeyedTable, PlanColumns


class ListPanel(Vertical):
    """A `KeyedTable` in a frame with a title."""

    def __init__(
        self,
        title: str,
        plan: PlanColumns,
        *,
        ascii_only: bool,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.table = KeyedTable(plan, ascii_only=ascii_only)
        self._empty = Static(classes="empty", markup=False)
        self._title = title
        self._ascii = ascii_only
        self._drawn: tuple[str, str, str] | None = None
        """Title, count and words for when it is empty, as they are on the screen."""

    def compose(self) -> ComposeResult:
        yield self.table
        yield self._empty

    def show(
        self, rows: tuple[Row, ...], *, total: int, query: str, empty: str, order: str = ""
    ) -> None:
        """Show rows, or if there are none, ``empty``."""
        self.table.show(rows)
        self.set_class(not rows, "-empty")
        title = f"{self._title} by {order}" if order else self._title
        title += f" /{query}" if query else ""
        count = f"{len(rows)} of {total}" if query else (str(total) if total else "")
        drawn = (title, count, empty)
        if drawn == self._drawn:
            return  # setting any of them paints the whole panel
        self._drawn = drawn
        self._empty.update(Content(plain(empty) if self._ascii else empty))
        self.border_title = Content(plain(title) if self._ascii else title)
        self.border_subtitle = Content(count)

"""A table whose rows have keys: showing new rows changes only the cells that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from quicksand_tui.text import clip, plain
from quicksand_tui.view import Cell, Column, Row, muted_style

PlanColumns = Callable[[int], tuple[Column, ...]]


class KeyedTable(DataTable[Text]):
    """Rows of `Cell`s by key. The cursor stays on its key while rows come and go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("g", "scroll_top", show=False),
        Binding("G", "scroll_bottom", show=False),
        Binding("ctrl+d", "page_down", show=False),
        Binding("ctrl+u", "page_up", show=False),
    ]

    def __init__(self, plan: PlanColumns, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(
            cursor_type="row",
            cell_padding=1,
            cursor_foreground_priority="renderable",
            **options,
        )
        self._plan = plan
        self._ascii = ascii_only
        self._columns: tuple[Column, ...] = ()
        self._shown: dict[str, Row] = {}
        self._wanted: Sequence[Row] = ()

    @property
    def selected_key(self) -> str | None:
        """The key of the row under the cursor."""
        if not self._shown or not 0 <= self.cursor_row < self.row_count:
            return None
        return list(self._shown)[self.cursor_row]

    @property
    def visible_keys(self) -> frozenset[str]:
        """The keys of the rows that can be seen now."""
        first = int(self.scroll_y)
        return frozenset([*self._shown][first : first + max(1, self.size.height)])

    def select(self, key: str) -> bool:
        """Move the cursor to the row of ``key``, if it is there."""
        if key not in self._shown:
            return False
        self.move_cursor(row=list(self._shown).index(key))
        return True

    def on_mount(self) -> None:
        # The theme's colours are written into the cells.
        self.app.theme_changed_signal.subscribe(self, lambda _: self._rebuild())

    def on_click(self, event: events.Click) -> None:
        """One click selects, two open: Textual would open whatever is clicked while selected."""
        row = event.style.meta.get("row", -1)
        if event.chain < 2 and 0 <= row < self.row_count:
            event.prevent_default()
            self.move_cursor(row=row, column=event.style.meta.get("column", 0))

    def on_resize(self, event: events.Resize) -> None:
        if self._plan(self.size.width) != self._columns:
            self._rebuild()

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows, in this order."""
        self._wanted = rows
        if not self._columns:
            if self.size.width:
                self._rebuild()
            return
        keys = [row.key for row in rows]
        survivors = [key for key in self._shown if key in set(keys)]
        if survivors != keys[: len(survivors)]:
            self._rebuild()
            return
        selected = self.selected_key
        for key in [key for key in self._shown if key not in set(keys)]:
            self.remove_row(key)
            del self._shown[key]
        for row in rows:
            if row.key in self._shown:
                self._update(row)
            else:
                self._append(row)
        if selected is not None and selected != self.selected_key:
            self.select(selected)

    def _rebuild(self) -> None:
        """Lay out columns and rows anew, with the cursor where it was."""
        if not self.size.width:
            return
        selected, position, top = self.selected_key, self.cursor_row, self.scroll_y
        with self.app.batch_update():
            self.clear(columns=True)
            self._shown = {}
            self._columns = self._plan(self.size.width)
            for column in self._columns:
                title = Text(column.title, justify="right" if column.right else "left")
                self.add_column(title, width=column.width, key=column.key)
            for row in self._wanted:
                self._append(row)
        if selected is None or not self.select(selected):
            self.move_cursor(row=max(0, min(position, self.row_count - 1)))
        if top <= self.cursor_row < top + self.size.height - 1:
            # Only now are the new rows measured; until then there is nothing to scroll.
            self.call_after_refresh(self.scroll_to, y=top, animate=False, immediate=True)

    def _append(self, row: Row) -> None:
        self.add_row(*(self._draw(row.cells[c.key], c) for c in self._columns), key=row.key)
        self._shown[row.key] = row

    def _update(self, row: Row) -> None:
        before = self._shown[row.key]
        for column in self._columns:
            if row.cells[column.key] != before.cells[column.key]:
                self.update_cell(row.key, column.key, self._draw(row.cells[column.key], column))
        self._shown[row.key] = row

    def _draw(self, cell: Cell, column: Column) -> Text:
        """Never markup: names come from anywhere."""
        text = clip(cell.text, column.width)
        drawn = Text(no_wrap=True, justify="right" if column.right else "left", end="")
        drawn.append(plain(text) if self._ascii else text, self._colour(cell.role))
        room = column.width - drawn.cell_len - 2
        if cell.note and room > 3:
            note = clip(cell.note, room)
            drawn.append("  ").append(plain(note) if self._ascii else note, self._colour("muted"))
        return drawn

    def _colour(self, role: str) -> str:
        if role in ("", "muted"):
            return muted_style(self.app.theme_variables) if role else ""
        # The shade for text: the plain one is too pale on a light ground. Rich has no "ansi_".
        return self.app.theme_variables.get(f"text-{role}", "").removeprefix("ansi_")

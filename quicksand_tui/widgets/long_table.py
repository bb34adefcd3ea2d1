"""A table of any length, which makes only the visible rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from quicksand_tui.model.text import plain
from quicksand_tui.views.main_layout import HEAD_FROM
from quicksand_tui.views.tables import (
    GUTTER,
    MARK_ROLE,
    Column,
    Row,
    Words,
    head_words,
    muted_style,
    row_words,
    with_searched,
)

PlanColumns = Callable[[int], tuple[Column, ...]]
MakeRow = Callable[[str], Row]


class LongTable(ScrollView, can_focus=True):
    """Rows by key, below a head, with marks and a cursor that stays on its key. Without much room
    there is no head."""

    DEFAULT_CSS = """
    LongTable {
        height: 1fr;
        background: $background;
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-gutter: stable;
        scrollbar-size-vertical: 1;
    }

    LongTable > .long-table--head {
        color: $text-muted;
    }

    LongTable > .long-table--cursor {
        background: $surface;
    }

    LongTable:focus > .long-table--cursor {
        background: $accent 25%;
        text-style: bold;
    }

    LongTable > .long-table--mark {
        color: $text-accent;
    }

    LongTable.-plain {
        scrollbar-size: 0 0;
        scrollbar-gutter: auto;
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "long-table--head",
        "long-table--cursor",
        "long-table--mark",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("g,home", "go(0)", show=False),
        Binding("G,end", "go(-1)", show=False),
        Binding("ctrl+d", "page(0.5)", show=False),
        Binding("ctrl+u", "page(-0.5)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
    ]

    class Moved(Message):
        """The row under the cursor has changed."""

    class Opened(Message):
        """A row was double-clicked."""

    class HeadClicked(Message):
        """The head of a column was clicked."""

        def __init__(self, column: str) -> None:
            super().__init__()
            self.column = column

    def __init__(self, plan: PlanColumns, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self.set_class(ascii_only, "-plain")
        self._plan = plan
        self._ascii = ascii_only
        self._columns: tuple[Column, ...] = ()
        self._planned_width = 0
        self._searched: Sequence[Column] = ()
        self._keys: Sequence[str] = ()
        self._places: dict[str, int] = {}
        self._make: MakeRow = lambda key: Row(key, {})
        self._marked: Collection[str] = ()
        self._cursor = 0
        self._drawn: dict[int, tuple[Row, bool, bool]] = {}
        """The visible rows as last drawn: (row, is marked, has the cursor)."""

    # Content

    @property
    def row_count(self) -> int:
        return len(self._keys)

    @property
    def cursor_row(self) -> int:
        return self._cursor

    @property
    def selected_key(self) -> str | None:
        """The key of the row under the cursor."""
        return self._keys[self._cursor] if self._cursor < len(self._keys) else None

    def has_row(self, key: str) -> bool:
        return key in self._places

    @property
    def visible_keys(self) -> Sequence[str]:
        first = self.scroll_offset.y
        return self._keys[first : first + self._height]

    def shows_column(self, key: str) -> bool:
        """Whether that column is visible."""
        return self.is_on_screen and any(column.key == key for column in self._columns)

    def show(self, keys: Sequence[str], make: MakeRow, marked: Collection[str]) -> None:
        """Shows the rows that ``make`` returns for ``keys``; the cursor stays on its key."""
        selected = self.selected_key
        self._make, self._marked = make, marked
        if keys is not self._keys:
            self._keys = keys
            self._places = {key: at for at, key in enumerate(keys)}
            self._cursor = self._places.get(selected or "", min(self._cursor, len(keys) - 1))
            self._cursor = self._alive(max(0, self._cursor), 1)
            self._resize()
            self._follow()
        if selected != self.selected_key:
            self.post_message(self.Moved())
        self._refresh_changed()

    def replan(self) -> None:
        """Plans the columns anew: their contents have become wider or narrower."""
        self._resize()
        self.refresh()

    def select(self, key: str) -> bool:
        """Moves the cursor to the row of ``key``; returns False if there is none."""
        at = self._places.get(key)
        if at is not None:
            self._go_to(at)
        return at is not None

    # Drawing

    @property
    def _height(self) -> int:
        """The number of visible rows."""
        return max(0, self.scrollable_content_region.height - self._head_rows)

    @property
    def _head_rows(self) -> int:
        """1 if the head is shown."""
        return int(self.scrollable_content_region.height >= HEAD_FROM)

    def on_mount(self) -> None:
        # Roles have the theme's colours.
        self.app.theme_changed_signal.subscribe(self, lambda _: self.refresh())

    def on_unmount(self) -> None:
        # The signal lives as long as the app, and its callback would keep this widget.
        self.app.theme_changed_signal.unsubscribe(self)

    def on_resize(self) -> None:
        self._resize()
        self._follow()
        self.refresh()

    def _resize(self) -> None:
        width = self.scrollable_content_region.width
        self._plan_for(width)
        self.virtual_size = Size(width, len(self._keys) + self._head_rows)

    def _plan_for(self, width: int) -> None:
        self._columns = self._planned(width - GUTTER) if width else ()
        self._planned_width = width

    def _planned(self, width: int) -> tuple[Column, ...]:
        return with_searched(self._plan(width), self._searched, width)

    def show_searched(self, columns: Sequence[Column]) -> None:
        """Shows these columns, too, since a filter searches them."""
        if columns != self._searched:
            self._searched = columns
            self._resize()
            self.refresh()

    def _follow(self) -> None:
        """Scrolls the cursor into view."""
        if not self._height:
            return
        top = self.scroll_offset.y
        wanted = max(self._cursor - self._height + 1, min(top, self._cursor))
        if wanted != top:
            self.scroll_to(y=wanted, animate=False, immediate=True, force=True)

    def _refresh_changed(self) -> None:
        """Redraws the visible rows that have changed."""
        first = self.scroll_offset.y
        for at in range(first, min(first + self._height, len(self._keys))):
            if self._drawn.get(at) != self._state(at):
                self._refresh_row(at)

    def _refresh_row(self, at: int) -> None:
        self.refresh(Region(0, at - self.scroll_offset.y + self._head_rows, self.size.width, 1))

    def _state(self, at: int) -> tuple[Row, bool, bool]:
        key = self._keys[at]
        return self._make(key), key in self._marked, at == self._cursor

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        if width != self._planned_width:
            self._plan_for(width)  # the first frame comes before `on_resize`
        base = self.rich_style
        if y == 0:
            self._drawn = {}
        if y < self._head_rows:
            style = base + self.get_component_rich_style("long-table--head")
            return self._strip(head_words(self._columns, self._fit), width, style)
        at = self.scroll_offset.y + y - self._head_rows
        if at >= len(self._keys):
            return Strip.blank(width, base)
        row, is_marked, is_cursor = self._drawn[at] = self._state(at)
        if is_cursor:
            base += self.get_component_rich_style("long-table--cursor")
        words = row_words(row, self._columns, self._fit, is_marked=is_marked)
        return self._strip(words, width, base)

    def _strip(self, words: Sequence[Words], width: int, base: Style) -> Strip:
        """Draws words as plain text, not markup, because names may hold anything."""
        segments = [Segment(text, base + self._colour(role)) for text, role in words]
        return Strip(segments).adjust_cell_length(width, base).simplify()

    @property
    def _mark_style(self) -> Style:
        return Style(color=self.get_component_rich_style("long-table--mark").color)

    def _fit(self, text: str) -> str:
        return plain(text) if self._ascii else text

    def _colour(self, role: str) -> Style:
        if role == MARK_ROLE:
            return self._mark_style
        if role in ("", "muted"):
            muted = muted_style(self.app.theme_variables)
            return Style.parse(muted) if role else Style.null()
        # The shade for text, as the plain one is too pale in light themes. Rich knows no "ansi_".
        name = self.app.theme_variables.get(f"text-{role}", "").removeprefix("ansi_")
        return Style.parse(name) if name else Style.null()

    # Moving

    def _alive(self, at: int, step: int) -> int:
        """Returns the nearest row from ``at`` on where the cursor can be."""
        for way in (step, -step):
            found = at
            while 0 <= found < len(self._keys):
                if not self._make(self._keys[found]).dead:
                    return found
                found += way
        return at

    def _go_to(self, at: int) -> None:
        at = max(0, min(at, len(self._keys) - 1))
        at = self._alive(at, 1 if at >= self._cursor else -1)
        if at == self._cursor:
            return
        before, self._cursor = self._cursor, at
        self._follow()
        self._refresh_row(before)
        self._refresh_row(at)
        self.post_message(self.Moved())

    def action_move(self, by: int) -> None:
        self._go_to(self._cursor + by)

    def action_go(self, at: int) -> None:
        self._go_to(at if at >= 0 else len(self._keys) + at)

    def action_page(self, pages: float) -> None:
        self._go_to(self._cursor + int(pages * max(1, self._height)))

    def on_click(self, event: events.Click) -> None:
        """Selects on a click, opens on a double click."""
        place = event.get_content_offset(self)
        if place is None:
            return
        if place.y < self._head_rows:
            self._click_head(place.x)
            return
        at = self.scroll_offset.y + place.y - self._head_rows
        if at < len(self._keys):
            self._go_to(at)
            if event.chain == 2:
                self.post_message(self.Opened())

    def _click_head(self, x: int) -> None:
        begin = GUTTER
        for column in self._columns:
            if begin <= x < begin + column.cells:
                self.post_message(self.HeadClicked(column.key))
            begin += column.cells

"""A long list in a frame that can be filtered, ordered and marked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from quicksand_tui.model.text import clip, plain
from quicksand_tui.widgets.inputs import LineInput
from quicksand_tui.widgets.long_table import LongTable, PlanColumns

if TYPE_CHECKING:
    from quicksand_tui.model.world import World
    from quicksand_tui.views.rows import Column, Row


TROUBLE_USED = 12
"""Cells of the frame's lower line besides trouble and counts."""


class Keyed(Protocol):
    """Something that can be listed."""

    @property
    def key(self) -> str: ...


T = TypeVar("T", bound=Keyed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """How a `Browser` shows one kind of thing, as pure functions."""

    title: str
    plan: PlanColumns
    row: Callable[[T, World], Row]
    arrange: Callable[[Sequence[T], str, str], Sequence[T]]
    """Returns the things that match a query, in an order."""
    orders: tuple[str, ...]
    """The columns to order by; the first is the default."""
    marked_text: Callable[[Sequence[T]], str]
    placeholder: str
    """Explains queries."""
    searched: tuple[Column, ...] = ()
    """Columns that queries look at, so that they are shown while there is one."""


class Browser(Vertical, Generic[T]):
    """Lists things of one kind."""

    class Moved(Message):
        """The selection or the marks have changed."""

    class Opened(Message):
        """A row was double-clicked."""

    def __init__(self, listing: Listing[T], *, ascii_only: bool, **options: Any) -> None:
        super().__init__(classes="-empty", **options)
        self.table = LongTable(listing.plan, ascii_only=ascii_only)
        self.query_text = ""
        self.order = listing.orders[0]
        self._listing = listing
        self._ascii = ascii_only
        self._empty = Static(classes="empty", markup=False)
        self._things: Sequence[T] = ()
        self._by_key: dict[str, T] = {}
        self._arranged: tuple[str, str] | None = None
        """The query and the order of the rows shown."""
        self._keys: Sequence[str] = ()
        self._marks: dict[str, None] = {}
        """The marked keys, in the order of marking."""
        self._range: tuple[str, dict[str, None]] | None = None
        """Where a range of marks begins, and the marks before it."""
        self._snapshot: World | None = None
        self._empty_text: Callable[[str], str] = lambda query: ""
        self._trouble = ""
        self._frame = ("", "", "")

    def compose(self) -> ComposeResult:
        yield self.table
        yield self._empty

    # Selection

    @property
    def selected(self) -> T | None:
        return self._by_key.get(self.table.selected_key or "")

    @property
    def marked(self) -> tuple[T, ...]:
        return tuple(self._by_key[key] for key in self._marks)

    # Showing

    def show(
        self, things: Sequence[T], world: World, empty: Callable[[str], str], trouble: str = ""
    ) -> None:
        """Shows ``things`` with the facts of ``world``; if none matches, shows what ``empty``
        returns for the query. ``trouble`` is why they could not be read anew."""
        self._snapshot, self._empty_text, self._trouble = world, empty, trouble
        if things is not self._things:
            self._things = things
            self._by_key = {thing.key: thing for thing in things}
            self._marks = {key: None for key in self._marks if key in self._by_key}
            self._arranged = None
        self._draw()

    def _draw(self) -> None:
        if self._snapshot is None:
            return
        if self._arranged != (self.query_text, self.order):
            self._arranged = (self.query_text, self.order)
            found = self._listing.arrange(self._things, self.query_text, self.order)
            self._keys = [thing.key for thing in found]
        world, row = self._snapshot, self._listing.row
        self.table.show(self._keys, lambda key: row(self._by_key[key], world), self._marks)
        self._draw_frame()

    def _draw_frame(self) -> None:
        shown, total = len(self._keys), len(self._things)
        title = self._listing.title
        if self.order != self._listing.orders[0]:
            title += f" by {self.order}"
        title += f" /{self.query_text}" if self.query_text else ""
        count = f"{shown} of {total}" if self.query_text else (str(total) if total else "")
        ranging = "marking a range" if self._range is not None else ""
        marked = self._listing.marked_text(self.marked)
        below = " · ".join(part for part in (ranging, marked, count) if part)
        if self._trouble:
            room = max(10, self.size.width - cell_len(below) - TROUBLE_USED)
            why = self._trouble
            if cell_len(why) > room:
                why = why.rpartition(": ")[2]  # without the path
            below = " · ".join(filter(None, (f"✗ {clip(why, room)}", below)))
        empty = "" if shown else self._empty_text(self.query_text)
        if (title, below, empty) == self._frame:
            return  # setting any of them paints the whole panel
        self._frame = (title, below, empty)
        self.set_class(not shown, "-empty")
        self._empty.update(self._text(empty))
        self.border_title = self._text(title)
        self.border_subtitle = self._text(below)

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    # Marks and order

    def toggle_mark(self) -> None:
        """Marks or unmarks the row under the cursor, and moves to the next."""
        key = self.table.selected_key
        if key is None:
            return
        if key in self._marks:
            del self._marks[key]
        else:
            self._marks[key] = None
        self._marks_changed()
        self.table.action_move(1)

    def toggle_all(self) -> None:
        """Marks all listed rows, or unmarks them if all are marked."""
        if all(key in self._marks for key in self._keys):
            listed = set(self._keys)
            self._marks = {key: None for key in self._marks if key not in listed}
        else:
            self._marks |= dict.fromkeys(self._keys)
        self._marks_changed()

    def toggle_range(self) -> None:
        """Marks all rows that the cursor passes from now on, or ends that."""
        if self._range is not None:
            self._range = None
        elif (key := self.table.selected_key) is not None:
            self._range = (key, dict(self._marks))
            self._mark_range()
        self._marks_changed()

    def _mark_range(self) -> None:
        """Marks the rows from the beginning of the range to the cursor."""
        here = self.table.selected_key
        if self._range is None or here not in self._keys or self._range[0] not in self._keys:
            self._range = None
            return
        first, last = sorted((self._keys.index(self._range[0]), self._keys.index(here)))
        self._marks = self._range[1] | dict.fromkeys(self._keys[first : last + 1])

    def unmark(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._marks.pop(key, None)
        self._marks_changed()

    def _marks_changed(self) -> None:
        self._draw()
        self.post_message(self.Moved())

    def step_order(self) -> None:
        orders = self._listing.orders
        self._set_order(orders[(orders.index(self.order) + 1) % len(orders)])

    def _set_order(self, order: str) -> None:
        self.order = order
        self._draw()

    def step_back(self) -> bool:
        """Drops the range, or else the filter, or else the marks; returns False if there is none
        of them."""
        if self._range is not None:
            self._marks = {key: None for key in self._range[1] if key in self._by_key}
            self._range = None
            self._marks_changed()
        elif self._field is not None or self.query_text:
            self._close_field()
            self._set_query("")
        elif self._marks:
            self.unmark(list(self._marks))
        else:
            return False
        return True

    # Filter

    @property
    def _field(self) -> Input | None:
        """The input of the filter, if it is open."""
        return next(iter(self.query(".filter").results(Input)), None)

    def filter_by(self, words: str) -> None:
        self._close_field()
        self._set_query(words)

    def open_filter(self) -> None:
        field = self._field
        if field is None:
            field = LineInput(
                self.query_text,
                classes="filter",
                select_on_focus=False,
                placeholder=self._listing.placeholder,
            )
            self.mount(field)
        self.screen.set_focus(field)

    def _close_field(self) -> None:
        if (field := self._field) is not None:
            self.screen.set_focus(self.table)
            field.remove()

    def _set_query(self, query: str) -> None:
        self.query_text = query
        self.table.show_searched(self._listing.searched if query else ())
        self._draw()

    @on(Input.Changed, ".filter")
    def _filter_live(self, event: Input.Changed) -> None:
        event.stop()
        if event.input is self._field and event.value != self.query_text:
            self._set_query(event.value)

    @on(Input.Submitted, ".filter")
    def _filter_done(self, event: Input.Submitted) -> None:
        event.stop()
        self._close_field()

    # The table

    @on(LongTable.Moved)
    def _moved(self, event: LongTable.Moved) -> None:
        event.stop()
        if self._range is not None:
            self._mark_range()
            self._draw()
        self.post_message(self.Moved())

    @on(LongTable.Opened)
    def _opened(self, event: LongTable.Opened) -> None:
        event.stop()
        self.post_message(self.Opened())

    @on(LongTable.HeadClicked)
    def _head_clicked(self, event: LongTable.HeadClicked) -> None:
        event.stop()
        if event.column in self._listing.orders:
            self._set_order(event.column)

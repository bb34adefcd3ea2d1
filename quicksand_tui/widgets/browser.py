"""A long list in a frame that can be filtered, ordered and marked; its rows are made anew only when
they have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from quicksand.things.frozen import frozen
from rich.cells import cell_len
from textual import events, on
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from quicksand_tui.model.text import clip, plain
from quicksand_tui.views.tables import MUTED
from quicksand_tui.widgets.inputs import LineInput
from quicksand_tui.widgets.long_table import LongTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from textual.app import ComposeResult

    from quicksand_tui.model.world import World
    from quicksand_tui.views.tables import Column, Row


TROUBLE_USED = 12
"""Cells of the frame's lower line that trouble and counts cannot have."""


class Keyed(Protocol):
    """Something that can be listed."""

    @property
    def key(self) -> str: ...


T = TypeVar("T", bound=Keyed)


@frozen
class Listing(Generic[T]):
    """The way a `Browser` shows one kind of thing, as pure functions."""

    title: str
    plan: Callable[..., tuple[Column, ...]]
    """Plans the columns for a width, and for the result of `needs`, if that is given."""
    row: Callable[[T, World], Row]
    arrange: Callable[[Sequence[T], str, str], Sequence[T]]
    """Returns the things that match a query, in an order."""
    orders: tuple[str, ...]
    """The columns to order by; the first is the default."""
    marked_text: Callable[[Sequence[T]], str]
    placeholder: str
    """Explains queries."""
    searched: tuple[Column, ...] = ()
    """Columns that queries search, so that they are shown while there is a query."""
    keys: Callable[[World], str]
    """Returns the most useful keys and their effects, for the frame of a focused list."""
    needs: Callable[[World], object] | None = None
    """Returns how much room the contents of the columns need."""
    is_head: Callable[[T], bool] = lambda _: False
    """Whether a row is the header of the rows below: it cannot be marked and does not count."""
    still: tuple[str, ...] = ()
    """Orders by changing values: rows keep their places while the list has the focus."""


@frozen(kw_only=False)
class Title:
    """The title of one list, in the frame of the list that is shown."""

    name: str
    """The name that a click on it chooses."""
    text: str
    active: bool = False


class Browser(Vertical, Generic[T]):
    """Lists things of one kind."""

    class TitleClicked(Message):
        """Another list was clicked in the frame."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class FrameChanged(Message):
        """The lower line of the frame has changed."""

    class Moved(Message):
        """The selection or the marks have changed."""

    class Opened(Message):
        """A row was double-clicked."""

    def __init__(
        self, listing: Listing[T], *, ascii_only: bool, is_empty: bool = True, **options: Any
    ) -> None:
        """``is_empty`` is the look of the first frame, which comes before styles that change."""
        super().__init__(classes="-empty" if is_empty else "", **options)
        self.table = LongTable(self._plan, ascii_only=ascii_only)
        self.query_text = ""
        self.order = listing.orders[0]
        self._listing = listing
        self._ascii = ascii_only
        self._empty = Static(classes="empty", markup=False)
        self._things: Sequence[T] = ()
        self._by_key: dict[str, T] = {}
        self._arranged: tuple[str, str] | None = None
        """The query and the order of the rows shown."""
        self._last_wanted: tuple[str, str] | None = None
        self._unsettled = False
        """Some rows are not in their order's place, because the cursor is among them."""
        self._keys: Sequence[str] = ()
        self._begins = True
        """The cursor has only been on headers so far."""
        self._marks: dict[str, None] = {}
        """The marked keys, in the order of marking."""
        self._range: tuple[str, dict[str, None]] | None = None
        """The row where a range of marks begins, and the marks before it."""
        self._snapshot: World | None = None
        self._empty_text: Callable[[str], str] = lambda query: ""
        self._trouble = ""
        self._needs: object = None
        self._others: tuple[Title, ...] = ()
        self._title_places: list[tuple[int, int, str]] = []
        """The titles: (first cell, cell after the last, name)."""
        self._frame: tuple[object, ...] = ()

    def _plan(self, width: int) -> tuple[Column, ...]:
        plan = self._listing.plan
        return plan(width) if self._needs is None else plan(width, self._needs)

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
        """Shows ``things`` with the facts of ``world``; if none matches, the text that ``empty``
        returns for the query. ``trouble`` is the reason why they could not be read anew."""
        self._snapshot, self._empty_text, self._trouble = world, empty, trouble
        if self._listing.needs is not None and (needs := self._listing.needs(world)) != self._needs:
            self._needs = needs
            self.table.replan()
        if things is not self._things:
            self._things = things
            self._by_key = {thing.key: thing for thing in things}
            self._marks = {key: None for key in self._marks if key in self._by_key}
            self._arranged = None
        self._draw()

    def _draw(self) -> None:
        if self._snapshot is None:
            return
        wanted = (self.query_text, self.order)
        if self._arranged != wanted or self._unsettled:
            found = self._listing.arrange(self._things, self.query_text, self.order)
            keys = [thing.key for thing in found]
            # Nothing moves below the cursor; a new thing comes in its order's place.
            stays = self.order in self._listing.still and self._has_focus
            if stays and self._last_wanted == wanted:
                keys = kept_order(self._keys, keys)
                self._unsettled = keys != [thing.key for thing in found]
            else:
                self._unsettled = False
            self._arranged = self._last_wanted = wanted
            if keys != self._keys:
                self._keys = keys
        world, row = self._snapshot, self._listing.row
        self.table.show(self._keys, lambda key: row(self._by_key[key], world), self._marks)
        if self._begins and (rows := self._rows()):
            self._begins = False
            if self.table.selected_key not in rows:
                self.table.select(rows[0])
        self._draw_frame()

    def _rows(self) -> list[str]:
        """Returns the keys of the rows that are no headers."""
        return [key for key in self._keys if not self._listing.is_head(self._by_key[key])]

    @property
    def _has_focus(self) -> bool:
        return self.table.is_attached and self.table.has_focus

    def show_titles(self, titles: tuple[Title, ...]) -> None:
        """Shows all lists in the frame; this one's count and order are added to its title."""
        self._others = titles
        if self._snapshot is not None:
            self._draw_frame()

    def _own_words(self) -> str:
        """Returns the count, the order and the filter, for the title."""
        shown = len(self._rows())
        total = sum(not self._listing.is_head(thing) for thing in self._things)
        words = [f"{shown} of {total}" if self.query_text else str(total) if total else ""]
        if self.order != self._listing.orders[0]:
            words.append(f"by {self.order}")
        words.append(f"/{self.query_text}" if self.query_text else "")
        return " ".join(word for word in words if word)

    def _draw_frame(self) -> None:
        world = self._snapshot
        assert world is not None
        shown = len(self._keys)
        ranging = "marking a range" if self._range is not None else ""
        marked = self._listing.marked_text(self.marked)
        below = " · ".join(part for part in (ranging, marked) if part)
        if self._trouble:
            room = max(10, self.size.width - cell_len(below) - TROUBLE_USED)
            why = self._trouble
            if cell_len(why) > room:
                why = why.rpartition(": ")[2]  # without the path
            below = " · ".join(filter(None, (f"✗ {clip(why, room)}", below)))
        elif not below and shown and self._has_focus:
            keys = self._listing.keys(world)
            # Before the first layout, the width is unknown; Textual cuts long titles.
            below = clip(keys, max(10, self.size.width - 6)) if self.size.width else keys
        empty = "" if shown else self._empty_text(self.query_text)
        titles = self._others or (Title("", self._listing.title, active=True),)
        frame = (titles, self._own_words(), below, empty, self.size.width)
        if frame == self._frame:
            return  # setting any of them paints the whole panel
        self._frame = frame
        self.set_class(not shown, "-empty")
        self._empty.update(self._text(empty))
        self.border_title = self._title_of(titles)
        self.border_subtitle = self._text(below)
        self.post_message(self.FrameChanged())

    @property
    def urgent(self) -> bool:
        """Whether the frame's lower line shows more than keys."""
        return bool(self._trouble or self._marks or self._range is not None)

    @property
    def rows_wanted(self) -> int:
        """The number of rows that it can use; while a filter is typed, more than match."""
        if self._field is not None:
            return len(self._things) + 1
        empty = str(self._frame[3]) if self._frame else ""
        return self.table.row_count or len(empty.splitlines()) or 1

    def _title_of(self, titles: Sequence[Title]) -> Content:
        parts: list[tuple[str, str]] = []
        at, self._title_places = 3, []
        own = self._own_words()
        for title in titles:
            if parts:
                parts.append((" · ", ""))
                at += 3
            text = f"{title.text} {own}".strip() if title.active else title.text
            if title.active and self.size.width:
                text = clip(text, max(8, self.size.width - 8))
            text = plain(text) if self._ascii else text
            parts.append((text, "" if title.active else f"not bold {MUTED}"))
            self._title_places.append((at, at + cell_len(text), title.name))
            at += cell_len(text)
        return Content.assemble(*((plain(t) if self._ascii else t, style) for t, style in parts))

    def on_resize(self) -> None:
        if self._snapshot is not None:
            self._draw_frame()

    def focus_changed(self) -> None:
        """Redraws all that depends on the focus; rows go to their order's places."""
        self._draw()

    def on_click(self, event: events.Click) -> None:
        if event.screen_y != self.region.y:
            return
        for begin, end, name in self._title_places:
            if begin <= event.screen_x - self.region.x < end and name:
                event.stop()
                self.post_message(self.TitleClicked(name))

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    # Marks and order

    def toggle_mark(self) -> None:
        """Marks or unmarks the row under the cursor, and moves to the next."""
        key = self.table.selected_key
        if key is None or self._listing.is_head(self._by_key[key]):
            return
        if key in self._marks:
            del self._marks[key]
        else:
            self._marks[key] = None
        self._marks_changed()
        self.table.action_move(1)

    def toggle_all(self) -> None:
        """Marks all listed rows, or unmarks them if all are marked."""
        rows = self._rows()
        if all(key in self._marks for key in rows):
            listed = set(rows)
            self._marks = {key: None for key in self._marks if key not in listed}
        else:
            self._marks |= dict.fromkeys(rows)
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
        rows = set(self._rows())
        passed = (key for key in self._keys[first : last + 1] if key in rows)
        self._marks = self._range[1] | dict.fromkeys(passed)

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
        """Drops the range, or else the filter, or else the marks; returns False if there is
        none."""
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


def kept_order(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Returns ``now`` in the order of ``before``; a new key follows the one before it in
    ``now``."""
    there = set(now)
    kept = [key for key in before if key in there]
    old = set(kept)
    for at, key in enumerate(now):
        if key not in old:
            kept.insert(kept.index(now[at - 1]) + 1 if at else 0, key)
    return kept


class Listed(Generic[T]):
    """Makes the sequence for a `Browser`, which compares objects to see whether it has changed."""

    def __init__(
        self,
        make: Callable[[World], Sequence[T]],
        of: Callable[[World], tuple[object, ...]],
    ) -> None:
        """``of`` returns the objects that the sequence is made from."""
        self._make = make
        self._of = of
        self._before: tuple[object, ...] = ()
        self._made: Sequence[T] = ()

    def of(self, world: World) -> Sequence[T]:
        """Returns the same object as before if it is made from the same objects."""
        now = self._of(world)
        if len(now) != len(self._before) or any(
            one is not before for one, before in zip(now, self._before, strict=True)
        ):
            self._before = now
            self._made = self._make(world)
        return self._made

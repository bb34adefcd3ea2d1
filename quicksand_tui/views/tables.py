"""Tables as values: columns, rows of cells, the filter that searches them, and the words they are
drawn with, by the app's tables and by the outline, which is drawn before Textual is imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from quicksand.things.frozen import frozen

from quicksand_tui.model.text import clip, clip_middle, drawn_cells

MUTED = "$foreground-muted"
"""The style of secondary text. ($text-muted works in style sheets only; in content it is white.)"""


def muted_style(variables: Mapping[str, str]) -> str:
    """Returns the muted style for Rich, which knows no transparent colours."""
    colour = variables.get("foreground-muted", "")
    return colour if len(colour) == len("#rrggbb") and colour.startswith("#") else "dim"


Words = tuple[str, str]
"""A text and its role."""


Line = tuple[str, list[Words]]
"""A label and its value."""


@frozen(kw_only=False)
class Cell:
    """A cell of a table. ``role`` is a colour of the theme, "muted" or ""."""

    text: str
    role: str = ""
    note: str = ""
    """Muted text after the text."""
    gives_way: bool = False
    """The text is cut in its middle so that the whole note fits."""
    keeps_end: bool = False
    """The beginning is cut, as that of a history."""
    lead: tuple[Words, ...] = ()
    """Words drawn before the text, in roles of their own; they are not cut."""


@frozen(kw_only=False)
class Row:
    """A row of a table: its key, and its cells by column."""

    key: str
    cells: dict[str, Cell]
    dead: bool = False
    """It has only lines of a drawing: the cursor passes over it."""
    line: tuple[Words, ...] = ()
    """The words that it shows across all columns instead of cells."""


@frozen(kw_only=False)
class Column:
    key: str
    title: str
    width: int
    right: bool = False
    gap: int = 2
    """Blank cells after it."""

    @property
    def cells(self) -> int:
        """Its width with the blank cells after it."""
        return self.width + self.gap


def greyed(cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """Returns the cells of something whose machine is away."""
    return {
        key: replace(cell, role="muted", lead=tuple((text, "muted") for text, _ in cell.lead))
        for key, cell in cells.items()
    }


# Drawing

NOTE_MIN = 6
"""The least room in cells for a note and the gap before it."""

GUTTER = 2
"""Cells before the first column, for the mark."""
MARK = "◆"
MARK_ROLE = "mark"
"""The role of the mark; all others are those of `Cell`."""

SCROLL_BAR = 1
"""Cells beside the rows that are kept free for the scroll bar; in ASCII there is none."""

Fit = Callable[[str], str]
"""Makes a text fit for the terminal: `plain` in ASCII."""


def head_words(columns: Sequence[Column], fit: Fit) -> list[Words]:
    """Returns the head of a table."""
    words: list[Words] = [(" " * GUTTER, "")]
    for column in columns:
        words += cell_words(Cell(column.title), column, fit)
    return words


def row_words(
    row: Row, columns: Sequence[Column], fit: Fit, *, is_marked: bool = False
) -> list[Words]:
    """Returns a row of a table."""
    if row.line:
        return [(fit(text), role) for text, role in row.line]
    words = [(f"{fit(MARK)} ", MARK_ROLE) if is_marked else (" " * GUTTER, "")]
    for column in columns:
        words += cell_words(row.cells[column.key], column, fit)
    return words


def cell_words(cell: Cell, column: Column, fit: Fit) -> list[Words]:
    """Returns a cell, with the blanks around it, in exactly the cells of its column."""
    lead = [(fit(text), role) for text, role in cell.lead]
    width = max(0, column.width - sum(drawn_cells(text) for text, _ in lead))
    text = fit(_cut(cell, width)) if width else ""
    left = width - drawn_cells(text)
    pad = " " * left
    if column.right:
        return [(pad, ""), (text, cell.role), (" " * column.gap, "")]
    words = [*lead, (text, cell.role)]
    if cell.note and left >= NOTE_MIN:
        note = fit(clip(cell.note, left - 2))
        words.append((f"  {note}", "muted"))
        pad = " " * (left - 2 - drawn_cells(note))
    return [*words, (pad + " " * column.gap, "")]


def _cut(cell: Cell, width: int) -> str:
    """Returns a cell's text, cut to a column."""
    if cell.keeps_end:
        return cell.text[-width:]
    if not cell.gives_way:
        return clip(cell.text, width)
    beside = drawn_cells(cell.note) + 2 if cell.note else 0
    return clip_middle(cell.text, width - beside)


# The language of filters, and orders

T = TypeVar("T")
Fields = Mapping[str, Callable[[T], str]]
Tests = Mapping[str, Callable[[T], bool]]
Amounts = Mapping[str, Callable[[T], float | None]]
"""Amounts that can be compared with a number; None is unknown, and matches nothing."""

_COMPARISON = re.compile(r"([<>])(\d{1,15}(?:\.\d{1,15})?)([a-z%]?)")
_UNITS = {
    "age": {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800},
    "cpu": {"": 1, "%": 1},
}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def filtered(
    views: Sequence[T],
    query: str,
    text: Callable[[T], str],
    fields: Fields[T] | None = None,
    tests: Tests[T] | None = None,
    amounts: Amounts[T] | None = None,
) -> Sequence[T]:
    """Returns the views that match every word of ``query``, whatever its case.

    A word matches if it is in ``text``, which must be in lower case; ``field:value`` searches only
    that one of ``fields``; ``field:>value`` and ``field:<value`` compare one of ``amounts``; a word
    of ``tests`` matches if its test says so. ``~word`` needs only its letters, in their order.
    ``!word`` must not match.
    """
    known = (fields or {}, tests or {}, amounts or {})
    wanted = [
        (_finder(word.lstrip("!"), text, *known), not word.startswith("!"))
        for word in query.lower().split()
        if word.strip("!")
    ]
    if not wanted:
        return views
    return [view for view in views if all(find(view) == expected for find, expected in wanted)]


def _finder(
    word: str,
    text: Callable[[T], str],
    fields: Fields[T],
    tests: Tests[T],
    amounts: Amounts[T],
) -> Callable[[T], bool]:
    if (test := tests.get(word)) is not None:
        return test
    if word.startswith("~") and (letters := word.lstrip("~")):
        pattern = re.compile("[^\n]*?".join(map(re.escape, letters)))
        return lambda view: pattern.search(text(view)) is not None
    field, colon, value = word.partition(":")
    if colon and (amount := amounts.get(field)) and (compare := _comparison(field, value)):
        return lambda view: compare(amount(view))
    if colon and (look := fields.get(field)) is not None:
        return lambda view: value in look(view).lower()
    return lambda view: word in text(view)


def _comparison(field: str, value: str) -> Callable[[float | None], bool] | None:
    """Returns the comparison that ``value`` stands for, such as ">1.5g"; None if it is none."""
    found = _COMPARISON.fullmatch(value)
    unit = _UNITS.get(field, _BYTES).get(found[3]) if found else None
    if found is None or unit is None:
        return None
    limit = float(found[2]) * unit
    if found[1] == ">":
        return lambda amount: amount is not None and amount > limit
    return lambda amount: amount is not None and amount < limit


def in_order(views: Sequence[T], order: str, keys: Mapping[str, Callable[[T], Any]]) -> Sequence[T]:
    """Returns the views ordered by one of ``keys``, or as they are if ``keys`` lacks the order."""
    return sorted(views, key=keys[order]) if order in keys else views


def nothing_matches(query: str) -> str:
    """Returns the text of an empty list."""
    return f"Nothing matches “{query}”.\nesc clears the filter."


# The columns that a filter searches

NAMES = ("state", "name", "tag")
"""Columns that never give way to another."""
NAME_MIN = 14
"""Cells that a name keeps when another column needs room."""


def with_searched(
    planned: tuple[Column, ...], searched: Sequence[Column], width: int
) -> tuple[Column, ...]:
    """Returns the columns ``planned`` for ``width`` cells with those that a filter searches, so
    that the user sees why a row matches or not: the name gives way first, then the last columns."""
    missing = [c for c in searched if all(c.key != column.key for column in planned)]
    if not missing or not planned:
        return planned
    kept = list(planned)
    while True:
        lack = sum(column.cells for column in (*kept, *missing)) - width
        if lack <= 0:
            break
        at = next((n for n, column in enumerate(kept) if column.key == "name"), None)
        spare = max(0, kept[at].width - NAME_MIN) if at is not None else 0
        if at is not None and spare:
            kept[at] = replace(kept[at], width=kept[at].width - min(spare, lack))
            continue
        last = next((c for c in reversed(kept) if c.key not in NAMES), None)
        if last is None:
            break  # the table cuts columns that are too wide
        kept.remove(last)
    after = max((n for n, column in enumerate(kept, 1) if column.key in NAMES), default=0)
    return (*kept[:after], *missing, *kept[after:])

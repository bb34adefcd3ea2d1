"""The language of the lists' filters, and their orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from quicksand_tui.views.rows import Column

T = TypeVar("T")
Fields = Mapping[str, Callable[[T], str]]
Tests = Mapping[str, Callable[[T], bool]]


def filtered(
    views: Sequence[T],
    query: str,
    text: Callable[[T], str],
    fields: Fields[T] | None = None,
    tests: Tests[T] | None = None,
) -> Sequence[T]:
    """Returns the views that match every word of ``query``, whatever its case.

    A word matches if ``text`` has it, which must be in lower case; ``field:value`` searches that
    one of ``fields`` only; a word of ``tests`` matches if its test says so. ``!word`` must not
    match.
    """
    wanted = [
        (_finder(word.lstrip("!"), text, fields or {}, tests or {}), not word.startswith("!"))
        for word in query.lower().split()
        if word.strip("!")
    ]
    if not wanted:
        return views
    return [view for view in views if all(find(view) == expected for find, expected in wanted)]


def _finder(
    word: str, text: Callable[[T], str], fields: Fields[T], tests: Tests[T]
) -> Callable[[T], bool]:
    if (test := tests.get(word)) is not None:
        return test
    field, colon, value = word.partition(":")
    if colon and (look := fields.get(field)) is not None:
        return lambda view: value in look(view).lower()
    return lambda view: word in text(view)


NAMES = ("state", "name", "tag")
"""Columns that never give way to another."""
NAME_MIN = 14
"""Cells that a name keeps where another column needs room."""
GAP = 2
"""Blank cells after a column."""


def with_searched(
    planned: tuple[Column, ...], searched: Sequence[Column], width: int
) -> tuple[Column, ...]:
    """Returns the columns ``planned`` for ``width`` cells with those that a filter looks at, so
    that one sees why a row matches or not: the name gives way first, then the last columns."""
    missing = [c for c in searched if all(c.key != column.key for column in planned)]
    if not missing or not planned:
        return planned
    kept = list(planned)
    while True:
        lack = sum(column.width + GAP for column in (*kept, *missing)) - width
        if lack <= 0:
            break
        at = next((n for n, column in enumerate(kept) if column.key == "name"), None)
        spare = max(0, kept[at].width - NAME_MIN) if at is not None else 0
        if at is not None and spare:
            kept[at] = replace(kept[at], width=kept[at].width - min(spare, lack))
            continue
        last = next((c for c in reversed(kept) if c.key not in NAMES), None)
        if last is None:
            break  # the table cuts what is too wide
        kept.remove(last)
    after = max((n for n, column in enumerate(kept, 1) if column.key in NAMES), default=0)
    return (*kept[:after], *missing, *kept[after:])


def in_order(views: Sequence[T], order: str, keys: Mapping[str, Callable[[T], Any]]) -> Sequence[T]:
    """Returns the views ordered by one of ``keys``, or as they are if the order has none."""
    return sorted(views, key=keys[order]) if order in keys else views


def nothing_matches(query: str) -> str:
    """Returns what an empty list shows."""
    return f"Nothing matches “{query}”.\nesc clears the filter."

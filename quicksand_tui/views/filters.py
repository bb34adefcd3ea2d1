"""The language of the lists' filters, and their orders."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

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

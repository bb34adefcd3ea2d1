"""The language of the lists' filters, and their orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

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


def in_order(views: Sequence[T], order: str, keys: Mapping[str, Callable[[T], Any]]) -> Sequence[T]:
    """Returns the views ordered by one of ``keys``, or as they are if the order has none."""
    return sorted(views, key=keys[order]) if order in keys else views


def nothing_matches(query: str) -> str:
    """Returns what an empty list shows."""
    return f"Nothing matches “{query}”.\nesc clears the filter."

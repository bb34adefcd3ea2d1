"""The common part of all completions: they choose those of the given words that begin as typed."""

from __future__ import annotations

from collections.abc import Iterable

from click.shell_completion import CompletionItem


def beginning(typed: str, words: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    """Returns the words that begin with the typed text, each with its description."""
    return [CompletionItem(word, help=about) for word, about in words if word.startswith(typed)]


def a_file(typed: str) -> list[CompletionItem]:
    """Returns that the word is a path, which the shell completes."""
    return [CompletionItem(typed, type="file")]

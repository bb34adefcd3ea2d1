"""What all completions do: choose of the words that there are those that begin as typed."""

from __future__ import annotations

from collections.abc import Iterable

from click.shell_completion import CompletionItem


def beginning(typed: str, words: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    """Returns the words, each with what is told of it, that begin with what is typed."""
    return [CompletionItem(word, help=about) for word, about in words if word.startswith(typed)]


def a_file(typed: str) -> list[CompletionItem]:
    """Returns that the word is a path, which the shell completes."""
    return [CompletionItem(typed, type="file")]

"""Before a paste: what it would do, and the question that is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quicksand_tui.text import sanitise, size_text

if TYPE_CHECKING:
    from quicksand_tui.screens.confirm import Question

PREVIEW_LINES: Final = 6
PREVIEW_WIDTH: Final = 100
"""Characters of a line."""


def line_count(text: str) -> int:
    """How many lines a program would be given: what ends with a line end has none behind it."""
    return len(text.splitlines())


def paste_question(text: str) -> Question:
    """Whether to paste several lines into a program that takes them for typed ones."""
    from quicksand_tui.screens.confirm import Question

    lines = text.splitlines()
    shown = [sanitise(line.expandtabs(8), limit=PREVIEW_WIDTH) for line in lines[:PREVIEW_LINES]]
    if len(lines) > PREVIEW_LINES:
        shown.append(f"and {len(lines) - PREVIEW_LINES} more lines, {size_text(len(text))}")
    return Question(
        title=f"Paste {len(lines)} lines?",
        losses=tuple(shown),
        verb="Paste",
        undo="This program takes pasted lines for typed ones: a shell runs each at once.",
    )

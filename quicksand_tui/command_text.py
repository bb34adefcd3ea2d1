"""What is typed behind the colon, as words. Pure: no table of commands here."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from quicksand_tui.text import sanitise

LENGTH_MAX = 1000
"""Characters of a line."""


class CommandError(Exception):
    """Why a line is no command, or cannot be carried out; fit to be shown."""

    def __init__(self, what: str) -> None:
        super().__init__(sanitise(what))


@dataclass(frozen=True, slots=True)
class Word:
    """A word, without its quotes."""

    text: str
    start: int
    """Where it begins in the line, with its quotes."""
    is_whole: bool = True
    """Its quotes are closed."""


def split_words(line: str) -> list[Word]:
    """The words of a line, as a shell would part them; never raises."""
    words: list[Word] = []
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        start, text, quote = at, "", ""
        while at < len(line) and (quote or not line[at].isspace()):
            char = line[at]
            if char == quote:
                quote = ""
            elif not quote and char in "\"'":
                quote = char
            elif char == "\\" and quote != "'" and at + 1 < len(line):
                at += 1
                text += line[at]
            else:
                text += char
            at += 1
        words.append(Word(text, start, is_whole=not quote))
    return words


def whole_words(line: str) -> list[str]:
    """The words of a line that is complete. Raises CommandError."""
    if len(line) > LENGTH_MAX:
        raise CommandError(f"a command has at most {LENGTH_MAX} characters")
    words = split_words(line)
    if any(not word.is_whole for word in words):
        raise CommandError("a quote is not closed")
    return [word.text for word in words]


def current_word(line: str) -> tuple[list[str], Word]:
    """The words before the cursor, which is at the end of the line, and the one that is typed."""
    words = split_words(line)
    if words and (not line[-1:].isspace() or not words[-1].is_whole):
        return [word.text for word in words[:-1]], words[-1]
    return [word.text for word in words], Word("", len(line))


def quoted(text: str) -> str:
    """As it is to be typed."""
    return shlex.quote(text)

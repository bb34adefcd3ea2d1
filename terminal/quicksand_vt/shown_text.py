"""Makes a program's text (a title, a notification) fit to be shown outside of its terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from quicksand_vt.width import MARKS_MAX

_CONTROL_SEQUENCE: Final = re.compile(r"\x9b[0-?]*[ -/]*[@-~]")
"""A sequence that begins with CSI as one C1 character; ESC ends every string of the parser."""

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

_INVISIBLE: Final = frozenset(
    {
        *(0x034F, 0x115F, 0x1160, 0x3164, 0xFFA0),  # the grapheme joiner, and Hangul fillers
        *range(0x180B, 0x1810),
        *range(0xFE00, 0xFE10),
        *range(0xE0100, 0xE01F0),  # variation selectors
    }
)
"""Characters that are printable by their categories, but invisible."""


def one_line(text: str, *, limit: int) -> str:
    """Returns a text as one line of at most ``limit`` characters. What could move a cursor, change
    the writing direction, be invisible or paint over other lines is dropped or becomes U+FFFD."""
    cut = text[: 4 * limit]
    if not (cut.isascii() and cut.isprintable()):
        cut = "".join(_shown(_CONTROL_SEQUENCE.sub("", cut)))
    return cut if len(cut) <= limit else cut[: limit - 1] + "…"


def _shown(text: str) -> Iterator[str]:
    marks = 0
    for at, char in enumerate(text):
        category = unicodedata.category(char)
        is_blank = char == "\t" or category == "Zs"
        is_hidden = ord(char) in _INVISIBLE or not (is_blank or char.isprintable())
        is_mark = not is_hidden and (unicodedata.combining(char) or category in ("Mn", "Me"))
        marks = marks + 1 if is_mark else 0
        if is_hidden or (is_mark and at == 0):
            yield _REPLACEMENT
        elif marks <= MARKS_MAX:
            yield " " if is_blank else char

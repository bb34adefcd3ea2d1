"""Keeps columns in place in terminals that count some characters differently.

Terminals disagree about the columns of flags, and of emoji with a variation selector, a skin tone,
a keycap or joiners (tmux 3.3 counts a shield with U+FE0F as one): all that follows on the row, up
to the border, would move. So the cells are emptied before such a cluster, and the cursor is set
anew behind it.
"""

from __future__ import annotations

import re
from typing import Final

from rich.cells import cell_len

_EXTENDING: Final = "\u200d\u20e3\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"
"""ZWJ, keycap, variation selectors, skin tones, tags: they turn a character into an emoji."""

_DISPUTED: Final = re.compile(f"[{_EXTENDING}\U0001f1e6-\U0001f1ff]")

_CLUSTER: Final = re.compile(
    "[\U0001f1e6-\U0001f1ff]{1,2}"
    f"|[^\\s{_EXTENDING}](?:[{_EXTENDING}]|(?<=\u200d)[^\\x00-\\x7f])+"
    f"|[{_EXTENDING}]+"
)

_TOKEN: Final = re.compile(
    "\x1b\\[[0-9]+;(?P<column>[0-9]+)H"
    "|(?P<still>\x1b\\[[0-9;:]*m|\x1b\\].*?(?:\x07|\x1b\\\\))"
    "|(?P<moves>\x1b(?:\\[[0-?]*[ -/]*[@-~])?|[\x00-\x1a\x1c-\x1f])"
    "|(?P<text>[^\x00-\x1f]+)",
    re.DOTALL,
)


def is_disputed(text: str) -> bool:
    """Whether terminals may disagree how many columns a text takes."""
    return _DISPUTED.search(text) is not None


def keep_columns(text: str) -> str:
    """Returns output that draws the same, but whose clusters of disputed width do not move the text
    behind them. Works only where ``text`` itself has set the column before."""
    if not is_disputed(text):
        return text
    column: int | None = None
    kept: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if match["column"] is not None:
            column = int(match["column"])
        elif match["moves"] is not None:
            column = None
        elif match["text"] is not None and column is not None:
            token = _fixed(token, column)
            column += cell_len(match[0])
        kept.append(token)
    return "".join(kept)


def _fixed(text: str, column: int) -> str:
    """Returns the text with the cursor set anew behind each disputed cluster; the text begins at
    ``column``, from 1."""
    kept: list[str] = []
    at = 0
    for match in _CLUSTER.finditer(text):
        # Characters in front may help to decide the width.
        start, end = cell_len(text[: match.start()]), cell_len(text[: match.end()])
        kept += [text[at : match.start()], f"\x1b[{end - start}X" if end > start else ""]
        kept += [match[0], f"\x1b[{column + end}G"]
        at = match.end()
    return "".join([*kept, text[at:]])

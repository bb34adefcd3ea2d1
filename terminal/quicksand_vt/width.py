"""Decides how many columns a character takes, and which characters share a cell.

Characters count as in a program's C library (wcwidth of glibc: East Asian wide and fullwidth are 2,
combining marks 0, the rest 1), because programs place the cursor by it: a skin tone and each half
of a flag have cells of their own, and a variation selector widens nothing. Only emoji that a ZWJ
joins share a cell, as in tmux. Programs that set mode 2027 count emoji sequences (joined by ZWJ,
with a skin tone, pairs of regional indicators) as one cell of two columns, as Unicode's UTS #51
recommends.

The package wcwidth (0.9) is not used: it gives no column to the spacing vowels of the scripts of
India and its neighbours (some 440 characters of category Mc), to which glibc gives one, and its
import takes longer than all of the emulator's.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

ZWJ: Final = "\u200d"
ZWNJ: Final = "\u200c"
VS16: Final = "\ufe0f"
"""Selects the emoji form of a character that also has a text form."""

MARKS_MAX: Final = 4
"""The most marks on one character. Languages need two or three; more would draw over the line
above."""

KEYCAPS: Final = frozenset("#*0123456789")
"""Characters that become emoji (keycaps) with `VS16`."""

EMOJI_MAX: Final = 16
"""The most code points of one emoji; the longest in Unicode 16 has 10."""

CODE_POINTS_MAX: Final = max(1 + MARKS_MAX, EMOJI_MAX)

NOT_SHOWN: Final = -1

NARROW: Final = (
    " -~\xa0-\xac\xae-\u02ff\u0370-\u0482\u048a-\u0590\u1e00-\u1fff\u2010-\u2027\u2030-\u205e"
    "\u2070-\u20cf\u2100-\u2319\u231c-\u2328\u232b-\u23e8\u2400-\u25fc\u2800-\u2b1a\ue000-\uf8ff"
)
"""Ranges in which every character takes one column and never joins another: most output."""

WIDE: Final = (
    "\u3000-\u3029\u3041-\u3096\u309b-\u30ff\u3131-\u3163\u3220-\ua48c"
    "\uac00-\ud7a3\uf900-\ufaff\uff01-\uff60\uffe0-\uffe6\U0001f300-\U0001f320"
    "\U0001f32d-\U0001f335\U0001f337-\U0001f37c\U0001f37e-\U0001f393\U0001f3a0-\U0001f3ca"
    "\U0001f3cf-\U0001f3d3\U0001f3e0-\U0001f3f0\U0001f3f8-\U0001f3fa\U0001f400-\U0001f43e"
    "\U0001f442-\U0001f4fc\U0001f600-\U0001f64f\U0001f680-\U0001f6c5\U0001f90c-\U0001f93a"
    "\U0001f947-\U0001f9ff\U00020000-\U0003fffd"
)
"""Ranges in which every character takes two columns and joins only after a ZWJ."""

PIECES: Final = re.compile(f"([{NARROW}]+)|([{WIDE}]+)|(.)", re.DOTALL)
"""Cuts text into runs of `NARROW` or `WIDE`, and other characters one by one."""

_VISIBLE_FORMATS: Final = frozenset(
    {0xAD, *range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
)
"""Visible characters of category Cf: the soft hyphen, and signs before Arabic and Kaithi digits."""

_WIDE_LATELY: Final = re.compile(
    "[\u2630-\u2637\u268a-\u268f\u3248-\u324f\u4dc0-\u4dff\U0001d300-\U0001d356"
    "\U0001d360-\U0001d376]"
)
"""Symbols that are wide since Unicode 16, which a program's glibc may know and Python may not, and
numbers in black squares, which glibc counts as wide."""

_WIDE_UNASSIGNED: Final = re.compile(
    "[\u2ffc-\u2fff\u31e4\u31e5\u31ef\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U0001f6d8-\U0001f6ff\U0001fa70-\U0001faff"
    "\U00020000-\U0003fffd]"
)

_PICTURES: Final = re.compile(
    "[\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe\u2600-\u27bf"
    "\u2934\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa"
    "\U0001f400-\U0001faff]"
)
"""Roughly Extended_Pictographic of Unicode's emoji-data.txt, which Python lacks."""


def char_width(char: str) -> int:
    """Returns the columns of one character: 1, 2, 0 if it belongs to the one before, or `NOT_SHOWN`
    for control characters and invisible ones, such as those that change the writing direction."""
    code = ord(char)
    category = unicodedata.category(char)
    if category in ("Mn", "Me") or 0x1160 <= code <= 0x11FF or 0xD7B0 <= code <= 0xD7FB:
        return 0  # the ranges are Hangul vowels and finals, which join their initial
    if category == "Cf":
        if char in (ZWJ, ZWNJ) or 0xE0020 <= code <= 0xE007F:
            return 0
        return 1 if code in _VISIBLE_FORMATS else NOT_SHOWN
    if category in ("Cc", "Cs", "Zl", "Zp"):
        return NOT_SHOWN
    if category == "Cn":
        # Unassigned in Python's Unicode: in blocks of ideographs or emoji, it is a newer one.
        return 2 if _WIDE_UNASSIGNED.match(char) else 1
    is_wide = unicodedata.east_asian_width(char) in ("W", "F") or _WIDE_LATELY.match(char)
    return 2 if is_wide else 1


def is_picture(char: str) -> bool:
    """Whether it is an emoji or a symbol with an emoji form."""
    return _PICTURES.match(char) is not None


def is_regional(char: str) -> bool:
    """Whether it is a regional indicator, two of which make a flag."""
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def is_skin_tone(char: str) -> bool:
    return "\U0001f3fb" <= char <= "\U0001f3ff"


def joins_by_zwj(cluster: str, char: str) -> bool:
    """Whether a character that has a width still joins the cell before it, in any mode."""
    return cluster.endswith(ZWJ) and is_picture(char) and is_picture(cluster[0])


def joins(cluster: str, char: str) -> bool:
    """Whether a character that has a width still joins the cell before it, in mode 2027."""
    if cluster.endswith(ZWJ):
        return joins_by_zwj(cluster, char)
    if is_skin_tone(char):
        return is_picture(cluster[-1]) or cluster[-1] == VS16
    return len(cluster) == 1 and is_regional(char) and is_regional(cluster)


def widens(cluster: str, char: str) -> bool:
    """Whether adding ``char`` makes a cell of one column two columns wide, in mode 2027."""
    if char == VS16:
        return is_picture(cluster[0]) or cluster in KEYCAPS
    return joins(cluster, char)


def cluster_width(cluster: str) -> int:
    """Returns the columns of one cell's content, in mode 2027; without it they are those of the
    first character."""
    width = char_width(cluster[0])
    if width == 1 and any(widens(cluster[:n], cluster[n]) for n in range(1, len(cluster))):
        return 2
    return width


def has_room(cluster: str) -> bool:
    """Whether a cell can take one more code point."""
    if len(cluster) <= MARKS_MAX:
        return True
    is_emoji = is_picture(cluster[0]) or is_regional(cluster[0])
    return is_emoji and len(cluster) < EMOJI_MAX


_DISPUTED: Final = re.compile(
    "[\u200d\u20e3\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U0001f1e6-\U0001f1ff\U000e0020-\U000e007f]"
)


def is_disputed(text: str) -> bool:
    """Whether a text has characters that join emoji, so that its columns depend on who counts."""
    return _DISPUTED.search(text) is not None


def clusters_in(text: str, *, joined: bool = True) -> Iterator[str]:
    """Yields the parts of a text that share a cell, in mode 2027 or not (``joined=False``)."""
    joins_here = joins if joined else joins_by_zwj
    cluster = ""
    for char in text:
        if cluster and (char_width(char) == 0 or joins_here(cluster, char)) and has_room(cluster):
            cluster += char
            continue
        if cluster:
            yield cluster
        cluster = char
    if cluster:
        yield cluster


def counted(text: str, *, joined: bool) -> int:
    """Returns the columns that a text takes in mode 2027, or without it."""
    if joined:
        return sum(map(cluster_width, clusters_in(text)))
    return sum(max(0, char_width(cluster[0])) for cluster in clusters_in(text, joined=False))


class Widths(dict[str, int]):
    """A cache of `char_width`."""

    MAX = 8192

    def __missing__(self, char: str) -> int:
        if len(self) >= self.MAX:
            self.clear()
        self[char] = width = char_width(char)
        return width

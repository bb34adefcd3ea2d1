"""Text for people: foreign text made harmless, numbers made short."""

from __future__ import annotations

import os
import re
import sys
import unicodedata

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

COMBINING_MAX = 4
"""Marks on one letter. Languages need two or three; more is an attack on the line above."""

TITLE_CELLS = 40
"""Of a name in a dialog's title: with the words around it it fits in 80 columns."""

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, SOS, PM, APC with their end
    r"|\x1b[ -/]+[0-~]"  # character sets and the like
    r"|\x1b[0-Z\\`-~]"  # two characters
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one C1 character
)
_UNFIT = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls, invisible formats (bidi, zero-width, tags), surrogates, private, unassigned, and
Unicode's own line ends."""

_UNITS = "BKMGTP"


class _Printable(dict[int, str]):
    """A table for `str.translate` that learns each character when it is first met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if unicodedata.category(char) in _UNFIT or code in _INVISIBLE:
            kept = REPLACEMENT
        else:
            kept = " " if unicodedata.category(char) == "Zs" else char
        self[code] = kept
        return kept


_INVISIBLE = {
    0x034F,  # combining grapheme joiner
    0x115F,
    0x1160,
    0x3164,
    0xFFA0,  # Hangul fillers: wide or not, nothing is seen
    *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE10),
    *range(0xE0100, 0xE01F0),  # variation selectors
}
_PRINTABLE = _Printable()


def sanitise(text: str, *, limit: int = 500) -> str:
    """One line of foreign text (names, errors, guest output), fit to be shown.

    Escape sequences vanish; whatever else could move the cursor, turn the writing direction or
    hide is shown as U+FFFD. The result has no line end, no tab, and ``limit`` characters at most.
    """
    cut = text[: 4 * limit]
    if not (cut.isascii() and cut.isprintable()):
        cut = _SEQUENCE.sub("", cut).replace("\t", " ").translate(_PRINTABLE)
        cut = _thin_marks(cut)
    return cut if len(cut) <= limit else cut[: limit - 1] + "…"


def sanitise_lines(text: str, *, width: int = 2000) -> list[str]:
    """The lines of a foreign text, each `sanitise`d; of a line that overwrites itself with carriage
    returns, the last state."""
    lines = text.replace("\r\n", "\n").split("\n")
    return [sanitise(_last_state(line).expandtabs(8), limit=width) for line in lines]


def _last_state(line: str) -> str:
    line = line.rstrip("\r")
    return line.rpartition("\r")[2]


def _thin_marks(text: str) -> str:
    """Limit marks in a row; a mark with nothing to stand on is replaced."""
    if text.isascii():
        return text
    kept: list[str] = []
    run = 0
    for char in text:
        if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
            run += 1
            if run > COMBINING_MAX:
                continue
            kept.append(char if kept else REPLACEMENT)
        else:
            run = 0
            kept.append(char)
    return "".join(kept)


def size_text(count: int | None) -> str:
    """Bytes, short: 0, 512K, 1.5G; "–" if unknown."""
    if count is None:
        return "–"
    value, unit = float(count), 0
    # 999.5 and not 1024: four digits would need another column.
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    if unit == 0:
        return f"{int(value)}B" if count else "0"
    return f"{value:.1f}{_UNITS[unit]}" if value < 9.95 else f"{value:.0f}{_UNITS[unit]}"


def age_text(seconds: float | None) -> str:
    """A span of time in its largest unit: 12s, 5m, 3h, 2d, 6w, 1y; "–" if unknown."""
    if seconds is None:
        return "–"
    seconds = max(0, int(seconds))
    for size, unit, limit in (
        (1, "s", 60),
        (60, "m", 60),
        (3600, "h", 48),
        (86400, "d", 21),
        (604800, "w", 104),
    ):
        if seconds // size < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 31557600}y"


def percent_text(value: float | None) -> str:
    """A share of one CPU: 3%, 184%; "–" if unknown."""
    return "–" if value is None else f"{value:.0f}%"


def pause_text(seconds: float) -> str:
    """How long a VM stood still."""
    return f"{seconds * 1000:.0f} ms"


def clip(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, with an ellipsis if it was longer."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)) + "…" if width > 0 else ""


END_CELLS = 9
"""Of a text that is cut in its middle, the most that is kept of its end: a time of day."""


def clip_middle(text: str, width: int) -> str:
    """The same, but with the ellipsis before its end, which tells like names apart."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    room = min(END_CELLS, width // 3)
    start = len(text)
    while start and cell_len(text[start - 1 :]) <= room:
        start -= 1
    while start < len(text) and not cell_len(text[start]):
        start += 1  # belongs to the character before it
    end = text[start:]
    cut = set_cell_size(text, max(0, width - 1 - cell_len(end))) + "…" + end
    return cut if cell_len(cut) <= width else clip(text, width)


def ascii_only(wanted: bool | None = None) -> bool:
    """Whether the terminal can be trusted with ASCII only: the locale is not UTF-8, or the user
    says so with QUICKSAND_TUI_ASCII=1, or else with the config (``wanted``)."""
    wish = os.environ.get("QUICKSAND_TUI_ASCII", "")
    if wish:
        return wish != "0"
    if wanted is not None:
        return wanted
    stream = sys.__stderr__
    encoding = (stream.encoding or "") if stream is not None else ""
    return "utf" not in encoding.lower()


_ASCII = str.maketrans(
    {
        "●": "*",
        "◐": "~",
        "‖": "=",
        "○": "o",
        "✗": "x",
        "✓": "v",
        "◆": "#",
        "–": "-",
        "—": "-",
        "…": ".",
        "→": ">",
        "·": "-",
        "◂": "<",
        "▸": ">",
        "“": '"',
        "”": '"',
        "↑": "^",
        "↓": "v",
        "←": "<",
        "▁": "_",
        "▂": ".",
        "▃": "-",
        "▄": "-",
        "▅": "=",
        "▆": "=",
        "▇": "#",
        "█": "#",
        "░": ".",
        "♪": "!",
        REPLACEMENT: "?",
    }
)


def plain(text: str) -> str:
    """``text`` in ASCII: our own glyphs by their likes, anything else as a question mark."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")

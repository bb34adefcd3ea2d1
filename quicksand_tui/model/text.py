"""Makes foreign text harmless, and cuts text to fit.

Guests are hostile: a file name, a process's title or a console line may hold escape sequences that
retitle, recolour, make the terminal answer or hide text, and bidirectional controls that reorder
it. Characters that `str.isprintable` refuses, and marks piled upon one character, never reach a
terminal. What replaces them depends on the reader:

- the app shows text with `sanitise`: sequences vanish, other characters become U+FFFD, and the
  length is limited, since people only look at it;
- commands print text with `clean`: nothing vanishes and each such character is escaped, since
  output is copied, compared and piped, and two names that differ must not look the same;
- logs and other streams go through `Plain`, which also recognises sequences that are split between
  pieces.
"""

from __future__ import annotations

import codecs
import difflib
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from enum import Enum, auto
from typing import Any, TypeVar, cast

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

T = TypeVar("T")

COMBINING_MAX = 4
"""The most marks on one character. The most in use (Vietnamese, pointed Hebrew) are three or four;
more only serve to paint over the lines above."""

LINE_MAX = 1000
"""The most characters of a line after the `:` prompt."""

FACT_MAX = 1000
"""The most characters of a fact that are kept to be shown."""

TITLE_CELLS = 40
"""The most cells of a name in a dialog's title, so that the title fits into 80 columns."""

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, SOS, PM, APC with their end
    r"|\x1b[ -/]+[0-~]"  # character sets and the like
    r"|\x1b[0-Z\\`-~]"  # two characters
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one C1 character
)
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
"""Characters that are printable by their categories, but invisible. Commands print them, as they
are parts of names."""


class _Shown(dict[int, str]):
    """A table for `str.translate` that adds each character at its first use."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if unicodedata.category(char) == "Zs":
            shown = " "
        else:
            shown = char if char.isprintable() and code not in _INVISIBLE else REPLACEMENT
        self[code] = shown
        return shown


_SHOWN = _Shown()


def _count_marks(text: str) -> Iterator[tuple[str, int]]:
    """Yields each character, with the number of consecutive marks that end with it."""
    marks = 0
    for char in text:
        is_mark = unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me")
        marks = marks + 1 if is_mark else 0
        yield char, marks


def sanitise(text: str, *, limit: int = 500) -> str:
    """Returns one line of foreign text (names, errors, guest output) that is fit to be shown.

    Escape sequences vanish; anything else that could move the cursor, change the writing direction
    or be invisible becomes U+FFFD. The result has no line ends or tabs, and at most ``limit``
    characters.
    """
    cut = text[: 4 * limit]
    if not (cut.isascii() and cut.isprintable()):
        cut = _SEQUENCE.sub("", cut).replace("\t", " ").translate(_SHOWN)
        cut = _thin_marks(cut)
    return cut if len(cut) <= limit else cut[: limit - 1] + "…"


def cleaned(told: Mapping[str, Any]) -> dict[str, Any]:
    """Returns facts with each text after `sanitise`, but for the id, which is sent back."""
    return {
        name: sanitise(value, limit=FACT_MAX) if type(value) is str and name != "id" else value
        for name, value in told.items()
    }


LIMITS = {
    **{"name": 200, "id": 200},
    **dict.fromkeys(("note", "address", "host", "guest", "told"), 1000),
}
"""The most characters of texts of a thing that are not cut to the usual ones."""
TEXT_MAX = 500
"""The most characters of the others."""
VOLATILE_MAX = 20
"""The most paths that are kept of those that were only in the guest's memory."""
SENT_BACK = ("path", "key")
"""Texts that are never shown as they are."""


def harmless(kind: type[T], facts: T, **more: Any) -> T:
    """Returns a thing as a record of that kind with texts that are fit to be shown, but for those
    that are sent back; ``more`` are further facts."""
    told = {one.name: _fit(one.name, getattr(facts, one.name)) for one in fields(cast(Any, kind))}
    return kind(**{**told, **more})


def _fit(name: str, value: Any) -> Any:
    if type(value) is str and name not in SENT_BACK:
        return sanitise(value, limit=LIMITS.get(name, TEXT_MAX))
    if type(value) is tuple:
        some = value[:VOLATILE_MAX] if name == "volatile" else value
        limit = LIMITS.get(name, TEXT_MAX)
        return tuple(sanitise(one, limit=limit) if type(one) is str else one for one in some)
    return value


def sanitise_lines(text: str, *, width: int = 2000) -> list[str]:
    """Returns the lines of a foreign text after `sanitise`, each at most ``width`` characters long.
    Of a line that overwrites itself with carriage returns, only the last state is left."""
    lines = text.replace("\r\n", "\n").split("\n")
    return [sanitise(_last_state(line).expandtabs(8), limit=width) for line in lines]


def _last_state(line: str) -> str:
    line = line.rstrip("\r")
    return line.rpartition("\r")[2]


def _thin_marks(text: str) -> str:
    """Limits the marks in a row, and replaces a mark without a character before it."""
    if text.isascii():
        return text
    kept: list[str] = []
    for char, marks in _count_marks(text):
        if marks <= COMBINING_MAX:
            kept.append(REPLACEMENT if marks and not kept else char)
    return "".join(kept)


SURROGATE_BYTES = range(0xDC80, 0xDD00)
"""The characters that `os.fsdecode` makes of bytes that are not UTF-8."""


def error_text(error: Exception) -> str:
    """Returns the words of an error of the host, with the file that it is about, on one line."""
    if isinstance(error, OSError) and error.strerror:
        about = "" if error.filename is None else f"{error.filename}: "
        return sanitise(f"{about}{error.strerror}")
    said = str(error.args[0]) if error.args else ""
    return sanitise(said.partition("\n")[0]) or "it failed without saying why"


def clean(text: object, *, keep: str = "") -> str:
    r"""Returns ``text`` with every character that does not simply print escaped as ``\x1b``,
    ``\u202e`` and so on, except those in ``keep``.

    >>> clean("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in keep or (char.isprintable() and marks <= COMBINING_MAX) else _escape(char)
        for char, marks in _count_marks(text)
    )


def clean_lines(text: object) -> str:
    """Cleans a text as `clean` does, but keeps line breaks and tabs."""
    return clean(str(text).replace("\r\n", "\n"), keep="\n\t")


def _escape(char: str) -> str:
    code = ord(char)
    if code in SURROGATE_BYTES:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cells(text: str) -> int:
    """Returns the columns of a terminal that a `clean` text takes.

    Commands use this because importing rich takes longer than all of `ps` may. The app uses rich's
    count (`clip`), as Textual's layout does, and the emulator counts as guests do
    (`quicksand_vt.width`).
    """
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.category(c) in ("Mn", "Me") for c in text)


def drawn_cells(text: str) -> int:
    """Returns the columns that the app gives a text, by rich's count."""
    from rich.cells import cell_len  # noqa: PLC0415

    return cell_len(text)


def clip(text: str, width: int) -> str:
    """Returns ``text`` in at most ``width`` cells, with an ellipsis if it was longer."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)) + "…" if width > 0 else ""


END_CELLS = 9
"""The most cells of the end of a text that is cut in its middle: enough for a time of day."""


def clip_middle(text: str, width: int) -> str:
    """Clips a text as `clip` does, but keeps its end, which tells similar names apart."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

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
    """Returns whether the app should draw with ASCII only, because the locale is not UTF-8, or the
    user has set QUICKSAND_TUI_ASCII=1 or the config (``wanted``)."""
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
        "◌": "?",
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
        "─": "-",
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
        "⋯": ".",
        "▣": "@",
        "−": "-",
        REPLACEMENT: "?",
    }
)


def plain(text: str) -> str:
    """Returns ``text`` in ASCII: the app's own glyphs become similar characters, all others
    question marks."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def similar(text: str) -> str:
    """Returns ``text`` in ASCII: the app's own glyphs become similar characters, all others are
    escaped as Python does.

    >>> similar("→ 你")
    '> \\\\u4f60'
    """
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


class _State(Enum):
    """The position of `Plain` in an escape sequence (ECMA-48, as terminals read it)."""

    TEXT = auto()
    ESCAPE = auto()
    """After ESC, until a final byte."""
    CONTROL = auto()
    """Within a control sequence, until its final byte."""
    STRING = auto()
    """Within a string (title, device control), until BEL or ST."""
    STRING_ESCAPE = auto()
    """After ESC within a string."""


class Plain:
    """Strips a byte stream, piece by piece, to printable text, newlines and tabs."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = _State.TEXT

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Returns ``data`` after stripping. Sequences may be split between calls."""
        text = self._decoder.decode(data, final)
        return "".join(self._line(line) for line in text.splitlines(keepends=True))

    def _line(self, line: str) -> str:
        if self._state is _State.TEXT and line.removesuffix("\n").isprintable():
            return line
        return "".join(c for c in line if self._prints(c))

    def _prints(self, char: str) -> bool:
        match self._state:
            case _State.TEXT:
                return self._text(char)
            case _State.ESCAPE:
                self._escape(char)
            case _State.CONTROL:
                self._control(char)
            case _State.STRING:
                self._string(char)
            case _State.STRING_ESCAPE:
                # The string has ended in any case: ST is ESC and a backslash.
                self._state = _State.TEXT
                if char != "\\":
                    self._escape(char)
        return char == "\n" and self._state is _State.TEXT

    def _text(self, char: str) -> bool:
        if char == "\x1b":
            self._state = _State.ESCAPE
        elif char == "\x9b":
            self._state = _State.CONTROL
        elif char in "\x90\x98\x9d\x9e\x9f":
            self._state = _State.STRING
        return char.isprintable() or char in "\n\t"

    def _escape(self, char: str) -> None:
        if char == "[":
            self._state = _State.CONTROL
        elif char in "PX]^_":
            self._state = _State.STRING
        elif not "\x20" <= char <= "\x2f":  # intermediate bytes: more to come
            self._state = _State.ESCAPE if char == "\x1b" else _State.TEXT

    def _control(self, char: str) -> None:
        if char == "\x1b":
            self._state = _State.ESCAPE
        elif not "\x20" <= char <= "\x3f":
            self._state = _State.TEXT

    def _string(self, char: str) -> None:
        # A newline ends a string too: one that is not finished must not swallow the rest of the
        # log.
        if char in "\x07\x9c\n\x18\x1a":
            self._state = _State.TEXT
        elif char == "\x1b":
            self._state = _State.STRING_ESCAPE


WORD_MAX = 100
"""The longest word that is compared, in characters: longer words take long and resemble no name."""


def did_you_mean(word: str, names: Iterable[str], *, cutoff: float) -> str:
    """Returns the end of a sentence that offers the nearest names, or "" if none is near enough.
    ``cutoff`` is a similarity from 0.0 to 1.0, which stands for the very word."""
    near = difflib.get_close_matches(word[:WORD_MAX], list(names), n=2, cutoff=cutoff)
    return f"; did you mean {' or '.join(near)}?" if near else ""

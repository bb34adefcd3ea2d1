"""The contents of the terminal, so that of Textual's output only the differences are sent.

Textual draws a widget anew although most of it is as before, several times while the app starts.
Beyond a slow line that takes seconds: the first picture has 19 KB in place of 194, a move of the
cursor 0.7 in place of 18 (`bench/bandwidth.py`). Output is understood in the form in which Textual
writes it: moves, styles (SGR), links (OSC 8) and text. Anything else passes as it is, and what the
terminal shows then counts as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from rich.cells import cell_len

from quicksand_driver.columns import is_disputed, keep_columns

BLANKS_MIN: Final = 8
"""Shorter runs of blanks are written as they are: erasing takes as many bytes."""

SIZE_MAX: Final = 1000
"""The most rows and columns; beyond them, nothing is known."""

_TOKEN: Final = re.compile(
    r"\x1b\[(\d{1,4});(\d{1,4})H(?:\r?\n)?"
    r"|\x1b\[([\d;]*)m"
    r"|\x1b\]8;([^\x07\x1b]*)\x1b\\"
    r"|([^\x00-\x1f\x7f-\x9f]+)"
    r"|\r?\n(?=\x1b\[\d+;\d+H)"
)
_FRAME: Final = re.compile(r"\x1b\[\d+;\d+H")
_HARMLESS: Final = re.compile(
    r"(?:\x1b\[\?(?:2026|1004|200[0-9]|1000|1002|1003|1005|1006|1015|1016|25|12|2048|7)[hl]"
    r"|\x1b\[[<>=][\d;]*[um]|\x1b\[\?[\d;]*[un]|\x1b\[>[\d;]*q|\x1b\[\?[\d;]*\$p|\x1b\[c"
    r"|\x1b\[\d+ q"
    r"|\x1b\][1-9]\d*;[^\x07\x1b]*(?:\x07|\x1b\\)|\x07)+"
)
"""Sequences that leave the cells alone: modes, keyboards, questions, clipboard, pointer."""

_BLANKS: Final = re.compile(f" {{{BLANKS_MIN},}}")

_COLOURS: Final = {
    **{str(number): 0 for number in (*range(30, 38), 39, *range(90, 98))},
    **{str(number): 1 for number in (*range(40, 48), 49, *range(100, 108))},
}
"""The sixteen colours, and the default ones: 0 is the foreground, 1 the background."""
_OFF: Final = {
    **{"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "6": "25", "7": "27", "8": "28"},
    **{"9": "29", "21": "24", "53": "55"},
}
_SEEN_ON_BLANKS: Final = frozenset({"4", "5", "6", "7", "9", "21", "53"})
"""Attributes that an erased cell would not have."""


class Look(NamedTuple):
    """The style of a cell, as parameters of SGR, and its link."""

    foreground: str = ""
    background: str = ""
    attributes: tuple[str, ...] = ()
    link: str = ""

    @property
    def erasable(self) -> bool:
        """Whether a blank of this look can be made by erasing."""
        return not self.link and _SEEN_ON_BLANKS.isdisjoint(self.attributes)


PLAIN: Final = Look()


class Piece(NamedTuple):
    """Text in one look; row and column from 0."""

    row: int
    column: int
    text: str
    look: Look


class UnknownFormError(ValueError):
    """The output is not in the form that Textual writes."""


def erases_in_colour(environ: Mapping[str, str]) -> bool:
    """Whether the terminal erases in the background's colour. GNU screen does not by default."""
    in_screen = "STY" in environ or environ.get("TERM", "").startswith("screen")
    return not in_screen or "TMUX" in environ


class Shown:
    """The cells of a terminal, as far as they are known."""

    def __init__(self, *, erases: bool = True) -> None:
        """With ``erases``, the terminal erases in the background's colour, as nearly all do."""
        self._erases = erases
        self._size = (0, 0)
        self._cells: list[list[str]] = []
        """The content of each cell: a character, "" behind a wide one, or `UNKNOWN`."""
        self._looks: list[list[Look]] = []

    def forget(self) -> None:
        """Forgets all cells."""
        self._size = (0, 0)

    def slim(self, text: str, columns: int, rows: int) -> str:
        """Returns shorter output that leads to the same screen, of a terminal of this size."""
        if _FRAME.match(text) is None:
            if _HARMLESS.fullmatch(text) is None:
                self.forget()
            return text
        try:
            pieces = list(read(text))
        except UnknownFormError:
            self.forget()
            return keep_columns(text)
        if self._size != (columns, rows):
            self._begin(columns, rows)
        writer = Writer(columns, erases=self._erases)
        for piece in pieces:
            self._update(piece, writer)
        last = _last_place(text)
        return writer.finish(last)

    def _begin(self, columns: int, rows: int) -> None:
        columns, rows = min(columns, SIZE_MAX), min(rows, SIZE_MAX)
        self._size = (columns, rows)
        self._cells = [[UNKNOWN] * columns for _ in range(rows)]
        self._looks = [[PLAIN] * columns for _ in range(rows)]

    def _update(self, piece: Piece, writer: Writer) -> None:
        """Writes the part of a piece that is not shown yet."""
        columns, rows = self._size
        new = cells_of(piece.text)
        start, end = piece.column, piece.column + (len(new) if new else cell_len(piece.text))
        if piece.row >= rows or end > columns:
            self.forget()
            self._begin(columns, rows)
            writer.write(piece)
            return
        cells, looks = self._cells[piece.row], self._looks[piece.row]
        if new is None:
            cells[start:end] = [UNKNOWN] * (end - start)
            writer.write_disputed(piece, end)
            return
        if cells[start:end] == new and looks[start:end].count(piece.look) == len(new):
            return
        first, last = _difference(cells, looks, new, piece.look, start)
        # Writing half of a wide character blanks its other half.
        if cells[start + first] == "":
            cells[start + first - 1] = UNKNOWN
        if start + last < columns and cells[start + last] == "":
            cells[start + last] = UNKNOWN
        cells[start + first : start + last] = new[first:last]
        looks[start + first : start + last] = [piece.look] * (last - first)
        writer.write(Piece(piece.row, start + first, "".join(new[first:last]), piece.look))


UNKNOWN: Final = "\x00"
"""Stands in a cell of which nothing is known."""


def cells_of(text: str) -> list[str] | None:
    """Returns the content of each column of a text; None if terminals do not agree about it."""
    if text.isascii():
        return list(text)
    if is_disputed(text):
        return None
    cells: list[str] = []
    for char in text:
        width = cell_len(char)
        if width == 0:
            if not cells:
                return None
            at = -1 if cells[-1] else -2
            cells[at] += char
        else:
            cells += [char, ""] if width == 2 else [char]
    return cells if len(cells) == cell_len(text) else None


def _difference(
    cells: list[str], looks: list[Look], new: list[str], look: Look, start: int
) -> tuple[int, int]:
    """Returns the first cell of ``new`` that is not shown, and the cell after the last."""
    first, last = 0, len(new)
    while first < last and cells[start + first] == new[first] and looks[start + first] == look:
        first += 1
    while (
        last > first
        and cells[start + last - 1] == new[last - 1]
        and looks[start + last - 1] == look
    ):
        last -= 1
    # Wide characters are written whole.
    while first > 0 and new[first] == "":
        first -= 1
    while last < len(new) and new[last] == "":
        last += 1
    return first, last


def read(text: str) -> Iterator[Piece]:
    """Yields the pieces of Textual's output. Raises `UnknownFormError`."""
    at, row, column, look = 0, -1, 0, PLAIN
    link = ""
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnknownFormError
        at = match.end()
        down, right, style, address, written = match.groups()
        if down is not None:
            row, column = int(down) - 1, int(right) - 1
        elif style is not None:
            look = _look(style)
        elif address is not None:
            link = address if address != ";" else ""
        elif written is not None:
            if row < 0:
                raise UnknownFormError
            yield Piece(row, column, written, look._replace(link=link) if link else look)
            column += cell_len(written)


def _last_place(text: str) -> str:
    """Returns the move that ends the output, which places the cursor; "" if there is none."""
    at = text.rfind("\x1b[")
    return text[at:] if _FRAME.fullmatch(text, at) else ""


@lru_cache(1024)
def _look(parameters: str) -> Look:
    """Returns the look that SGR sets, beginning from none. Raises `UnknownFormError`."""
    colours = ["", ""]
    attributes: list[str] = []
    words = parameters.split(";")
    at = 0
    while at < len(words):
        word = words[at]
        if word in ("38", "48"):
            length = {"5": 3, "2": 5}.get("".join(words[at + 1 : at + 2]), 0)
            whole = words[at : at + length]
            if not length or len(whole) < length:
                raise UnknownFormError
            colours[word == "48"] = ";".join(whole)
            at += length
            continue
        if word in _COLOURS:
            colours[_COLOURS[word]] = "" if word in ("39", "49") else word
        elif word in ("", "0"):
            colours, attributes = ["", ""], []
        elif word in _OFF:
            attributes.append(word)
        else:
            raise UnknownFormError
        at += 1
    return Look(colours[0], colours[1], tuple(sorted(set(attributes))))


@lru_cache(4096)
def _change(shown: Look, wanted: Look) -> str:
    """Returns the shortest sequence that changes one style to another, without links."""
    if wanted[:3] == PLAIN[:3]:
        return "\x1b[m"
    gone = set(shown.attributes) - set(wanted.attributes)
    words = sorted({_OFF[word] for word in gone})
    # 22 ends both bold and dim, 24 both underlines.
    on = {w for w in wanted.attributes if w not in shown.attributes or _OFF[w] in words}
    words += sorted(on)
    for now, then, default in zip(shown[:2], wanted[:2], ("39", "49"), strict=True):
        if now != then:
            words.append(str(then) or default)
    anew = ["", *wanted.attributes, *filter(None, (wanted.foreground, wanted.background))]
    return f"\x1b[{min(';'.join(words), ';'.join(anew), key=len)}m"


class Writer:
    """Writes pieces with few bytes."""

    def __init__(self, columns: int, *, erases: bool) -> None:
        self._columns = columns
        self._erases = erases
        self._out: list[str] = []
        self._look = PLAIN
        self._place: tuple[int, int] | None = None
        """Row and column of the cursor, if known."""

    def write(self, piece: Piece) -> None:
        """Writes a piece whose columns all terminals count alike."""
        row, column, text, look = piece
        at = 0
        if self._erases and look.erasable:
            for match in _BLANKS.finditer(text):
                self._put(row, column, text[at : match.start()], look)
                column += cell_len(text[at : match.start()])
                self._blank(row, column, len(match[0]), look)
                column += len(match[0])
                at = match.end()
        self._put(row, column, text[at:], look)

    def _put(self, row: int, column: int, text: str, look: Look) -> None:
        if not text:
            return
        self._go(row, column)
        self._set(look)
        self._out.append(text)
        end = column + cell_len(text)
        # Behind the last column, terminals differ in where the cursor is.
        self._place = (row, end) if end < self._columns else None

    def _blank(self, row: int, column: int, count: int, look: Look) -> None:
        self._go(row, column)
        self._set(look)
        to_end = column + count >= self._columns
        self._out.append("\x1b[K" if to_end else f"\x1b[{count}X")

    def write_disputed(self, piece: Piece, end: int) -> None:
        """Writes a piece with characters that terminals count differently, up to ``end``."""
        row, column, text, look = piece
        self._set(look)
        # Its own move comes first, so that it knows the columns.
        self._out.append(keep_columns(f"\x1b[{row + 1};{column + 1}H{text}"))
        self._place = None

    def _go(self, row: int, column: int) -> None:
        if self._place == (row, column):
            return
        if self._place is not None and self._place[0] == row:
            self._out.append(f"\x1b[{column + 1}G")
        else:
            self._out.append(f"\x1b[{row + 1};{column + 1}H")
        self._place = (row, column)

    def _set(self, look: Look) -> None:
        if look == self._look:
            return
        if look.link != self._look.link:
            self._out.append(f"\x1b]8;{look.link or ';'}\x1b\\")
        if look[:3] != self._look[:3]:
            self._out.append(_change(self._look, look))
        self._look = look

    def finish(self, last: str) -> str:
        """Returns all output, with the look and the link ended and the cursor placed."""
        self._set(PLAIN)
        return "".join([*self._out, last])

"""Packs rows of the scrollback into a text and a few bytes each.

Strings and bytes are small, and the garbage collector skips them; ten thousand rows of lists take
20 MB (measured) and slow everything else down. The bytes are one of flags, then a record for each
run of cells with one style; cells without a record are `PLAIN`.

Trailing blanks are dropped unless the line wraps. A cell with more than one character stands
between two `SEPARATOR`s, with `WIDENED` before it if it is wider than its first character.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from quicksand_vt.cell_rows import (
    BLANK,
    CLUSTERS,
    NO_WRAP,
    SHORT_WRAP,
    WIDE,
    Row,
    Run,
    cell_runs,
    style_runs,
)
from quicksand_vt.style import PLAIN, STYLES_MAX, Style, Styles
from quicksand_vt.width import char_width

SEPARATOR: Final = "\x01"
WIDENED: Final = "\x02"
"""Control characters, which no cell can hold."""

_RECORD: Final = Struct("<H iii H B I I")
"""A run: its number of cells, then the fields of its `Style`."""
_LENGTH: Final = Struct("<H")
_PART: Final = 4
"""Bytes of the last field."""
_NO_PART: Final = bytes(_PART)

WRAP_BITS: Final = 0b11
_CLUSTERS: Final = 0b100
_MARK_SHIFT: Final = 3
_MARK_BITS: Final = 0b111
_PICTURES: Final = 0b1000000
"""Some cells show parts of pictures."""
_UNMARKED: Final = {ord(SEPARATOR): None, ord(WIDENED): None}
_FLAGS: Final = tuple(bytes((flags,)) for flags in range(128))
"""One shared object for each value: most rows have no other bytes."""


class Packed(NamedTuple):
    """A row of the scrollback."""

    text: str
    attributes: bytes

    @property
    def wrap(self) -> int:
        return self.attributes[0] & WRAP_BITS

    @property
    def mark(self) -> int:
        return self.attributes[0] >> _MARK_SHIFT & _MARK_BITS

    @property
    def has_pictures(self) -> bool:
        """Whether some cells show parts of pictures."""
        return bool(self.attributes[0] & _PICTURES)

    @property
    def is_plain(self) -> bool:
        """Whether every style is `PLAIN`."""
        return len(self.attributes) == 1

    @property
    def is_simple(self) -> bool:
        """Whether every cell is one ASCII character; combining characters are not ASCII."""
        return self.text.isascii()

    @property
    def shown_text(self) -> str:
        """Its characters, without trailing blanks unless it wraps."""
        text = self.text
        if self.attributes[0] & _CLUSTERS:
            text = text.translate(_UNMARKED)
        return text if self.wrap != NO_WRAP else text.rstrip(BLANK)

    @classmethod
    def simple(cls, text: str, wrap: int, mark: int) -> Packed:
        """Makes a plain row of ASCII characters, without trailing blanks."""
        return cls(text, _FLAGS[wrap | mark << _MARK_SHIFT])


StyleRun = tuple[int, bytes]
"""A number of cells, and the record of their style without its length."""


class Cells(NamedTuple):
    """An unpacked row: a string and a style for each column."""

    cells: list[str]
    styles: list[Style]


class _Widths(dict[str, int]):
    """A cache of the cells that a text of `Packer.texts` takes."""

    MAX = 8192

    def __missing__(self, text: str) -> int:
        if len(self) >= self.MAX:
            self.clear()
        wide = text[0] == WIDENED or char_width(text[0]) == 2
        self[text] = width = 2 if wide else 1
        return width


class Packer:
    """Packs and unpacks rows."""

    def __init__(self, styles: Styles) -> None:
        self._styles = styles
        self._records: dict[Style, bytes] = {}
        self._known: dict[bytes, Style] = {}
        self._widths = _Widths()
        self._plain = self._record(PLAIN)

    def pack(self, row: Row) -> tuple[str, bytes]:
        """Returns the fields of a `Packed`."""
        flags = row.wrap | row.mark << _MARK_SHIFT
        used = length = row.used
        text = "".join(row.cells[:used])
        if row.wrap == NO_WRAP:
            shown = text.rstrip(BLANK)
            length -= len(text) - len(shown)
            text = shown
            if row.styled > length:
                styled = _styled_length(row.styles, length, row.styled)
                text += BLANK * (styled - length)
                length = styled
        else:
            length = len(row.cells) - (row.wrap == SHORT_WRAP)
            text = text[: length - used] if length < used else text + BLANK * (length - used)
        if row.kind == CLUSTERS:
            text, clusters = _separate(text, row.cells[:length])
            flags |= clusters
        if not row.styled:
            return text, _FLAGS[flags]
        styles = row.styles[: min(length, row.styled)]
        if row.pictured and any(style.picture for style in styles):
            flags |= _PICTURES
        return text, _FLAGS[flags] + self._pack_styles(styles)

    # Parts of rows, for reflow, which does not unpack whole rows

    def texts(self, packed: Packed) -> list[str]:
        """Returns the contents of its cells, a wide one once, with `WIDENED` as it is packed."""
        if packed.attributes[0] & _CLUSTERS:
            texts: list[str] = []
            for number, part in enumerate(packed.text.split(SEPARATOR)):
                if number % 2:
                    texts.append(part)
                else:
                    texts += part
            return texts
        return list(packed.text)

    def text_widths(self, texts: list[str]) -> list[int]:
        """Returns how many cells each text takes."""
        widths = self._widths
        return [widths[text] for text in texts]

    def style_runs(self, packed: Packed, cells: int) -> list[StyleRun]:
        """Returns the styles of its first ``cells`` cells."""
        attributes, runs = packed.attributes, []
        for at in range(1, len(attributes), _RECORD.size):
            (count,) = _LENGTH.unpack_from(attributes, at)
            runs.append((count, attributes[at + _LENGTH.size : at + _RECORD.size]))
            cells -= count
        return [*runs, (cells, self._plain)] if cells > 0 else runs

    def pack_texts(self, texts: list[str], styles: list[StyleRun], wrap: int, mark: int) -> Packed:
        """Packs what `texts` returned; the last text must not be blank if the line ends here."""
        text, flags = "".join(texts), wrap | mark << _MARK_SHIFT
        if len(text) != len(texts):
            text, flags = _separated(texts), flags | _CLUSTERS
        if styles and styles[-1][1] == self._plain:
            styles = styles[:-1]
        records = [_LENGTH.pack(count) + record for count, record in styles]
        return Packed(text, b"".join([_FLAGS[flags], *records]))

    def cut(self, packed: Packed, columns: int) -> Packed:
        """Returns a row of the screen without what is beyond ``columns``, which ends its line."""
        if packed.is_simple:
            return self._cut_simple(packed, columns) if len(packed.text) > columns else packed
        cells = len(self.cells(packed))
        if cells <= columns:
            return packed
        row = self.unpack_row(packed, cells)
        row.resize(columns)
        return Packed(*self.pack(row))

    def _cut_simple(self, packed: Packed, columns: int) -> Packed:
        """Does `cut` for a longer row of ASCII characters without looking at its styles, for speed:
        each cell of a picture has one of its own."""
        attributes, styled, at = packed.attributes, 0, 1
        last, count = b"", 0
        while at < len(attributes) and styled < columns:
            (count,) = _LENGTH.unpack_from(attributes, at)
            last = attributes[at + _LENGTH.size : at + _RECORD.size]
            count = min(count, columns - styled)
            styled, at = styled + count, at + _RECORD.size
        records = attributes[1:at]
        if last:
            records = records[: -_RECORD.size] + _LENGTH.pack(count) + last
        if last == self._plain:
            styled, records = styled - count, records[: -_RECORD.size]
        text = packed.text[:columns].rstrip(BLANK)
        flags = packed.mark << _MARK_SHIFT
        if _shows_pictures(records):
            flags |= _PICTURES
        return Packed(text + BLANK * (styled - len(text)), _FLAGS[flags] + records)

    def _pack_styles(self, styles: list[Style]) -> bytes:
        """Returns the records of styles, without trailing `PLAIN` ones."""
        runs = style_runs(styles)
        if runs and runs[-1][1] == PLAIN:
            runs.pop()
        return b"".join([_LENGTH.pack(count) + self._record(style) for count, style in runs])

    def _record(self, style: Style) -> bytes:
        found = self._records.get(style)
        if found is None:
            if len(self._records) >= STYLES_MAX:
                self._records.clear()
            found = self._records[style] = _RECORD.pack(0, *style)[_LENGTH.size :]
        return found

    def _style(self, record: bytes) -> Style:
        found = self._known.get(record)
        if found is None:
            if len(self._known) >= STYLES_MAX:
                self._known.clear()
            _, *fields = _RECORD.unpack(bytes(_LENGTH.size) + record)
            found = self._known[record] = self._styles.intern(Style(*fields))
        return found

    def unpack(self, packed: Packed) -> Cells:
        cells = self.cells(packed)
        styles: list[Style] = []
        for count, style in self._styles_of(packed):
            styles += [style] * count
        return Cells(cells, styles + [PLAIN] * (len(cells) - len(styles)))

    def cells(self, packed: Packed) -> list[str]:
        """Returns the cells without their styles, which is faster than `unpack`."""
        text = packed.text
        if packed.is_simple:
            return list(text)
        cells: list[str] = []
        widths = self._widths
        for held in self.texts(packed):
            cells.append(held.lstrip(WIDENED))
            if widths[held] == 2:
                cells.append("")
        return cells

    def runs(self, packed: Packed) -> list[Run]:
        """Returns the runs to draw; the rest of the row is blank."""
        text = packed.text
        if not packed.is_simple:
            return cell_runs(*self.unpack(packed))
        runs, start = [], 0
        for count, style in self._styles_of(packed):
            runs.append(Run(text[start : start + count], style, count))
            start += count
        if start < len(text):
            runs.append(Run(text[start:], PLAIN, len(text) - start))
        return runs

    def _styles_of(self, packed: Packed) -> list[tuple[int, Style]]:
        return [(count, self._style(record)) for count, record in self.style_runs(packed, 0)]

    def unpack_row(self, packed: Packed, columns: int) -> Row:
        """Returns a row of the screen; the packed row must not be longer than ``columns``."""
        row = Row(columns)
        cells, styles = self.unpack(packed)
        row.cells[: len(cells)] = cells
        row.styles[: len(styles)] = styles
        row.used = row.styled = len(cells)
        if packed.attributes[0] & _CLUSTERS:
            row.kind = CLUSTERS
        elif not packed.is_simple:
            row.kind = WIDE
        row.wrap, row.mark, row.pictured = packed.wrap, packed.mark, packed.has_pictures
        return row


def _shows_pictures(records: bytes) -> bool:
    """Whether records name parts of pictures, in their last field."""
    ends = range(_RECORD.size, len(records) + 1, _RECORD.size)
    return any(records[end - _PART : end] != _NO_PART for end in ends)


def _separate(text: str, cells: list[str]) -> tuple[str, int]:
    """Returns the text of cells, and a flag if it needed separators."""
    if len(text) == len(cells) - cells.count(""):
        return text, 0
    kept = [c if len(c) < 2 else _marked(c, cells[x + 1 : x + 2]) for x, c in enumerate(cells)]
    return "".join(kept), _CLUSTERS


def _marked(cluster: str, after: list[str]) -> str:
    """Returns how a cluster is packed; ``after`` is the cell behind it, if there is one."""
    is_widened = after == [""] and char_width(cluster[0]) == 1
    return f"{SEPARATOR}{WIDENED if is_widened else ''}{cluster}{SEPARATOR}"


def _separated(texts: list[str]) -> str:
    return "".join([t if len(t) < 2 else f"{SEPARATOR}{t}{SEPARATOR}" for t in texts])


def _styled_length(styles: list[Style], length: int, end: int) -> int:
    """Returns the number of cells up to the last styled one, at least ``length``; cells from
    ``end`` on have no style."""
    while end > length and styles[end - 1] == PLAIN:
        end -= 1
    return end

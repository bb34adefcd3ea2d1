"""Rows of the scrollback: a text and a few bytes each.

Strings and bytes are small, and the garbage collector need not look at them: ten thousand rows of
lists cost 20 MB and slow everything else down. The bytes are one of flags, then a record for each
run of cells with one style; no record means that all are `PLAIN`.

Blanks at the end are left off, except where the line goes on in the next row. A cell that holds
more than one character stands between two `SEPARATOR`s, as otherwise it could not be told.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from quicksand_tui.terminal.rows import (
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
from quicksand_tui.terminal.style import PLAIN, STYLES_MAX, Style, Styles
from quicksand_tui.terminal.width import cluster_width

SEPARATOR: Final = "\x01"
"""A control character is in no cell."""

_RECORD: Final = Struct("<H iii H B I")
"""Of a run: how many cells; then the fields of its `Style`."""
_LENGTH: Final = Struct("<H")

WRAP_BITS: Final = 0b11
_CLUSTERS: Final = 0b100
_MARK_SHIFT: Final = 3
_FLAGS: Final = tuple(bytes((flags,)) for flags in range(64))
"""One object for each, as most rows have nothing else."""


class Packed(NamedTuple):
    """A row of the scrollback."""

    text: str
    attributes: bytes

    @property
    def wrap(self) -> int:
        return self.attributes[0] & WRAP_BITS

    @property
    def mark(self) -> int:
        return self.attributes[0] >> _MARK_SHIFT

    @property
    def is_plain(self) -> bool:
        """Every style is `PLAIN`."""
        return len(self.attributes) == 1

    @property
    def is_simple(self) -> bool:
        """Every cell is one ASCII character: what joins a character is none."""
        return self.text.isascii()

    @property
    def shown_text(self) -> str:
        """Its characters, without the blanks at its end unless it goes on in the next row."""
        text = self.text
        if self.attributes[0] & _CLUSTERS:
            text = text.replace(SEPARATOR, "")
        return text if self.wrap != NO_WRAP else text.rstrip(BLANK)

    @classmethod
    def simple(cls, text: str, wrap: int, mark: int) -> Packed:
        """A plain row of single characters. Blanks at its end must be gone."""
        return cls(text, _FLAGS[wrap | mark << _MARK_SHIFT])


StyleRun = tuple[int, bytes]
"""How many cells, and the record of their style without its length."""


class Cells(NamedTuple):
    """A row in the open: a string for each column, and its style."""

    cells: list[str]
    styles: list[Style]


class _Widths(dict[str, int]):
    """Cells that a character or a cluster takes, remembered for some thousand."""

    MAX = 8192

    def __missing__(self, text: str) -> int:
        if len(self) >= self.MAX:
            self.clear()
        wide = cluster_width(text) == 2
        self[text] = width = 2 if wide else 1
        return width


class Packer:
    """Packs rows, and unpacks them."""

    def __init__(self, styles: Styles) -> None:
        self._styles = styles
        self._records: dict[Style, bytes] = {}
        self._known: dict[bytes, Style] = {}
        self._widths = _Widths()
        self._plain = self._record(PLAIN)

    def pack(self, row: Row) -> tuple[str, bytes]:
        """The fields of a `Packed`."""
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
        return text, _FLAGS[flags] + self._pack_styles(row.styles[: min(length, row.styled)])

    # Parts of rows, which are never unpacked as a whole

    def texts(self, packed: Packed) -> list[str]:
        """What its cells hold; of wide characters the first of the two."""
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
        """How many cells each of them takes."""
        widths = self._widths
        return [widths[text] for text in texts]

    def style_runs(self, packed: Packed, cells: int) -> list[StyleRun]:
        """The styles of all its cells, of which there are so many."""
        attributes, runs = packed.attributes, []
        for at in range(1, len(attributes), _RECORD.size):
            (count,) = _LENGTH.unpack_from(attributes, at)
            runs.append((count, attributes[at + _LENGTH.size : at + _RECORD.size]))
            cells -= count
        return [*runs, (cells, self._plain)] if cells > 0 else runs

    def pack_texts(self, texts: list[str], styles: list[StyleRun], wrap: int, mark: int) -> Packed:
        """Pack what `texts` gives, of which the last is not blank if the line ends here."""
        text, flags = "".join(texts), wrap | mark << _MARK_SHIFT
        if len(text) != len(texts):
            text, flags = _separated(texts), flags | _CLUSTERS
        if styles and styles[-1][1] == self._plain:
            styles = styles[:-1]
        records = [_LENGTH.pack(count) + record for count, record in styles]
        return Packed(text, b"".join([_FLAGS[flags], *records]))

    def _pack_styles(self, styles: list[Style]) -> bytes:
        """Records of styles, without those that are `PLAIN` at the end."""
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
        """Without the styles, which is quicker."""
        text = packed.text
        if packed.is_simple:
            return list(text)
        cells: list[str] = []
        widths = self._widths
        for held in self.texts(packed):
            cells.append(held)
            if widths[held] == 2:
                cells.append("")
        return cells

    def runs(self, packed: Packed) -> list[Run]:
        """What is shown of it; the rest of the row is blank."""
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
        """A row of the screen again. It must not be longer than that is wide."""
        row = Row(columns)
        cells, styles = self.unpack(packed)
        row.cells[: len(cells)] = cells
        row.styles[: len(styles)] = styles
        row.used = row.styled = len(cells)
        if packed.attributes[0] & _CLUSTERS:
            row.kind = CLUSTERS
        elif not packed.is_simple:
            row.kind = WIDE
        row.wrap, row.mark = packed.wrap, packed.mark
        return row


def _separate(text: str, cells: list[str]) -> tuple[str, int]:
    """The text of cells, with separators if they are needed, and the flag that says so."""
    if len(text) == len(cells) - cells.count(""):
        return text, 0
    return _separated(cells), _CLUSTERS


def _separated(cells: list[str]) -> str:
    return "".join([c if len(c) < 2 else f"{SEPARATOR}{c}{SEPARATOR}" for c in cells])


def _styled_length(styles: list[Style], length: int, end: int) -> int:
    """How many cells there are up to the last that has a style, ``length`` at least; from ``end``
    on, none has."""
    while end > length and styles[end - 1] == PLAIN:
        end -= 1
    return end

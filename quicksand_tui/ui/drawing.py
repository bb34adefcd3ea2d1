"""Draws a screen as SVG or PNG. Both are made of the same runs of text at the same cells.

In the SVG each word has a place of its own, and there are no spaces: renderers treat runs of spaces
in different ways, also of non-breaking ones, and few keep to `textLength`. The PNG is drawn by
Pillow with a font that is shipped (`fonts/`, DejaVu Sans Mono), so it looks the same everywhere.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont
from rich.cells import cell_len
from rich.color import blend_rgb
from rich.terminal_theme import SVG_EXPORT_THEME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.color import Color
    from rich.color_triplet import ColorTriplet
    from rich.segment import Segment
    from rich.style import Style

CELL_WIDTH, CELL_HEIGHT = 12, 23
"""Pixels of a cell at FONT_SIZE: a character of the font is 12.04 wide and 23.3 high, so that lines
that are made of several characters have no gaps."""
FONT_SIZE = 20
BASELINE = 18
"""Pixels from a cell's top to the line on which characters stand."""
MARGIN = 10
"""Pixels around the cells; above them is the title."""
TITLE_HEIGHT = 40
DIM = 0.4
"""The share of the background that is mixed into dim text, as in Rich's pictures."""

FONTS = Path(__file__).parent / "fonts"
MISSING_FONTS = (
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/noto-cjk/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/truetype/wqy/wqy-microhei.ttc",
    "/usr/share/fonts/truetype/unifont/unifont.ttf",
    "/System/Library/Fonts/PingFang.ttc",
    "/System/Library/Fonts/Apple Symbols.ttf",
)
"""Fonts of hosts for characters that the shipped font lacks."""

FAMILIES = "'DejaVu Sans Mono', Menlo, Consolas, 'Fira Code', monospace"
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Run:
    """Text of one look in one row."""

    row: int
    column: int
    """The first cell."""
    cells: int
    text: str
    colour: str
    """The colour as #rrggbb."""
    background: str
    bold: bool = False
    italic: bool = False
    underline: bool = False
    strike: bool = False

    def words(self) -> Iterator[tuple[int, str]]:
        """Yields each word without spaces, with its first cell."""
        for found in _WORD.finditer(self.text):
            yield self.column + cell_len(self.text[: found.start()]), found[0]


def runs_of(lines: Sequence[Sequence[Segment]]) -> Iterator[Run]:
    """Yields the runs of the rows of a screen, without empty ones."""
    for row, line in enumerate(lines):
        column = 0
        for text, style, control in line:
            width = cell_len(text)
            if not width or control:
                continue
            yield _run(row, column, width, text.replace("\xa0", " "), style)
            column += width


def _run(row: int, column: int, width: int, text: str, style: Style | None) -> Run:
    if style is None:
        return Run(row, column, width, text, _FOREGROUND.hex, _BACKGROUND.hex)
    colour = _triplet(style.color, _FOREGROUND)
    background = _triplet(style.bgcolor, _BACKGROUND)
    if style.reverse:
        colour, background = background, colour
    if style.dim:
        colour = blend_rgb(colour, background, DIM)
    return Run(
        row,
        column,
        width,
        text,
        colour.hex,
        background.hex,
        bold=bool(style.bold),
        italic=bool(style.italic),
        underline=bool(style.underline),
        strike=bool(style.strike),
    )


_FOREGROUND = SVG_EXPORT_THEME.foreground_color
_BACKGROUND = SVG_EXPORT_THEME.background_color


def _triplet(colour: Color | None, otherwise: ColorTriplet) -> ColorTriplet:
    if colour is None or colour.is_default:
        return otherwise
    return colour.get_truecolor(SVG_EXPORT_THEME)


def _place(column: int, row: int) -> tuple[int, int]:
    """Returns the left upper pixel of a cell."""
    return MARGIN + column * CELL_WIDTH, TITLE_HEIGHT + row * CELL_HEIGHT


def _extent(size: tuple[int, int]) -> tuple[int, int]:
    columns, rows = size
    return 2 * MARGIN + columns * CELL_WIDTH, TITLE_HEIGHT + rows * CELL_HEIGHT + MARGIN


# SVG


def to_svg(runs: Sequence[Run], size: tuple[int, int], title: str) -> str:
    """Returns the picture of a screen of so many columns and rows."""
    width, height = _extent(size)
    styles: dict[str, str] = {}
    backgrounds = [_rect(run) for run in runs if run.background != _BACKGROUND.hex]
    texts = [text for run in runs for text in _texts(run, styles)]
    rules = "\n".join(f".{name} {{ {rule} }}" for rule, name in styles.items())
    parts = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">',
        f"<style>text {{ font-family: {FAMILIES}; font-size: {FONT_SIZE}px; }}\n{rules}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{_BACKGROUND.hex}"/>',
        *(
            f'<circle cx="{22 * number + 22}" cy="{TITLE_HEIGHT // 2}" r="7" fill="{colour}"/>'
            for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        ),
        f'<text x="{width // 2}" y="{TITLE_HEIGHT // 2 + 6}" text-anchor="middle" '
        f'fill="{_FOREGROUND.hex}">{escape(title)}</text>',
        '<g shape-rendering="crispEdges">',
        *backgrounds,
        "</g>",
        *texts,
        "</svg>",
    )
    return "\n".join(parts) + "\n"


def _rect(run: Run) -> str:
    x, y = _place(run.column, run.row)
    return (
        f'<rect x="{x}" y="{y}" width="{run.cells * CELL_WIDTH}" height="{CELL_HEIGHT}" '
        f'fill="{run.background}"/>'
    )


def _texts(run: Run, styles: dict[str, str]) -> Iterator[str]:
    rule = f"fill: {run.colour};"
    rule += " font-weight: bold;" if run.bold else ""
    rule += " font-style: italic;" if run.italic else ""
    lines = ["underline"] * run.underline + ["line-through"] * run.strike
    rule += f" text-decoration: {' '.join(lines)};" if lines else ""
    for column, word in run.words():
        name = styles.setdefault(rule, f"s{len(styles)}")
        x, y = _place(column, run.row)
        length = cell_len(word) * CELL_WIDTH
        yield (
            f'<text class="{name}" x="{x}" y="{y + BASELINE}" textLength="{length}">'
            f"{escape(word)}</text>"
        )


# PNG


def to_png(runs: Sequence[Run], size: tuple[int, int], title: str) -> bytes:
    """Returns the picture of a screen of so many columns and rows. Raises OSError if the font
    cannot be read."""
    picture = Image.new("RGB", _extent(size), _BACKGROUND.hex)
    draw = ImageDraw.Draw(picture)
    fonts = _Fonts()
    for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        middle = 22 * number + 22
        top = TITLE_HEIGHT // 2
        draw.ellipse((middle - 7, top - 7, middle + 7, top + 7), fill=colour)
    place = (picture.width // 2, TITLE_HEIGHT // 2 + 6)
    draw.text(place, title, font=fonts.shipped(bold=False), fill=_FOREGROUND.hex, anchor="ms")
    for run in runs:
        left, top = _place(run.column, run.row)
        right = left + run.cells * CELL_WIDTH - 1
        if run.background != _BACKGROUND.hex:
            draw.rectangle((left, top, right, top + CELL_HEIGHT - 1), fill=run.background)
    for run in runs:
        for column, word in run.words():
            _draw_word(draw, fonts, run, column, word)
    output = io.BytesIO()
    picture.save(output, "PNG", optimize=True)
    return output.getvalue()


def _draw_word(draw: ImageDraw.ImageDraw, fonts: _Fonts, run: Run, column: int, word: str) -> None:
    for cluster in _clusters(word):
        left, top = _place(column, run.row)
        width = cell_len(cluster) * CELL_WIDTH
        column += cell_len(cluster)
        font = fonts.find(cluster, bold=run.bold)
        if font is None:
            box = (left + 2, top + 4, left + width - 3, top + CELL_HEIGHT - 5)
            draw.rectangle(box, outline=run.colour)
        else:
            draw.text((left, top + BASELINE), cluster, font=font, fill=run.colour, anchor="ls")
        for wanted, line in ((run.underline, BASELINE + 2), (run.strike, CELL_HEIGHT // 2)):
            if wanted:
                draw.line((left, top + line, left + width - 1, top + line), fill=run.colour)


def _clusters(word: str) -> Iterator[str]:
    """Yields each character with those of no width that follow it."""
    found = ""
    for character in word:
        if found and cell_len(character):
            yield found
            found = ""
        found += character
    if found:
        yield found


class _Fonts:
    """The shipped font, and the host's fonts for characters that it lacks."""

    def __init__(self) -> None:
        self._shipped = {
            bold: ImageFont.truetype(str(FONTS / f"DejaVuSansMono{suffix}.ttf"), FONT_SIZE)
            for bold, suffix in ((False, ""), (True, "-Bold"))
        }
        self._others: list[ImageFont.FreeTypeFont] | None = None
        self._known: dict[tuple[str, bool], ImageFont.FreeTypeFont | None] = {}

    def shipped(self, *, bold: bool) -> ImageFont.FreeTypeFont:
        return self._shipped[bold]

    def find(self, cluster: str, *, bold: bool) -> ImageFont.FreeTypeFont | None:
        """Returns a font that has a character; None if there is none."""
        key = (cluster[0], bold)
        if key not in self._known:
            fonts = [self._shipped[bold]]
            if not _has(fonts[0], cluster[0]):
                fonts = [font for font in self._of_host() if _has(font, cluster[0])]
            self._known[key] = fonts[0] if fonts else None
        return self._known[key]

    def _of_host(self) -> list[ImageFont.FreeTypeFont]:
        if self._others is None:
            found = (name for name in MISSING_FONTS if Path(name).is_file())
            self._others = [ImageFont.truetype(name, FONT_SIZE - 1) for name in found]
        return self._others


def _has(font: ImageFont.FreeTypeFont, character: str) -> bool:
    """Whether a font has a character: those that it lacks look like one that no font has."""
    there, nowhere = (bytes(font.getmask(c, mode="1")) for c in (character, "\U0010fffd"))
    return there != nowhere

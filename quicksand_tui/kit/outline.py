"""Draws the outline of the main screen while the app is loading.

Loading takes some tenths of a second, mostly for Textual; with the outline, the screen changes
once and early. It has the looks of the last run, so the first run has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from quicksand_tui.model.geometry import Rect
from quicksand_tui.views.frames import Edge
from quicksand_tui.views.layout import (
    COMMAND_LINE_FROM,
    USUAL_NEEDS,
    Needs,
    Part,
    Shape,
    arrange,
)

NAME = "outline"
"""The name of the looks in `Remembered`."""

BRAND = "quicksand"
TITLES = {Part.LISTS: "1 Sandboxes", Part.TREE: "4 Tree", Part.AREA: "", Part.ASIDE: ""}
"""The beginnings of the parts' titles; the area's depends on its content."""

COLUMNS_MAX, ROWS_MAX = 1000, 500
"""The largest terminal that is believed."""

ROUND, HEAVY, ASCII = tuple("─│╰╯"), tuple("━┃┗┛"), tuple("-|++")
"""Line, side, and lower corners of Textual's borders of these names."""

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """The looks of the screen. Colours are #rrggbb, or "" for the terminal's own."""

    ascii: bool = False
    background: str = ""
    text: str = ""
    """The colour of titles."""
    border: str = ""
    accent: str = ""
    """The colour of the focused part's frame."""

    terminal: str = ""
    """The terminal's `terminal_name`: another one may have another background."""

    def fitting(self, environ: Mapping[str, str]) -> Looks:
        """Returns the looks, without colours in another terminal or with NO_COLOR."""
        true_colours = environ.get("COLORTERM") in ("truecolor", "24bit")
        if true_colours and not environ.get("NO_COLOR") and self.terminal == terminal_name(environ):
            return self
        return Looks(ascii=self.ascii)

    def to_json(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, value: object) -> Looks | None:
        """Reads looks; returns None if any part is invalid, since users may edit the file."""
        names = {field.name for field in fields(cls)}
        if not isinstance(value, dict) or set(value) != names:
            return None
        values: dict[str, Any] = dict(value)
        if not isinstance(values.pop("ascii"), bool) or not isinstance(values.pop("terminal"), str):
            return None
        if not all(isinstance(v, str) and (not v or _COLOUR.fullmatch(v)) for v in values.values()):
            return None
        return cls(**value)


def looks_of(variables: Mapping[str, str], environ: Mapping[str, str], *, plain: bool) -> Looks:
    """Returns the looks of a theme, given its variables; ``plain`` means ASCII."""

    def colour(name: str) -> str:
        value = variables.get(name, "")
        return value if _COLOUR.fullmatch(value) else ""

    return Looks(
        ascii=plain,
        background=colour("background"),
        text=colour("foreground"),
        border=colour("border"),
        accent=colour("accent"),
        terminal=terminal_name(environ),
    )


def terminal_name(environ: Mapping[str, str]) -> str:
    """Returns a name for the kind of terminal."""
    return " ".join(environ.get(word, "") for word in ("TERM_PROGRAM", "TERM", "COLORTERM"))


def outline(columns: int, rows: int, looks: Looks, shape: Shape, needs: Needs = USUAL_NEEDS) -> str:
    """Returns the sequences that draw the outline on the alternate screen; "" without room."""
    # Leaves the lines at the top, of the keys and, if there is room, of the command.
    height = rows - (3 if rows >= COMMAND_LINE_FROM else 2)
    if not (0 < columns <= COLUMNS_MAX and 0 < height <= ROWS_MAX):
        return ""
    drawn = []
    if columns >= len(BRAND) + 2:
        drawn.append(f"\x1b[1;3H{_sgr(looks.accent, looks.background, bold=True)}{BRAND}")
    arrangement = arrange(columns, height, shape, Part.LISTS, needs)
    for part, place in arrangement.places.items():
        box = Rect(place.x, place.y + 1, place.width, place.height)
        above = arrangement.above(part)
        edge = Edge(joined=above is not None, lit=part is Part.LISTS, above_lit=above is Part.LISTS)
        drawn.append(_box(box, TITLES[part], looks, edge))
    if not any(drawn):
        return ""
    clear = f"\x1b[?1049h\x1b[?25l{_sgr(looks.text, looks.background)}\x1b[H\x1b[2J"
    return "".join([clear, *drawn, "\x1b[m"])


def _box(box: Rect, title: str, looks: Looks, edge: Edge) -> str:
    if box.width < len(title) + 6 or box.height < 2:
        return ""
    border = _sgr(looks.accent if edge.lit else looks.border, looks.background)
    heavy = _sgr(looks.accent if edge.heavy else looks.border, looks.background)
    line, side, c, d = ASCII if looks.ascii else HEAVY if edge.lit else ROUND
    words = _sgr(looks.accent if edge.lit else looks.text, looks.background, bold=True)
    named = f" {words}{title}{heavy} " if title else ""
    a, dash, b = edge.line(ascii_only=looks.ascii)
    rest = dash * (box.width - 3 - (len(title) + 2 if title else 0))
    bottom = box.y + box.height - 1
    return "".join(
        [
            f"{_at(box.x, box.y)}{heavy}{a}{dash}{named}{rest}{b}{border}",
            *(
                f"{_at(box.x, y)}{side}{_at(box.x + box.width - 1, y)}{side}"
                for y in range(box.y + 1, bottom)
            ),
            f"{_at(box.x, bottom)}{c}{line * (box.width - 2)}{d}",
        ]
    )


def _at(x: int, y: int) -> str:
    return f"\x1b[{y + 1};{x + 1}H"


def _sgr(text: str, background: str, *, bold: bool = False) -> str:
    words = ["0", *(["1"] if bold else []), *_colour("38", text), *_colour("48", background)]
    return f"\x1b[{';'.join(words)}m"


def _colour(which: str, colour: str) -> list[str]:
    if not colour:
        return []
    return [which, "2", *(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))]

"""Draws the outline of the main screen while the app is loading.

Loading takes some tenths of a second, mostly for Textual; with the outline, the screen changes
once and early. It has the looks of the last run, so the first run has none. Rows of sandboxes are
drawn in `first_list`, which is imported later: its imports take 17 ms, and the outline 3.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from quicksand.things.frozen import frozen

from quicksand_tui.model.geometry import Rect
from quicksand_tui.views.main_layout import (
    USUAL_NEEDS,
    Edge,
    Needs,
    Part,
    Shape,
    arrange,
    rows_left,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "outline"
"""The name of the looks in `Remembered`."""

BRAND = "quicksand"
TITLES = {Part.LISTS: "1 Sandboxes", Part.TREE: "4 Tree", Part.AREA: "", Part.ASIDE: ""}
"""The beginnings of the parts' titles; the area's depends on its content."""

HEAD = "head"
"""The role of a list's head."""

COLUMNS_MAX, ROWS_MAX = 1000, 500
"""The largest terminal that is believed."""

ROUND, HEAVY, ASCII = tuple("─│╰╯"), tuple("━┃┗┛"), tuple("-|++")
"""Line, side, and lower corners of Textual's borders of these names."""

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


class Box(NamedTuple):
    """The frame of a part."""

    place: Rect
    edge: Edge
    """Its first line, which it may share with the box above."""


@frozen
class Looks:
    """The looks of the screen. Colours are #rrggbb, or "" for the terminal's own."""

    ascii: bool = False
    background: str = ""
    text: str = ""
    """The colour of titles."""
    border: str = ""
    accent: str = ""
    """The colour of the focused part's frame."""
    title: str = ""
    """The colour of the title of the focused part."""
    head: str = ""
    """The colour of the list's head."""
    muted: str = ""
    """The colour of secondary text; after it, the colours of the states."""
    success: str = ""
    warning: str = ""
    error: str = ""
    spark: str = ""
    """The colour of small graphs."""

    terminal: str = ""
    """The terminal's `terminal_name`: another terminal may have another background."""

    def fitting(self, environ: Mapping[str, str]) -> Looks:
        """Returns the looks, without colours in another terminal or with NO_COLOR."""
        true_colours = environ.get("COLORTERM") in ("truecolor", "24bit")
        if true_colours and not environ.get("NO_COLOR") and self.terminal == terminal_name(environ):
            return self
        return Looks(ascii=self.ascii)

    def of(self, role: str) -> str:
        """Returns the colour of HEAD, or of a role of `views.rows.Cell`."""
        colours = {
            HEAD: self.head,
            "muted": self.muted,
            "success": self.success,
            "warning": self.warning,
            "error": self.error,
            "accent": self.spark,
        }
        return colours.get(role, self.text)

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
    """Returns the looks of a theme from its variables; ``plain`` means ASCII."""

    def colour(name: str) -> str:
        value = variables.get(name, "")
        return value if _COLOUR.fullmatch(value) else ""

    return Looks(
        ascii=plain,
        background=colour("background"),
        text=colour("foreground"),
        border=colour("border"),
        accent=colour("accent"),
        title=colour("text-accent"),
        head=_muted_of(variables),
        muted=colour("foreground-muted"),
        success=colour("text-success"),
        warning=colour("text-warning"),
        error=colour("text-error"),
        spark=colour("text-accent"),
        terminal=terminal_name(environ),
    )


def _muted_of(variables: Mapping[str, str]) -> str:
    """Returns the colour of muted text, which Textual gives as percents of black or white: "auto
    60%"."""
    value, background = variables.get("text-muted", ""), variables.get("background", "")
    if _COLOUR.fullmatch(value):
        return value
    if not value.startswith("auto ") or not _COLOUR.fullmatch(background):
        return ""
    share = int(value.removeprefix("auto ").rstrip("%")) / 100
    red, green, blue = (int(background[start : start + 2], 16) for start in (1, 3, 5))
    ink = 255 if (299 * red + 587 * green + 114 * blue) / 255_000 < 0.5 else 0
    mixed = (int(part + (ink - part) * share) for part in (red, green, blue))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def terminal_name(environ: Mapping[str, str]) -> str:
    """Returns a name for the kind of terminal."""
    return " ".join(environ.get(word, "") for word in ("TERM_PROGRAM", "TERM", "COLORTERM"))


def boxes(columns: int, rows: int, shape: Shape, needs: Needs = USUAL_NEEDS) -> dict[Part, Box]:
    """Returns the places of the parts' frames on the screen; none without room."""
    height = rows_left(rows)
    if not (0 < columns <= COLUMNS_MAX and 0 < height <= ROWS_MAX):
        return {}
    arrangement = arrange(columns, height, shape, Part.LISTS, needs)
    found = {}
    for part, place in arrangement.places.items():
        above = arrangement.above(part)
        edge = Edge(joined=above is not None, lit=part is Part.LISTS, above_lit=above is Part.LISTS)
        box = Box(Rect(place.x, place.y + 1, place.width, place.height), edge)
        if box.place.width >= len(TITLES[part]) + 6 and box.place.height >= 2:
            found[part] = box
    return found


def outline(columns: int, rows: int, looks: Looks, shape: Shape, needs: Needs = USUAL_NEEDS) -> str:
    """Returns the sequences that draw the outline on the alternate screen; "" without room."""
    drawn = frames(columns, rows, looks, shape, needs)
    return f"\x1b[?1049h\x1b[?25l{drawn}" if drawn else ""


def frames(columns: int, rows: int, looks: Looks, shape: Shape, needs: Needs) -> str:
    """Returns the sequences that draw the outline on an empty screen; "" without room."""
    found = boxes(columns, rows, shape, needs)
    has_brand = len(BRAND) + 2 <= columns <= COLUMNS_MAX and rows > 2
    if not found and not has_brand:
        return ""
    brand = f"\x1b[1;3H{sgr(looks.title, looks.background, bold=True)}{BRAND}"
    drawn = [brand if has_brand else ""]
    for part, box in found.items():
        drawn.append(_box(box, TITLES[part], looks))
    return "".join([sgr(looks.text, looks.background), "\x1b[H\x1b[2J", *drawn, "\x1b[m"])


def _box(box: Box, title: str, looks: Looks) -> str:
    place, edge = box
    border = sgr(looks.accent if edge.lit else looks.border, looks.background)
    heavy = sgr(looks.accent if edge.heavy else looks.border, looks.background)
    line, side, c, d = ASCII if looks.ascii else HEAVY if edge.lit else ROUND
    words = sgr(looks.title if edge.lit else looks.text, looks.background, bold=True)
    named = f" {words}{title}{heavy} " if title else ""
    a, dash, b = edge.line(ascii_only=looks.ascii)
    rest = dash * (place.width - 3 - (len(title) + 2 if title else 0))
    bottom = place.y + place.height - 1
    return "".join(
        [
            f"{at(place.x, place.y)}{heavy}{a}{dash}{named}{rest}{b}{border}",
            *(
                f"{at(place.x, y)}{side}{at(place.x + place.width - 1, y)}{side}"
                for y in range(place.y + 1, bottom)
            ),
            f"{at(place.x, bottom)}{c}{line * (place.width - 2)}{d}",
        ]
    )


def at(x: int, y: int) -> str:
    """Returns the sequence that moves to a cell."""
    return f"\x1b[{y + 1};{x + 1}H"


def sgr(text: str, background: str, *, bold: bool = False) -> str:
    """Returns the sequence that sets two colours as `Looks` has them."""
    words = ["0", *(["1"] if bold else []), *_colour("38", text), *_colour("48", background)]
    return f"\x1b[{';'.join(words)}m"


def ink(text: str) -> str:
    """Returns the sequence that sets the colour of the following text, on the same background."""
    return f"\x1b[{';'.join(_colour('38', text) or ['39'])}m"


def _colour(which: str, colour: str) -> list[str]:
    if not colour:
        return []
    return [which, "2", *(str(int(colour[start : start + 2], 16)) for start in (1, 3, 5))]

"""Where the parts of the main screen are, for any size of the terminal. Pure: no widgets.

Three columns where there is room, two (the tree below the lists) in most terminals, one above the
other in a small one: there the tree is a tab of the main area. In a very small one, and when it is
zoomed, the part that has the focus has all to itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


class Part(StrEnum):
    LISTS = "lists"
    TREE = "tree"
    AREA = "area"


class Tab(StrEnum):
    """What the main area shows; the tree is one where it has no place of its own."""

    TREE = "tree"
    DETAILS = "details"
    SHELLS = "shells"
    LOG = "log"
    STATS = "stats"


class Rect(NamedTuple):
    """Cells."""

    x: int
    y: int
    width: int
    height: int


THREE_COLUMNS = 150
TWO_COLUMNS = 100
"""Cells of width from which there are so many."""
LOW = 13
"""Rows below which there is one part at a time."""
NARROW = 50
"""The same, in cells."""
LISTS_MIN, TREE_MIN, AREA_MIN = 30, 26, 40
"""Cells that a column keeps."""
LISTS_USUAL, AREA_USUAL = 36, 80
"""Cells that they have while nobody has chosen: a shell is best with its 80."""
TABS_FROM = 8
"""Rows of the lists from which they have their tabs above."""
COMMAND_LINE_FROM = 20
"""Rows of the terminal from which there is a line for the command."""
ROWS_MIN = 5
"""Rows that a part keeps."""
STEP = 4
"""Cells by which a column is made wider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the user has chosen."""

    lists: int = 0
    """Cells of the first column; 0 for what suits the terminal."""
    tree: int = 0
    """Cells of the second of three columns."""
    tab: Tab = Tab.DETAILS
    zoomed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Parts that are shown, and whether the tree is a tab."""

    places: dict[Part, Rect]
    tree_is_tab: bool


def columns(width: int) -> int:
    """How many columns fit."""
    return 3 if width >= THREE_COLUMNS else 2 if width >= TWO_COLUMNS else 1


def arrange(width: int, height: int, shape: Shape, focus: Part) -> Arrangement:
    """Places of the parts in ``width`` × ``height`` cells; ``focus`` has the focus."""
    count = columns(width)
    tree_is_tab = count == 1
    whole = Rect(0, 0, width, height)
    shells = focus is Part.AREA and shape.tab is Tab.SHELLS
    if shape.zoomed or (count == 1 and (height < LOW or width < NARROW or shells)):
        return Arrangement(places=_alone(whole, focus, tree_is_tab), tree_is_tab=tree_is_tab)
    split = {1: _stacked, 2: _two, 3: _three}[count]
    places = split(width, height, shape)
    if count == 2 and height < LOW:
        places = _one_beside(places, height, focus)
    return Arrangement(places=places, tree_is_tab=tree_is_tab)


def _one_beside(places: dict[Part, Rect], height: int, focus: Part) -> dict[Part, Rect]:
    """Lists or tree beside the main area, where there is no height for both."""
    part = Part.TREE if focus is Part.TREE else Part.LISTS
    return {part: Rect(0, 0, places[Part.LISTS].width, height), Part.AREA: places[Part.AREA]}


def _alone(whole: Rect, focus: Part, tree_is_tab: bool) -> dict[Part, Rect]:
    if focus is Part.TREE and tree_is_tab:
        return {Part.AREA: whole, Part.TREE: below_tabs(whole)}
    return {focus: whole}


def below_tabs(area: Rect) -> Rect:
    """What the main area has below its line of tabs."""
    return Rect(area.x, area.y + 1, area.width, max(0, area.height - 1))


def _stacked(width: int, height: int, shape: Shape) -> dict[Part, Rect]:
    rows = max(ROWS_MIN, height * 9 // 20)
    area = Rect(0, rows, width, height - rows)
    places = {Part.LISTS: Rect(0, 0, width, rows), Part.AREA: area}
    if shape.tab is Tab.TREE:
        places[Part.TREE] = below_tabs(area)
    return places


def _two(width: int, height: int, shape: Shape) -> dict[Part, Rect]:
    usual = max(LISTS_USUAL, min(width * 2 // 5, width - AREA_USUAL))
    left = _kept(shape.lists or usual, LISTS_MIN, width - AREA_MIN)
    rows = max(ROWS_MIN, height // 2)
    return {
        Part.LISTS: Rect(0, 0, left, rows),
        Part.TREE: Rect(0, rows, left, height - rows),
        Part.AREA: Rect(left, 0, width - left, height),
    }


def _three(width: int, height: int, shape: Shape) -> dict[Part, Rect]:
    usual = max(LISTS_USUAL, min(60, width // 4))
    lists = _kept(shape.lists or usual, LISTS_MIN, width - TREE_MIN - AREA_MIN)
    tree = _kept(shape.tree or usual, TREE_MIN, width - lists - AREA_MIN)
    return {
        Part.LISTS: Rect(0, 0, lists, height),
        Part.TREE: Rect(lists, 0, tree, height),
        Part.AREA: Rect(lists + tree, 0, width - lists - tree, height),
    }


def _kept(cells: int, least: int, most: int) -> int:
    return max(least, min(cells, most))


def widened(shape: Shape, part: Part, by: int, width: int) -> Shape:
    """The shape with the column of ``part`` wider by so many cells; the same where it has no width
    of its own."""
    places = arrange(width, ROWS_MIN * 4, replace(shape, zoomed=False), part).places
    if columns(width) == 1:
        return shape
    if part is Part.TREE and columns(width) == 3:
        return replace(shape, tree=max(TREE_MIN, places[Part.TREE].width + by))
    # Of the last column: what it gains the first one loses.
    change = -by if part is Part.AREA else by
    return replace(shape, lists=max(LISTS_MIN, places[Part.LISTS].width + change))

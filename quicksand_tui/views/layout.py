"""Lays out the parts of the main screen for any size of the terminal.

A wide terminal has three columns; most have two, with the tree below the lists; a small one stacks
the lists and the main area, and the tree is a tab of that. In a very small one, and when zoomed,
the focused part fills the screen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from quicksand_tui.model.geometry import Rect


class Part(StrEnum):
    LISTS = "lists"
    TREE = "tree"
    AREA = "area"


class Tab(StrEnum):
    """The tabs of the main area; the tree is one if it has no place of its own."""

    TREE = "tree"
    DETAILS = "details"
    SHELLS = "shells"
    DESKTOP = "desktop"
    """Only of sandboxes with a display."""
    LOG = "log"
    MOUNTS = "mounts"
    STATS = "stats"


def tabs_of(shown: Tab, *, with_tree: bool, with_desktop: bool) -> tuple[Tab, ...]:
    """Returns the tabs to choose from: the one that is shown is always among them."""
    hidden = {Tab.TREE: not with_tree, Tab.DESKTOP: not with_desktop}
    return tuple(tab for tab in Tab if tab is shown or not hidden.get(tab, False))


THREE_COLUMNS = 150
TWO_COLUMNS = 100
"""The smallest widths in cells with three and two columns."""
LOW = 13
"""The number of rows below which one part shows at a time."""
NARROW = 50
"""The width in cells below which one part shows at a time."""
LISTS_MIN, TREE_MIN, AREA_MIN = 30, 26, 40
"""The least widths of the columns in cells."""
LISTS_USUAL, AREA_USUAL = 36, 80
"""The default widths in cells: a shell gets the usual 80."""
TABS_FROM = 8
"""The number of rows from which the lists show their tabs."""
COMMAND_LINE_FROM = 20
"""The number of rows of the terminal from which the command line shows."""
ROWS_MIN = 5
"""The least number of rows of a part."""
STEP = 4
"""The number of cells by which a key widens a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the user has chosen about the layout."""

    lists: int = 0
    """Width of the first column in cells; 0 for the default."""
    tree: int = 0
    """Width of the second of three columns in cells; 0 for the default."""
    tab: Tab = Tab.DETAILS
    zoomed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The visible parts, and whether the tree is a tab."""

    places: dict[Part, Rect]
    tree_is_tab: bool


def columns(width: int) -> int:
    """Returns how many columns fit."""
    return 3 if width >= THREE_COLUMNS else 2 if width >= TWO_COLUMNS else 1


def arrange(width: int, height: int, shape: Shape, focus: Part) -> Arrangement:
    """Lays out the parts in ``width`` × ``height`` cells; ``focus`` is the focused part."""
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
    """Shows lists or tree beside the main area, if there is no height for both."""
    part = Part.TREE if focus is Part.TREE else Part.LISTS
    return {part: Rect(0, 0, places[Part.LISTS].width, height), Part.AREA: places[Part.AREA]}


def _alone(whole: Rect, focus: Part, tree_is_tab: bool) -> dict[Part, Rect]:
    if focus is Part.TREE and tree_is_tab:
        return {Part.AREA: whole, Part.TREE: below_tabs(whole)}
    return {focus: whole}


def below_tabs(area: Rect) -> Rect:
    """Returns the main area without its line of tabs."""
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
    """Returns the shape with the column of ``part`` wider by ``by`` cells; unchanged if it has no
    width of its own."""
    places = arrange(width, ROWS_MIN * 4, replace(shape, zoomed=False), part).places
    if columns(width) == 1:
        return shape
    if part is Part.TREE and columns(width) == 3:
        return replace(shape, tree=max(TREE_MIN, places[Part.TREE].width + by))
    # What the last column gains, the first one loses.
    change = -by if part is Part.AREA else by
    return replace(shape, lists=max(LISTS_MIN, places[Part.LISTS].width + change))

"""Lays out the parts of the main screen for any size of the terminal.

Most terminals have two columns: the lists with the tree below, and the main area. A wide terminal
has a third, with changes and events; a small one has all parts in one column. In a low one the tree
is a tab of the area; in a very small one, and when zoomed, the focused part fills the screen.
Parts one above the other share a line of their frames.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from quicksand.things.frozen import frozen

from quicksand_tui.model.geometry import Rect

if TYPE_CHECKING:
    from collections.abc import Callable

    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.world import World


class Part(StrEnum):
    LISTS = "lists"
    TREE = "tree"
    AREA = "area"
    ASIDE = "aside"
    """The column of changes and events beside the area; it takes no focus."""


class Tab(StrEnum):
    """The tabs of the main area; the tree is one if it has no place of its own."""

    TREE = "tree"
    DETAILS = "details"
    SHELLS = "shells"
    DESKTOP = "desktop"
    """Only for sandboxes with a display."""
    LOG = "log"
    MOUNTS = "mounts"
    STATS = "stats"


def tabs_of(shown: Tab, *, with_tree: bool, with_desktop: bool) -> tuple[Tab, ...]:
    """Returns the tabs to choose from, which always include the tab that is shown."""
    hidden = {Tab.TREE: not with_tree, Tab.DESKTOP: not with_desktop}
    return tuple(tab for tab in Tab if tab is shown or not hidden.get(tab, False))


THREE_COLUMNS = 180
TWO_COLUMNS = 100
"""The smallest widths in cells with three and two columns."""
LOW = 13
"""The number of rows below which one part shows at a time."""
STACKED_FROM = 18
"""The number of rows from which one column has room for the tree, too."""
NARROW = 50
"""The width in cells below which one part shows at a time."""
LISTS_MIN, ASIDE_MIN, AREA_MIN = 30, 36, 40
"""The least widths of the columns in cells."""
AREA_USUAL, LISTS_BESIDE = 80, 36
"""Cells of a shell, or a desktop, if there is room, and of the lists beside it."""
COMMAND_LINE_FROM = 20
"""The number of rows of the terminal from which the command line shows."""
ROWS_MIN = 5
"""The least number of rows of a part."""
FRAME = 2
"""Rows of a list and of the tree besides their lines and their head."""
HEAD_FROM = 5
"""The number of rows of a table from which there is room for a head."""
SHARED = 1
"""Rows that two parts, one above the other, have in common: the line between their frames."""
LIST_LEAST, TREE_LEAST, AREA_LEAST, AREA_FOCUSED = 3, 4, 6, 10
"""The least rows of the parts of one column, and those of the area while it has the focus."""
LIST_ROOMY = 7
"""Rows of a list, in a column of its own, that no other part gets."""
STEP = 4
"""The number of cells by which a key widens a column."""


@frozen
class Shape:
    """The user's choices about the layout."""

    lists: int = 0
    """Width of the first column in cells; 0 for the default."""
    tab: Tab = Tab.DETAILS
    zoomed: bool = False


@frozen
class Needs:
    """The room that the contents need."""

    listed: int = 0
    """Lines of the visible list."""
    drawn: int = 0
    """Lines of the largest tree: the parts should not move with the cursor."""
    aside: bool = False
    """A third column is of use, since there are several sandboxes to choose from."""


USUAL_NEEDS = Needs(listed=12, drawn=24)
"""The needs assumed before the first look."""


def needs_of(world: World, listed: int, lines_of: Callable[[SandboxView], int]) -> Needs:
    """Returns the needs of a world with sandboxes: ``listed`` lines of the list, and for each tree
    the lines by ``lines_of``."""
    return Needs(
        listed=listed,
        drawn=max(lines_of(view) for view in world.sandboxes),
        aside=len(world.sandboxes) > 1,
    )


@frozen
class Arrangement:
    """The visible parts, and whether the tree is a tab."""

    places: dict[Part, Rect]
    """The places of the parts. A part above another shares a line with it."""
    tree_is_tab: bool

    def above(self, part: Part) -> Part | None:
        """Returns the part whose last line is the first one of ``part``."""
        here = self.places.get(part)
        for other, place in self.places.items():
            if here is None or other is part:
                continue
            if place.x == here.x and place.y < here.y == place.y + place.height - SHARED:
                return other
        return None


def rows_left(rows: int) -> int:
    """Returns the rows of the screen for the parts: without the line at the top, the line of the
    keys and, if there is room, the line of the command."""
    return max(0, rows - (3 if rows >= COMMAND_LINE_FROM else 2))


def columns(width: int) -> int:
    """Returns the number of columns that fit."""
    return 3 if width >= THREE_COLUMNS else 2 if width >= TWO_COLUMNS else 1


def arrange(
    width: int, height: int, shape: Shape, focus: Part, needs: Needs = USUAL_NEEDS
) -> Arrangement:
    """Lays out the parts in ``width`` × ``height`` cells; ``focus`` is the focused part."""
    count = columns(width)
    tree_is_tab = count == 1 and height < STACKED_FROM
    whole = Rect(0, 0, width, height)
    busy = focus is Part.AREA and shape.tab is Tab.SHELLS
    if shape.zoomed or (count == 1 and (height < LOW or width < NARROW or busy)):
        # As a tab, a tree that is shown alone has the line of tabs, by which the user leaves it.
        as_tab = count == 1 and (height < STACKED_FROM or width < NARROW or shape.zoomed)
        return Arrangement(places=_alone(whole, focus, as_tab), tree_is_tab=as_tab)
    if count == 1:
        places = (_tabbed if tree_is_tab else _stacked)(width, height, shape, focus, needs)
    else:
        places = (_two if count == 2 else _three)(width, height, shape, focus, needs)
    if count > 1 and height < LOW:
        places = _one_beside(places, height, focus)
    return Arrangement(places=places, tree_is_tab=tree_is_tab)


def _one_beside(places: dict[Part, Rect], height: int, focus: Part) -> dict[Part, Rect]:
    """Shows lists or tree beside the other parts, if there is no height for both."""
    hidden = Part.LISTS if focus is Part.TREE else Part.TREE
    shown = Part.TREE if focus is Part.TREE else Part.LISTS
    kept = {part: place for part, place in places.items() if part is not hidden}
    return kept | {shown: Rect(0, 0, places[Part.LISTS].width, height)}


def _alone(whole: Rect, focus: Part, tree_is_tab: bool) -> dict[Part, Rect]:
    if focus is Part.TREE and tree_is_tab:
        return {Part.AREA: whole, Part.TREE: below_tabs(whole)}
    return {focus: whole}


def below_tabs(area: Rect) -> Rect:
    """Returns the main area without its line of tabs."""
    return Rect(area.x, area.y + 1, area.width, max(0, area.height - 1))


def _tabbed(width: int, height: int, shape: Shape, focus: Part, needs: Needs) -> dict[Part, Rect]:
    """Puts the lists above the area; the tree is a tab of it."""
    rows = min(_tall(needs.listed, LIST_LEAST), max(ROWS_MIN, height * 9 // 20) + SHARED)
    area = Rect(0, rows - SHARED, width, height - rows + SHARED)
    places = {Part.LISTS: Rect(0, 0, width, rows), Part.AREA: area}
    if shape.tab is Tab.TREE:
        places[Part.TREE] = below_tabs(area)
    return places


def _stacked(width: int, height: int, shape: Shape, focus: Part, needs: Needs) -> dict[Part, Rect]:
    """Puts all three below each other. The part with the focus gets the room that it can use."""
    wanted = _tall(needs.listed, LIST_LEAST)
    tree_wanted = _tall(needs.drawn, TREE_LEAST)
    room = height + 2 * SHARED - (AREA_FOCUSED if focus is Part.AREA else AREA_LEAST)
    if focus is Part.TREE:
        tree = min(tree_wanted, room - LIST_LEAST)
        lists = min(wanted, room - tree)
    else:
        lists = min(wanted, room - min(tree_wanted, max(TREE_LEAST, room * 2 // 5)))
        tree = min(tree_wanted, room - lists)
    below = lists + tree - 2 * SHARED
    return {
        Part.LISTS: Rect(0, 0, width, lists),
        Part.TREE: Rect(0, lists - SHARED, width, tree),
        Part.AREA: Rect(0, below, width, height - below),
    }


def _tall(lines: int, least: int) -> int:
    """Returns the rows of a list or a tree that has ``lines``."""
    head = int(lines + 1 >= HEAD_FROM)
    return max(least, lines + head + FRAME)


def _two(width: int, height: int, shape: Shape, focus: Part, needs: Needs) -> dict[Part, Rect]:
    usual = _kept(width * 9 // 20, 48, 72)
    if shape.tab in (Tab.SHELLS, Tab.DESKTOP):
        usual = max(LISTS_BESIDE, min(usual, width - AREA_USUAL))
    left = _kept(shape.lists or usual, LISTS_MIN, width - AREA_MIN)
    return {
        **_left(left, height, needs),
        Part.AREA: Rect(left, 0, width - left, height),
    }


def _three(width: int, height: int, shape: Shape, focus: Part, needs: Needs) -> dict[Part, Rect]:
    usual = _kept(width * 3 // 8, 64, 96)
    aside = _kept(width * 2 // 9, ASIDE_MIN, 64) if needs.aside else 0
    if shape.tab in (Tab.SHELLS, Tab.DESKTOP):
        usual, aside = usual * 4 // 5, min(aside, ASIDE_MIN)
    left = _kept(shape.lists or usual, LISTS_MIN, width - AREA_MIN - aside)
    middle = width - left - aside
    places = {**_left(left, height, needs), Part.AREA: Rect(left, 0, middle, height)}
    if aside:
        places[Part.ASIDE] = Rect(left + middle, 0, aside, height)
    return places


def _left(width: int, height: int, needs: Needs) -> dict[Part, Rect]:
    """Makes the lists as tall as they need, up to a share, and puts the tree below them."""
    height += SHARED
    tree = _tall(needs.drawn, TREE_LEAST)
    most = max(height * 9 // 20, height - tree)
    rows = _kept(_tall(needs.listed, LIST_LEAST), min(LIST_ROOMY, most), most)
    return {
        Part.LISTS: Rect(0, 0, width, rows),
        Part.TREE: Rect(0, rows - SHARED, width, height - rows),
    }


def _kept(cells: int, least: int, most: int) -> int:
    return max(least, min(cells, most))


def widened(shape: Shape, part: Part, by: int, width: int) -> Shape:
    """Returns the shape with the column of ``part`` wider by ``by`` cells; unchanged if it has no
    width of its own."""
    if columns(width) == 1:
        return shape
    places = arrange(width, ROWS_MIN * 4, replace(shape, zoomed=False), part).places
    # The first column loses the cells that another one gains.
    change = -by if part is Part.AREA else by
    return replace(shape, lists=max(LISTS_MIN, places[Part.LISTS].width + change))


# The line that the frames of two parts share


class Line(NamedTuple):
    """The characters that draw the first line of a box."""

    left: str
    dash: str
    right: str


@frozen
class Edge:
    """The first line of a box."""

    framed: bool = True
    """The box has a frame; a box without one has this line only if another box ends there."""
    joined: bool = False
    """The line is also the last line of the box above."""
    lit: bool = False
    """The box has the focus, and a heavy frame."""
    above_lit: bool = False
    """The box above has the focus."""

    @property
    def heavy(self) -> bool:
        return (self.lit and self.framed) or (self.joined and self.above_lit)

    def line(self, *, ascii_only: bool = False) -> Line:
        if not (self.framed or self.joined):
            return Line(" ", " ", " ")
        if ascii_only:
            return Line("+", "-", "+")
        if not self.joined:
            return Line("┏", "━", "┓") if self.lit else Line("╭", "─", "╮")
        if not self.framed:
            return Line("┗", "━", "┛") if self.above_lit else Line("╰", "─", "╯")
        if self.lit:
            return Line("┢", "━", "┪")
        return Line("┡", "━", "┩") if self.above_lit else Line("├", "─", "┤")


NO_EDGE = Edge(framed=False)

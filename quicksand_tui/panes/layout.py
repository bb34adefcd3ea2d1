"""How panes share a rectangle, as in tmux: a tree of splits. Pure: no widgets.

A split holds two or more children beside or above each other; between two of them is a line of one
cell. What a pane gets is a share of its split, so a layout fits any size; where there is no room
for all, the last ones get none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from quicksand_tui.panes.ways import Side, Way

WIDTH_MIN, HEIGHT_MIN = 10, 3
"""Cells below which a pane is not split."""

STEP = 0.05
"""Of a split, that resizing moves its line by."""

SHARE_MIN = 0.05

LENGTH_MIN = 2
"""Cells of a pane beside a line that is dragged."""


class Rect(NamedTuple):
    """Cells."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Leaf:
    pane: str
    """Its id."""


@dataclass(frozen=True, slots=True)
class Split:
    way: Way
    children: tuple[Node, ...]
    shares: tuple[float, ...]
    """Of the length, as many as children; their sum is 1."""


Node = Leaf | Split


def panes(node: Node) -> Iterator[str]:
    """All panes, in reading order."""
    if isinstance(node, Leaf):
        yield node.pane
    else:
        for child in node.children:
            yield from panes(child)


def arrange(node: Node, room: Rect) -> dict[str, Rect]:
    """The place of every pane that fits into ``room``."""
    if room.width <= 0 or room.height <= 0:
        return {}
    if isinstance(node, Leaf):
        return {node.pane: room}
    places: dict[str, Rect] = {}
    for child, part in zip(node.children, _parts(node, room), strict=True):
        places |= arrange(child, part)
    return places


def _parts(split: Split, room: Rect) -> Iterator[Rect]:
    """The places of a split's children: of whole cells, with a line between two."""
    beside = split.way is Way.BESIDE
    whole = (room.width if beside else room.height) - (len(split.children) - 1)
    at, passed, done = 0, 0.0, 0
    for number, share in enumerate(split.shares):
        passed += share
        last = number == len(split.shares) - 1
        # From the sum, so that rounding does not add up.
        length = max(0, (whole if last else round(whole * passed)) - done)
        done += length
        if beside:
            yield Rect(room.x + at, room.y, length, room.height)
        else:
            yield Rect(room.x, room.y + at, room.width, length)
        at += length + 1


def can_split(place: Rect, way: Way) -> bool:
    """Whether two panes fit there."""
    length, least = (place.width, WIDTH_MIN) if way is Way.BESIDE else (place.height, HEIGHT_MIN)
    return length >= 2 * least + 1


def split(node: Node, pane: str, new: str, way: Way) -> Node:
    """Halve the place of ``pane`` and give the second half to ``new``."""
    if isinstance(node, Leaf):
        if node.pane != pane:
            return node
        return Split(way, (node, Leaf(new)), (0.5, 0.5))
    at = _index(node, pane)
    if at is None:
        return node
    child = node.children[at]
    if isinstance(child, Leaf) and node.way is way:
        half = node.shares[at] / 2
        children = (*node.children[: at + 1], Leaf(new), *node.children[at + 1 :])
        shares = (*node.shares[:at], half, half, *node.shares[at + 1 :])
        return Split(way, children, shares)
    return _with_child(node, at, split(child, pane, new, way))


def remove(node: Node, pane: str) -> Node | None:
    """Take a pane out; those beside it share its place. None if it was the last one."""
    if isinstance(node, Leaf):
        return None if node.pane == pane else node
    at = _index(node, pane)
    if at is None:
        return node
    left = remove(node.children[at], pane)
    if left is not None:
        return _merged(_with_child(node, at, left))
    children = (*node.children[:at], *node.children[at + 1 :])
    shares = (*node.shares[:at], *node.shares[at + 1 :])
    if len(children) == 1:
        return children[0]
    whole = sum(shares)
    return _merged(Split(node.way, children, tuple(share / whole for share in shares)))


def _merged(node: Split) -> Node:
    """A split within one of the same way is one with it."""
    children: list[Node] = []
    shares: list[float] = []
    for child, share in zip(node.children, node.shares, strict=True):
        if isinstance(child, Split) and child.way is node.way:
            children += child.children
            shares += [share * part for part in child.shares]
        else:
            children.append(child)
            shares.append(share)
    return Split(node.way, tuple(children), tuple(shares))


def swap(node: Node, one: str, other: str) -> Node:
    """Let two panes change places."""
    if isinstance(node, Leaf):
        return Leaf({one: other, other: one}.get(node.pane, node.pane))
    return replace(node, children=tuple(swap(child, one, other) for child in node.children))


def resize(node: Node, pane: str, side: Side) -> Node:
    """Move the line next to ``pane`` a step to that side: the nearest one of that direction."""
    if isinstance(node, Leaf):
        return node
    at = _index(node, pane)
    if at is None:
        return node
    inner = resize(node.children[at], pane, side)
    if inner != node.children[at]:
        return _with_child(node, at, inner)
    along = Way.BESIDE if side in (Side.LEFT, Side.RIGHT) else Way.BELOW
    if node.way is not along:
        return node
    # The line behind the pane moves, or of the last one the line before it.
    first = at if at < len(node.children) - 1 else at - 1
    step = STEP if side in (Side.RIGHT, Side.DOWN) else -STEP
    shares = list(node.shares)
    step = max(SHARE_MIN - shares[first], min(shares[first + 1] - SHARE_MIN, step))
    shares[first] += step
    shares[first + 1] -= step
    return replace(node, shares=tuple(shares))


class Line(NamedTuple):
    """A line between two children of a split."""

    path: tuple[int, ...]
    """Which child of which child the split is."""
    child: int
    """The one before it."""


def line_at(node: Node, room: Rect, x: int, y: int) -> Line | None:
    """The line that has this cell, if one has."""
    if isinstance(node, Leaf):
        return None
    for index, part in enumerate(_parts(node, room)):
        if part.x <= x < part.x + part.width and part.y <= y < part.y + part.height:
            inner = line_at(node.children[index], part, x, y)
            return None if inner is None else inner._replace(path=(index, *inner.path))
        beside = node.way is Way.BESIDE
        behind = part.x + part.width == x if beside else part.y + part.height == y
        across = room.y <= y < room.y + room.height if beside else room.x <= x < room.x + room.width
        if behind and across and index < len(node.children) - 1:
            return Line((), index)
    return None


def drag(node: Node, room: Rect, line: Line, x: int, y: int) -> Node:
    """Move a line to a cell, as far as those on both sides keep `LENGTH_MIN` cells."""
    if isinstance(node, Leaf):
        return node
    parts = list(_parts(node, room))
    if line.path:
        at = line.path[0]
        inner = drag(node.children[at], parts[at], line._replace(path=line.path[1:]), x, y)
        return _with_child(node, at, inner)
    beside = node.way is Way.BESIDE
    lengths = [part.width if beside else part.height for part in parts]
    both = lengths[line.child] + lengths[line.child + 1]
    begin = parts[line.child].x if beside else parts[line.child].y
    if both < 2 * LENGTH_MIN:
        return node
    length = min(max((x if beside else y) - begin, LENGTH_MIN), both - LENGTH_MIN)
    lengths[line.child : line.child + 2] = [length, both - length]
    return replace(node, shares=tuple(cells / sum(lengths) for cells in lengths))


def even(node: Node) -> Node:
    """Give all children of each split the same share."""
    if isinstance(node, Leaf):
        return node
    count = len(node.children)
    return replace(
        node, children=tuple(map(even, node.children)), shares=tuple([1 / count] * count)
    )


def neighbour(places: dict[str, Rect], pane: str, side: Side) -> str | None:
    """The pane on that side: of several the one that shares the longest border; beyond the last
    one it goes on from the other end."""
    here = places.get(pane)
    if here is None:
        return None
    best: tuple[int, int, str] | None = None
    for name, there in places.items():
        overlap = _overlap(here, there, side)
        if name == pane or overlap <= 0:
            continue
        distance = _distance(here, there, side)
        rank = (-distance, overlap, name)
        if best is None or rank[:2] > best[:2]:
            best = rank
    return best[2] if best is not None else None


_AROUND = 100_000
"""Cells: farther away than anything is."""


def _distance(here: Rect, there: Rect, side: Side) -> int:
    """Cells to the side; what is on the other one is reached around the edge."""
    match side:
        case Side.LEFT:
            found = here.x - (there.x + there.width)
        case Side.RIGHT:
            found = there.x - (here.x + here.width)
        case Side.UP:
            found = here.y - (there.y + there.height)
        case Side.DOWN:
            found = there.y - (here.y + here.height)
    return found if found >= 0 else found + _AROUND


def _overlap(here: Rect, there: Rect, side: Side) -> int:
    """Cells of the border that the two would have in common."""
    if side in (Side.LEFT, Side.RIGHT):
        return min(here.y + here.height, there.y + there.height) - max(here.y, there.y)
    return min(here.x + here.width, there.x + there.width) - max(here.x, there.x)


def _index(node: Split, pane: str) -> int | None:
    """Which child has the pane."""
    return next((n for n, child in enumerate(node.children) if pane in panes(child)), None)


def _with_child(node: Split, at: int, child: Node) -> Split:
    return replace(node, children=(*node.children[:at], child, *node.children[at + 1 :]))

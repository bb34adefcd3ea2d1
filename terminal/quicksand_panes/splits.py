"""The layout of panes, as in tmux: a tree of splits, and its form on disk. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple


class Rect(NamedTuple):
    """A rectangle in cells."""

    x: int
    y: int
    width: int
    height: int


class Way(Enum):
    """The places of a new pane relative to the old one."""

    BESIDE = "beside"
    BELOW = "below"


class Side(Enum):
    LEFT = "left"
    RIGHT = "right"
    UP = "up"
    DOWN = "down"


WIDTH_MIN, HEIGHT_MIN = 10, 3
"""The smallest halves of a split in cells, including the title's row."""

STEP = 0.05
"""The share of a split by which a key moves its line."""

SHARE_MIN = 0.05

LENGTH_MIN = 2
"""The smallest length in cells that dragging a line leaves."""


@dataclass(frozen=True, slots=True)
class Leaf:
    pane: str
    """The pane's id."""


@dataclass(frozen=True, slots=True)
class Split:
    way: Way
    children: tuple[Node, ...]
    shares: tuple[float, ...]
    """Each child's share of the length; their sum is 1."""


Node = Leaf | Split


def panes(node: Node) -> Iterator[str]:
    """Yields the ids of all panes in reading order."""
    if isinstance(node, Leaf):
        yield node.pane
    else:
        for child in node.children:
            yield from panes(child)


def arrange(node: Node, room: Rect) -> dict[str, Rect]:
    """Returns the rectangle of every pane that fits into ``room``."""
    if room.width <= 0 or room.height <= 0:
        return {}
    if isinstance(node, Leaf):
        return {node.pane: room}
    places: dict[str, Rect] = {}
    for child, part in zip(node.children, _parts(node, room), strict=True):
        places |= arrange(child, part)
    return places


def _parts(split: Split, room: Rect) -> Iterator[Rect]:
    """Yields the rectangles of a split's children, with a line of one cell between two."""
    beside = split.way is Way.BESIDE
    whole = (room.width if beside else room.height) - (len(split.children) - 1)
    at, passed, done = 0, 0.0, 0
    for number, share in enumerate(split.shares):
        passed += share
        last = number == len(split.shares) - 1
        # Rounds the running sum, so that rounding errors do not add up.
        length = max(0, (whole if last else round(whole * passed)) - done)
        done += length
        if beside:
            yield Rect(room.x + at, room.y, length, room.height)
        else:
            yield Rect(room.x, room.y + at, room.width, length)
        at += length + 1


def can_split(place: Rect, way: Way) -> bool:
    """Whether two panes fit into ``place``."""
    length, least = (place.width, WIDTH_MIN) if way is Way.BESIDE else (place.height, HEIGHT_MIN)
    return length >= 2 * least + 1


def split(node: Node, pane: str, new: str, way: Way) -> Node:
    """Returns the tree with ``pane`` halved and ``new`` in its second half."""
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
    """Returns the tree without a pane, whose room its siblings share; None if it was the last."""
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
    """Merges children that are splits of the same direction into their parent."""
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
    """Returns the tree with two panes exchanged."""
    if isinstance(node, Leaf):
        return Leaf({one: other, other: one}.get(node.pane, node.pane))
    return replace(node, children=tuple(swap(child, one, other) for child in node.children))


def resize(node: Node, pane: str, side: Side) -> Node:
    """Returns the tree with the nearest line beside ``pane`` moved a step towards ``side``."""
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
    # The line after the pane moves; for the last pane, the line before it.
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
    """The indexes of the children that lead to the split."""
    child: int
    """The index of the child before the line."""


def line_at(node: Node, room: Rect, x: int, y: int) -> Line | None:
    """Returns the line at a cell, or None."""
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
    """Returns the tree with a line moved to a cell; both sides keep `LENGTH_MIN` cells."""
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
    """Returns the tree with equal shares in each split."""
    if isinstance(node, Leaf):
        return node
    count = len(node.children)
    return replace(
        node, children=tuple(map(even, node.children)), shares=tuple([1 / count] * count)
    )


def neighbour(places: dict[str, Rect], pane: str, side: Side) -> str | None:
    """Returns the nearest pane on a side, around the edge if necessary; of several, the one with
    the longest common border."""
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
"""A distance in cells that is larger than any real one."""


def _distance(here: Rect, there: Rect, side: Side) -> int:
    """Returns the distance in cells; panes on the other side are reached around the edge."""
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
    """Returns the length of the common border in cells."""
    if side in (Side.LEFT, Side.RIGHT):
        return min(here.y + here.height, there.y + there.height) - max(here.y, there.y)
    return min(here.x + here.width, there.x + there.width) - max(here.x, there.x)


def _index(node: Split, pane: str) -> int | None:
    """Returns the index of the child that holds the pane."""
    return next((n for n, child in enumerate(node.children) if pane in panes(child)), None)


def _with_child(node: Split, at: int, child: Node) -> Split:
    return replace(node, children=(*node.children[:at], child, *node.children[at + 1 :]))


PANES_MAX = 64
DEPTH_MAX = 16
NAME_MAX = 128
"""The limits of a layout on disk: panes, levels of splits, and characters of a name."""
KEPT_SHARE_MIN = 0.01
"""The least share of a split on disk; smaller ones are raised to it."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The panes of a workspace, by the names of their terminals, as it is kept on disk."""

    node: Node
    current: str = ""
    zoomed: bool = False

    def to_json(self) -> dict[str, object]:
        return {"panes": _node_json(self.node), "current": self.current, "zoomed": self.zoomed}

    @classmethod
    def from_json(cls, value: object) -> Arrangement | None:
        """Reads what `to_json` wrote; returns None for anything else."""
        if not isinstance(value, dict):
            return None
        try:
            node = _read_node(value.get("panes"), 0)
        except ValueError:
            return None
        names = list(panes(node))
        if len(names) > PANES_MAX or len(set(names)) < len(names):
            return None
        current = value.get("current")
        return cls(
            node=node,
            current=current if isinstance(current, str) and current in names else "",
            zoomed=value.get("zoomed") is True,
        )

    def only(self, names: Container[str]) -> Arrangement | None:
        """Returns the arrangement of the panes in ``names``; None if there are none."""
        node: Node | None = self.node
        for name in panes(self.node):
            if name not in names and node is not None:
                node = remove(node, name)
        return None if node is None else replace(self, node=node)


def renamed(node: Node, name: Callable[[str], str]) -> Node:
    """Returns the tree with all panes renamed."""
    if isinstance(node, Leaf):
        return Leaf(name(node.pane))
    return replace(node, children=tuple(renamed(child, name) for child in node.children))


def _node_json(node: Node) -> object:
    if isinstance(node, Leaf):
        return node.pane
    return {
        "way": node.way.value,
        "parts": [_node_json(child) for child in node.children],
        "shares": [round(share, 6) for share in node.shares],
    }


def _read_node(value: object, depth: int) -> Node:
    """Reads a tree. Raises ValueError."""
    if isinstance(value, str) and 0 < len(value) <= NAME_MAX:
        return Leaf(value)
    if not isinstance(value, dict) or depth >= DEPTH_MAX:
        raise ValueError("no pane, and no split")
    parts, shares = value.get("parts"), value.get("shares")
    if not isinstance(parts, list) or not isinstance(shares, list):
        raise ValueError("a split without parts or shares")
    if not 2 <= len(parts) <= PANES_MAX or len(shares) != len(parts):
        raise ValueError("a split of one part, of too many, or with shares for others")
    lengths = [_read_share(share) for share in shares]
    return Split(
        Way(value.get("way")),
        tuple(_read_node(part, depth + 1) for part in parts),
        tuple(length / sum(lengths) for length in lengths),
    )


def _read_share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a share that is no number")
    if not math.isfinite(value) or not 0 < value <= 1:
        raise ValueError("a share that is none")
    return max(KEPT_SHARE_MIN, float(value))

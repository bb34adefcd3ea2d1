"""Draws the tree of checkpoints as a graph with lanes, as ``git log --graph`` draws commits.

Each checkpoint has a row, its parent in a row above it. A lane is a column of the drawing; what is
straight below a checkpoint, along its lane, is its child. ``├─○`` is another child of the
checkpoint above ``├``; ``├─╮`` gives that checkpoint a second lane, for the children that come
later. Lanes in between are crossed (``├─│─○``). A root has nothing above it.

Automatic checkpoints, which reverts took on the way and nobody has gone on from, are folded before.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quicksand.things.frozen import frozen

from quicksand_tui.model.shown_sandboxes import line_to

if TYPE_CHECKING:
    from quicksand_tui.model.shown_sandboxes import CheckpointTree


Rank = Callable[[str], tuple[float, str]]
"""Returns the key by which checkpoints of different branches are ordered: the time, and the id."""


LANES_MAX = 8
"""The most lanes beside each other for which checkpoints are drawn in the order of time; a tree
with more is drawn branch by branch."""


@frozen(kw_only=False)
class Stroke:
    """A piece of the drawing."""

    text: str
    on_line: bool = False
    """It is on the way from the root to the sandbox's position."""


@frozen
class LaneRow:
    """A row of the drawing. ``id`` is "" in a row that has only lines."""

    id: str
    lane: int
    """The lane of the checkpoint; 0 if there is none."""
    before: tuple[Stroke, ...] = ()
    """Strokes left of the checkpoint's mark."""
    after: tuple[Stroke, ...] = ()
    """Strokes right of it; in a row of lines, "" only."""
    on_line: bool = False
    """The checkpoint is on the way to the sandbox's position."""

    @property
    def width(self) -> int:
        """Cells that the drawing takes, with the mark."""
        left, right = (
            "".join(stroke.text for stroke in part) for part in (self.before, self.after)
        )
        return len(left) + 1 + len(right.rstrip()) if self.id else len((left + right).rstrip())


@frozen
class Lines:
    """The characters of the lines."""

    along: str
    fork: str
    across: str
    turn: str
    """The beginning of a lane that comes from the left."""
    turn_up: str
    """The same turn in a drawing that is upside down."""


FANCY_LINES = Lines(along="│", fork="├", across="─", turn="╮", turn_up="╯")
PLAIN_LINES = Lines(along="|", fork="+", across="-", turn="\\", turn_up="/")


@dataclass(slots=True)
class _Drawing:
    """The lanes while rows are drawn from top to bottom."""

    lines: Lines
    next_on_line: Mapping[str, str]
    """The child on the way to the sandbox's position, for each checkpoint on that way."""
    waiting: dict[str, set[str]]
    """The children of each checkpoint that have no row yet."""
    lanes: list[str] = field(default_factory=list)
    """The checkpoint whose children continue each lane; "" for a free lane."""
    last: list[str] = field(default_factory=list)
    """The lanes of the last row with a checkpoint, including those that end there."""

    def free_lane(self, after: int) -> int:
        """Returns the first free lane right of lane ``after``."""
        lane = after + 1
        while lane < len(self.lanes) and self.lanes[lane]:
            lane += 1
        self.lanes += [""] * (lane + 1 - len(self.lanes))
        return lane

    def strokes(self, start: int, stop: int, fork: int | None = None) -> tuple[Stroke, ...]:
        """Draws lanes from ``start`` up to ``stop``; a line leaves lane ``fork`` to the right."""
        drawn = []
        for lane in range(start, stop):
            owner = self.lanes[lane]
            forked = fork is not None and lane >= fork
            glyph = self.lines.along if owner else self.lines.across if forked else " "
            lit = self.next_on_line.get(owner) in self.waiting.get(owner, ())
            drawn.append(Stroke(self.lines.fork if lane == fork else glyph, lit))
            drawn.append(Stroke(self.lines.across if forked else " "))
        return tuple(drawn)

    def strokes_after(self, lane: int) -> tuple[Stroke, ...]:
        """Draws the lanes right of ``lane``, with the gap before them."""
        found = self.strokes(lane + 1, len(self.lanes))
        return (Stroke(" "), *found) if any(self.lanes[lane + 1 :]) else ()

    def put(self, id_: str, lane: int) -> None:
        """Continues a lane with a checkpoint, or ends it there."""
        self.lanes[lane] = id_
        self.last = list(self.lanes)
        if not self.waiting[id_]:
            self.lanes[lane] = ""
        while self.lanes and not self.lanes[-1]:
            self.lanes.pop()


def lane_rows(
    parents: Mapping[str, str | None],
    head: str | None,
    rank: Rank,
    lines: Lines = FANCY_LINES,
    *,
    turned: bool = False,
) -> tuple[LaneRow, ...]:
    """Draws the checkpoints, whose parents are given by id, from the oldest to the newest as far as
    that is readable. ``turned`` puts the newest first, and parents below their children.

    A parent that is unknown, or part of a circle, counts as none: each checkpoint has one row.
    """
    kept = _without_circles(parents)
    children: dict[str, list[str]] = {id_: [] for id_ in kept}
    for id_, parent in kept.items():
        if parent is not None:
            children[parent].append(id_)
    order = _in_order(kept, children, rank)
    if _lanes_of(order, kept, children) > LANES_MAX:
        order = _branch_by_branch(kept, children, rank, set(line_to(head, kept)))
    place = {id_: at for at, id_ in enumerate(order)}
    way = list(line_to(head, kept)) if head in kept else []
    on_way = set(way)
    # The way to the sandbox's position goes straight on, or else the newest child.
    straight = {
        max(found, key=lambda child: (child in on_way, place[child]))
        for found in children.values()
        if found
    }
    waiting = {id_: set(found) for id_, found in children.items()}
    drawing = _Drawing(lines, dict(zip(way[1:], way, strict=False)), waiting)
    rows: list[LaneRow] = []
    for id_ in order:
        parent, on_line = kept[id_], id_ in on_way
        if parent is None:
            rows += _root(drawing, id_, on_line=on_line)
        else:
            rows += _child(drawing, id_, parent, on_line=on_line, is_straight=id_ in straight)
    return tuple(_upside_down(rows, lines)) if turned else tuple(rows)


def _root(drawing: _Drawing, id_: str, *, on_line: bool) -> Iterator[LaneRow]:
    lane = drawing.free_lane(-1)
    if lane < len(drawing.last) and drawing.last[lane]:
        # Straight below another checkpoint, it would look like a child of that.
        yield LaneRow(id="", lane=0, before=drawing.strokes(0, len(drawing.lanes)))
    yield _row(drawing, id_, lane, None, on_line=on_line)


def _child(
    drawing: _Drawing, id_: str, parent: str, *, on_line: bool, is_straight: bool
) -> Iterator[LaneRow]:
    lane = drawing.lanes.index(parent)
    siblings = drawing.waiting[parent] - {id_}
    fork = None
    if siblings and is_straight:
        # The children that come later get a lane of their own.
        beside = drawing.free_lane(lane)
        turn = Stroke(drawing.lines.turn)
        before = drawing.strokes(0, beside, lane)
        yield LaneRow(id="", lane=0, before=(*before, turn, *drawing.strokes_after(beside)))
        drawing.lanes[beside] = parent
    elif siblings:
        fork, lane = lane, drawing.free_lane(lane)
    drawing.waiting[parent].discard(id_)
    yield _row(drawing, id_, lane, fork, on_line=on_line)


def _row(drawing: _Drawing, id_: str, lane: int, fork: int | None, *, on_line: bool) -> LaneRow:
    row = LaneRow(
        id=id_,
        lane=lane,
        before=drawing.strokes(0, lane, fork),
        after=drawing.strokes_after(lane),
        on_line=on_line,
    )
    drawing.put(id_, lane)
    return row


def _in_order(
    parents: Mapping[str, str | None], children: Mapping[str, Sequence[str]], rank: Rank
) -> list[str]:
    """Returns the ids by rank, but each parent before its children."""
    ready = [(rank(id_), id_) for id_, parent in parents.items() if parent is None]
    heapq.heapify(ready)
    order = []
    while ready:
        _, id_ = heapq.heappop(ready)
        order.append(id_)
        for child in children[id_]:
            heapq.heappush(ready, (rank(child), child))
    return order


def _lanes_of(
    order: Sequence[str], parents: Mapping[str, str | None], children: Mapping[str, Sequence[str]]
) -> int:
    """Returns the greatest number, at any row, of checkpoints whose children are still to come."""
    left = {id_: len(found) for id_, found in children.items()}
    most = now = 0
    for id_ in order:
        parent = parents[id_]
        if parent is not None:
            left[parent] -= 1
            now -= not left[parent]
        now += bool(left[id_])
        most = max(most, now)
    return most


def _branch_by_branch(
    parents: Mapping[str, str | None],
    children: Mapping[str, Sequence[str]],
    rank: Rank,
    line: Collection[str],
) -> list[str]:
    """Returns the ids branch by branch, small branches first: hardly any lanes lie side by side
    then."""
    sizes = dict.fromkeys(parents, 1)
    for id_ in reversed(_in_order(parents, children, rank)):
        parent = parents[id_]
        if parent is not None:
            sizes[parent] += sizes[id_]

    def order(id_: str) -> tuple[bool, int, tuple[float, str]]:
        return (id_ in line, sizes[id_], rank(id_))

    waiting = sorted((id_ for id_, parent in parents.items() if parent is None), key=order)
    waiting.reverse()
    found = []
    while waiting:
        id_ = waiting.pop()
        found.append(id_)
        waiting += sorted(children[id_], key=order, reverse=True)
    return found


def _without_circles(parents: Mapping[str, str | None]) -> dict[str, str | None]:
    """Returns the parents; unknown ones, and one in each circle, become None."""
    kept = {id_: parent if parent in parents else None for id_, parent in parents.items()}
    sound: set[str] = set()
    for start in kept:
        way: dict[str, None] = {}
        at: str | None = start
        while at is not None and at not in sound and at not in way:
            way[at] = None
            at = kept[at]
        if at is not None and at in way:
            # The first one of the circle in the given order becomes a root.
            circle = list(way)[list(way).index(at) :]
            kept[min(circle, key=list(kept).index)] = None
        sound.update(way)
    return kept


def _upside_down(rows: Sequence[LaneRow], lines: Lines) -> Iterator[LaneRow]:
    for row in reversed(rows):
        yield LaneRow(
            id=row.id,
            lane=row.lane,
            before=tuple(
                Stroke(lines.turn_up, stroke.on_line) if stroke.text == lines.turn else stroke
                for stroke in row.before
            ),
            after=row.after,
            on_line=row.on_line,
        )


FOLD = "fold:"
"""The beginning of a fold's key; the id follows of the checkpoint from which the fold hangs."""


@frozen(kw_only=False)
class Folded:
    """The tree as it is drawn."""

    parents: Mapping[str, str | None]
    """Checkpoints that are shown, and folds, whose ids are the keys by `fold_of`."""
    counts: Mapping[str, int]
    """The number of checkpoints that each fold hides, by its key."""
    held_by: Mapping[str, str]
    """The key of the fold of each checkpoint that can be folded, hidden or not."""


def fold_of(checkpoint_id: str | None) -> str:
    return f"{FOLD}{checkpoint_id or ''}"


def fold(tree: CheckpointTree, opened: Collection[str]) -> Folded:
    """Folds the automatic checkpoints from which only automatic ones descend, by the checkpoint
    that they branched off; the folds in ``opened`` stay open."""
    parents = tree.parents
    # The ancestors of a named checkpoint stay, and so does the sandbox's position.
    kept = set(line_to(tree.head, parents))
    for view in tree.checkpoints:
        at: str | None = None if view.auto else view.id
        while at is not None and at not in kept:
            kept.add(at)
            at = parents.get(at)
    held: dict[str, str] = {}
    for view in tree.checkpoints:
        if view.id not in kept:
            way = [view.id]
            while (at := parents.get(way[-1])) is not None and at in parents and at not in kept:
                if at in way:
                    break  # a circle in the files
                way.append(at)
            held[view.id] = fold_of(at if at in kept else None)
    shown: dict[str, str | None] = {}
    counts: dict[str, int] = {}
    for id_, parent in parents.items():
        key = held.get(id_)
        if key is None or key in opened:
            shown[id_] = parent
        else:
            counts[key] = counts.get(key, 0) + 1
            shown[key] = key.removeprefix(FOLD) or None
    return Folded(parents=shown, counts=counts, held_by=held)

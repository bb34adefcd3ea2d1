"""A sandbox's checkpoints as the app shows them, and the tree that they form."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

TAG_LIMIT = 128
"""Characters: the engine's limit, which a test compares, for the model knows no engine."""

NOTE_LIMIT = 1000
"""How many characters of a note are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointView:
    """One checkpoint. All text is sanitised."""

    id: str
    tag: str
    """The tag, or the id if the checkpoint cannot be read."""
    name: str
    """What commands call it: its tag, or its id if the tag cannot be typed."""
    parent: str | None = None
    """The id of the checkpoint it was taken after."""
    created: float | None = None
    """Unix time."""
    note: str = ""
    tier: str = ""
    tier_note: str = ""
    """Why a better tier was not possible."""
    has_memory: bool = True
    """It holds the guest's memory; otherwise only the disk, and a revert to it is not possible."""
    has_pages: bool = True
    """It is of the best tier."""
    auto: bool = False
    """A revert took it, so that the revert can be undone."""
    pinned: bool = False
    """Protected against deletion."""
    pause_s: float = 0.0
    """Seconds for which the VM was paused."""
    written: int | None = None
    """Bytes; None if unknown."""
    own: int | None = None
    """Bytes that deleting it would free; None until they are measured."""
    shared: int | None = None
    """Bytes it shares with other checkpoints."""
    has_picture: bool = False
    """A picture of the screen was kept with it."""
    error: str = ""
    """Why it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTree:
    """The checkpoints of a sandbox, and its position among them."""

    checkpoints: tuple[CheckpointView, ...] = ()
    """Unreadable ones first, then by age, oldest first."""
    head: str | None = None
    """The id of the checkpoint that the present state continues."""
    changed: int | None = None
    """Bytes written to the disk since the head; None if unknown."""
    error: str = ""
    """Why the head is unknown."""

    @property
    def parents(self) -> dict[str, str | None]:
        """The parent of each checkpoint by id, in the order in which siblings are drawn."""
        return {checkpoint.id: checkpoint.parent for checkpoint in self.checkpoints}

    @property
    def undo_goes_to(self) -> CheckpointView | None:
        """The last automatic checkpoint."""
        return next((one for one in reversed(self.checkpoints) if one.auto), None)

    def find(self, id_: str | None) -> CheckpointView | None:
        return next((checkpoint for checkpoint in self.checkpoints if checkpoint.id == id_), None)

    def descendants(self, id_: str) -> int:
        """How many checkpoints descend from this one, directly or not."""
        children: dict[str | None, list[str]] = {}
        for checkpoint in self.checkpoints:
            children.setdefault(checkpoint.parent, []).append(checkpoint.id)
        seen, waiting = {id_}, [id_]
        while waiting:
            # The files may hold a circle.
            new = [child for child in children.get(waiting.pop(), []) if child not in seen]
            seen.update(new)
            waiting += new
        return len(seen) - 1


NO_TREE = CheckpointTree()


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The characters that draw the tree."""

    branch: str
    last: str
    lane: str
    node: str
    head: str
    broken: str
    here: str
    fold: str
    """Checkpoints that are not drawn."""


FANCY = Marks(branch="├─", last="└─", lane="│ ", node="○", head="●", broken="✗", here="← here", fold="⋯")
PLAIN = Marks(branch="|-", last="`-", lane="| ", node="o", head="*", broken="x", here="<- here", fold=":")


@dataclass(slots=True)
class Forest:
    """The checkpoints as trees. Each is in it exactly once, even if the files hold circles."""

    roots: list[str] = field(default_factory=list)
    children: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def grow(cls, parents: Mapping[str, str | None], head: str | None) -> Forest:
        """Builds the forest of all ids in ``parents``; siblings keep their order there.

        The branch that leads to the head comes last among siblings, so that it is drawn straight
        on. A checkpoint whose parent is gone becomes a root.
        """
        line = set(line_to(head, parents))
        forest = cls()
        for id_, parent in parents.items():
            known = parent is not None and parent in parents
            siblings = forest.children.setdefault(parent or "", []) if known else forest.roots
            siblings.append(id_)
        forest._cut_circles(parents)
        for siblings in (forest.roots, *forest.children.values()):
            siblings.sort(key=lambda id_: id_ in line)
        return forest

    def _cut_circles(self, ids: Collection[str]) -> None:
        """Makes the oldest checkpoint of each circle a root."""
        seen = {id_ for root in self.roots for id_ in self._descent(root)}
        for id_ in ids:
            if id_ not in seen:
                for children in self.children.values():
                    if id_ in children:
                        children.remove(id_)
                self.roots.append(id_)
                seen |= set(self._descent(id_))

    def _descent(self, root: str) -> Iterator[str]:
        waiting = [root]
        while waiting:
            id_ = waiting.pop()
            yield id_
            waiting += self.children.get(id_, [])

    def lines(self, marks: Marks) -> Iterator[tuple[str, str]]:
        """Yields the drawing in front of each checkpoint, and its id, from top to bottom."""
        waiting: list[tuple[str, str, str]] = []
        for number, root in enumerate(self.roots, 1):
            is_last = number == len(self.roots)
            below = "  " if is_last else marks.lane
            waiting.append((root, marks.last if is_last else marks.branch, below))
        waiting.reverse()
        while waiting:
            id_, before, below = waiting.pop()
            yield before, id_
            *branches, straight = self.children.get(id_) or [""]
            if straight:
                waiting.append((straight, below, below))
            for branch in reversed(branches):
                waiting.append((branch, below + marks.branch, below + marks.lane))


def line_to(head: str | None, parents: Mapping[str, str | None]) -> Iterator[str]:
    seen: set[str] = set()
    while head is not None and head not in seen:
        yield head
        seen.add(head)
        head = parents.get(head)

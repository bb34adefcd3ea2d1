"""Checkpoints as a tree: who descends from whom, and what stands before each when it is drawn."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What the tree is drawn with."""

    branch: str
    last: str
    lane: str
    node: str
    head: str
    broken: str
    here: str


FANCY = Marks(branch="├─", last="└─", lane="│ ", node="○", head="●", broken="✗", here="← here")
PLAIN = Marks(branch="|-", last="`-", lane="| ", node="o", head="*", broken="x", here="<- here")


@dataclass(slots=True)
class Forest:
    """Who descends from whom. Every checkpoint is in it once, whatever the files say."""

    roots: list[str] = field(default_factory=list)
    children: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def grow(cls, parents: Mapping[str, str | None], head: str | None) -> Forest:
        """A forest of all the ids in ``parents``, siblings in their order there.

        The line that leads to the head comes last among siblings, so that it is drawn straight on;
        children of one that is gone are roots.
        """
        line = set(_line_to(head, parents))
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
        """Checkpoints that descend from themselves: the oldest becomes a root."""
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
        """What stands before each checkpoint, and its id, from top to bottom."""
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


def _line_to(head: str | None, parents: Mapping[str, str | None]) -> Iterator[str]:
    seen: set[str] = set()
    while head is not None and head not in seen:
        yield head
        seen.add(head)
        head = parents.get(head)

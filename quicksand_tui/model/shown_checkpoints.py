"""A sandbox's checkpoints as the app shows them, and the tree that they form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quicksand.things.checkpoint import CheckpointFacts
from quicksand.things.frozen import frozen

from quicksand_tui.model.named import Named

TAG_LIMIT = 128
"""The most characters of a tag: the engine's limit, as a test checks (the model knows no
engine)."""

NOTE_LIMIT = 1000
"""The most characters of a note that are shown."""


@frozen
class CheckpointView(CheckpointFacts):
    """One checkpoint, with what the app has looked at. All text is sanitised; ``created`` is 0 if
    it is unknown."""

    id: str
    tag: str
    """The tag, or the id if the checkpoint cannot be read."""
    name: str
    """The word for it in commands: its tag, or its id if the tag cannot be typed."""
    is_measured: bool = False
    """Its sizes on disk are known."""
    has_picture: bool = False
    """A picture of the screen was kept with it."""
    error: str = ""
    """The reason why it cannot be read."""

    @property
    def named(self) -> Named:
        """Its id, with the name that shown commands use."""
        return Named(self.id, self.name)


@frozen
class CheckpointTree:
    """The checkpoints of a sandbox, and its position among them."""

    checkpoints: tuple[CheckpointView, ...] = ()
    """Unreadable ones first, then by age, oldest first."""
    head: str | None = None
    """The id of the checkpoint that the present state continues."""
    changed: int | None = None
    """Bytes written to the disk since the head; None if unknown."""
    own: int | None = None
    """Bytes that deleting all of them would free; None until they are measured."""
    shared: int = 0
    """Further bytes, which the present state, clones or templates need as well."""
    error: str = ""
    """The reason why the head is unknown."""

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
        """Returns the number of checkpoints that descend from this one, directly or not."""
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


@frozen
class Marks:
    """The characters that mark checkpoints in the tree, and its words."""

    node: str
    head: str
    broken: str
    here: str
    fold: str
    """The mark of checkpoints that are not drawn."""


FANCY = Marks(node="○", head="●", broken="✗", here="← here", fold="⋯")
PLAIN = Marks(node="o", head="*", broken="x", here="<- here", fold=":")


def line_to(head: str | None, parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yields ``head`` and its ancestors, up to its root."""
    seen: set[str] = set()
    while head is not None and head not in seen:
        yield head
        seen.add(head)
        head = parents.get(head)

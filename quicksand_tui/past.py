"""A sandbox's checkpoints as the app shows them. No import of the engine here."""

from __future__ import annotations

from dataclasses import dataclass

NOTE_LIMIT = 1000
"""Characters of a note that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointView:
    """One checkpoint. All text is fit to be shown."""

    id: str
    tag: str
    """Of one that cannot be read, its id."""
    name: str
    """What a command calls it: its tag, or its id where the tag cannot be typed."""
    parent: str | None = None
    """The id of the checkpoint that it descends from."""
    created: float | None = None
    """Unix time."""
    note: str = ""
    tier: str = ""
    tier_note: str = ""
    """Why not a better tier."""
    auto: bool = False
    """Taken by a revert, so that it can be undone."""
    pinned: bool = False
    """Not to be deleted by a slip."""
    hidden: bool = False
    """Kept by the engine for itself."""
    pause_s: float = 0.0
    """Seconds that the VM stood still."""
    written: int | None = None
    """Bytes; None if unknown."""
    own: int | None = None
    """Bytes that deleting it would free; None if nobody has measured them."""
    shared: int | None = None
    """Bytes that others need too."""
    error: str = ""
    """Why it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastView:
    """What a sandbox can go back to, and where it stands."""

    checkpoints: tuple[CheckpointView, ...] = ()
    """Those that cannot be read first, then the oldest first."""
    head: str | None = None
    """The id of the checkpoint that the present descends from."""
    error: str = ""
    """Why it is unknown where it stands."""

    @property
    def parents(self) -> dict[str, str | None]:
        """By id, in the order in which siblings are drawn."""
        return {made.id: made.parent for made in self.checkpoints}

    @property
    def undo_goes_to(self) -> CheckpointView | None:
        """The last automatic checkpoint."""
        made = (made for made in reversed(self.checkpoints) if made.auto)
        return next(made, None)

    def find(self, id_: str | None) -> CheckpointView | None:
        return next((made for made in self.checkpoints if made.id == id_), None)

    def descendants(self, id_: str) -> int:
        """How many descend from it, directly or not."""
        children: dict[str | None, list[str]] = {}
        for made in self.checkpoints:
            children.setdefault(made.parent, []).append(made.id)
        seen, waiting = {id_}, [id_]
        while waiting:
            # Files may say that one descends from itself.
            found = [child for child in children.get(waiting.pop(), []) if child not in seen]
            seen.update(found)
            waiting += found
        return len(seen) - 1


NO_PAST = PastView()

"""Checkpoints: what is known of one, wherever it is shown."""

from __future__ import annotations

from quicksand.things.frozen import frozen
from quicksand.things.tier import DISK, PAGES, find_tier


@frozen
class CheckpointFacts:
    """The facts of one checkpoint. The records of checkpoints derive from it."""

    tag: str = ""
    id: str = ""
    parent: str | None = None
    """The id of its parent in the tree of checkpoints."""
    created: float = 0.0
    """Unix time."""
    note: str = ""
    tier: str = PAGES.name
    """The way its memory is kept: "pages", "internal", or "disk" if it has none."""
    tier_note: str = ""
    """Why no better tier was used; "" for the best one."""
    auto: bool = False
    """Whether the engine took it (before a revert, a start at a checkpoint, or removal)."""
    pinned: bool = False
    """Whether it cannot be deleted, and does not expire as an old automatic checkpoint."""
    pause_s: float = 0.0
    """Seconds for which the VM was paused to take it."""
    bytes_written: int = 0
    """Bytes that were written to disk to take it."""
    size: int = 0
    """Bytes on disk that only it needs: deleting it frees them."""
    shared: int = 0
    """Bytes on disk that it shares with other checkpoints, clones or the present disk."""

    def __post_init__(self) -> None:
        """Raises ValueError for a tier that there is not: another machine may tell anything."""
        find_tier(self.tier)

    @property
    def has_memory(self) -> bool:
        """Whether a sandbox can revert to it; otherwise it can only boot from its disk."""
        return self.tier != DISK.name

    @property
    def has_pages(self) -> bool:
        """Whether its tier is "pages"."""
        return self.tier == PAGES.name


@frozen
class Checkpoint(CheckpointFacts):
    """A state of a sandbox to which it can revert."""

    tag: str
    id: str
    revert_form: str = ""
    """Of the checkpoint that a revert returns, the form of that revert: "warm" (in the QEMU that
    runs), "flushed" (the same, but QEMU translates the guest's code anew), "new QEMU"."""
    revert_why: str = ""
    """The reason why no better form was used; "" for the best one."""
    revert_answer_s: float = 0.0
    """Seconds from the call to the guest's answer. The call itself takes longer: it ends when the
    earlier state is on disk."""
    revert_pause_s: float = 0.0
    """Seconds for which that revert paused the VM."""

    def __post_init__(self) -> None:
        """Raises ValueError for a tier that there is not: another machine may tell anything."""
        find_tier(self.tier)

"""Checkpoints: what is known of one, wherever it is shown, and the tiers, the ways in which they
keep memory. The code of each tier is in paged.py and internal.py, which tier_choice.py lists."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from quicksand.things.frozen import frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One way in which checkpoints keep memory."""

    name: str
    """Its name in records, options and results."""
    required: frozenset[str]
    """The files that a checkpoint must have, by the names of the fields of `Node`."""
    optional: frozenset[str] = frozenset()
    """The files that it may have."""
    has_memory: bool = True
    """Whether it has memory; if not, a sandbox can only boot from the checkpoint's disk."""
    has_pages: bool = False
    """Whether its memory is kept in files of pages that several machines share."""
    is_incoming: bool = False
    """Whether QEMU starts with ``-incoming`` and waits for the devices' state; otherwise it starts
    paused (``-S``)."""

    def to_json(self) -> str:
        """Its name stands for it in records."""
        return self.name

    def fits(self, files: Set[str]) -> bool:
        """Whether a checkpoint of this tier can have these files."""
        return self.required <= files <= self.required | self.optional


PAGES = Tier(
    name="pages",
    required=frozenset({"index", "devices"}),
    optional=frozenset({"pages", "image", "firmware"}),
    has_pages=True,
    is_incoming=True,
)
INTERNAL = Tier(name="internal", required=frozenset({"state"}))
"""QEMU itself has written memory and devices as a snapshot."""
DISK = Tier(name="disk", required=frozenset(), has_memory=False)
"""Only the disk of a stopped sandbox."""

KNOWN = {tier.name: tier for tier in (PAGES, INTERNAL, DISK)}


def find_tier(name: object) -> Tier:
    """The tier with that name. Raises ValueError."""
    found = KNOWN.get(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"there is no tier {str(name)[:40]!r}")
    return found


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

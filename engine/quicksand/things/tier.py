"""Tiers, the ways in which checkpoints keep memory, as plain records. The code of each is in
paged.py and internal.py, which tier_choice.py lists."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass


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

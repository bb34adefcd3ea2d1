"""What callers see of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from quicksand.snapshots.history import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An instant of a sandbox that it can go back to."""

    tag: str
    id: str
    parent: str | None
    """The id of the checkpoint that it descends from."""
    created: float
    """Unix time."""
    note: str
    tier: str
    """How it was made: "pages" or "internal"."""
    tier_note: str
    """Why not in a better way."""
    auto: bool
    """Taken by a revert, so that it can be undone."""
    pinned: bool
    pause_s: float
    """Seconds that the VM stood still."""
    bytes_written: int

    @classmethod
    def from_node(cls, node: Node) -> Checkpoint:
        return cls(**{field: getattr(node, field) for field in cls.__slots__})

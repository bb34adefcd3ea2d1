"""Whether a sandbox's disk has changed since the checkpoint it descends from. It is judged by the
space that the layers occupy, so no data is read."""

from __future__ import annotations

from collections.abc import Sequence

from quicksand.base.footprint import BLOCK
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import Head

EMPTY_LAYER = 64 * 1024
"""Bytes of one qcow2 cluster. A layer to which nothing was written occupies less."""


def written_since(place: SandboxDir, head: Head, layers: Sequence[str]) -> int:
    """Bytes written to the disk since the checkpoint with ``layers`` from which ``head`` descends.
    Raises OSError."""
    newer = [name for name in head.layers if name not in layers]
    taken = (place.layer(name).stat().st_blocks * BLOCK for name in (*newer, head.top))
    return sum(size for size in taken if size > EMPTY_LAYER)

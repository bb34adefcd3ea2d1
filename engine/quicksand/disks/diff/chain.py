"""A disk made of qcow2 layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from quicksand.disks.diff.layer import Layer
from quicksand.disks.diff.ranges import Ranges


class Disk(Protocol):
    """A disk that holds a file system."""

    @property
    def size(self) -> int:
        """In bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes, zeros beyond the end. Raises ImageError."""
        ...


class Chain:
    """Layers on top of each other, the lowest first. The backing files in headers are ignored."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)
        self.size = self.layers[-1].size

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes of the disk. Raises ImageError naming a damaged layer."""
        parts = []
        while length > 0:
            parts.append(self._piece(offset, length))
            offset += len(parts[-1])
            length -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _piece(self, offset: int, length: int) -> bytes:
        """Return those of these bytes that one layer has in one cluster."""
        for layer in reversed(self.layers):
            # A shorter layer hides the layers below it: beyond its end the disk reads as zeros.
            if offset >= layer.size:
                break
            cluster = layer.cluster
            length = min(length, layer.size - offset, cluster - (offset & (cluster - 1)))
            data = layer.read(offset, length)
            if data is not None:
                return data
        return bytes(length)


def differing(a: Chain, b: Chain) -> Ranges:
    """Return the bytes that may differ: those in layers that the two disks do not share.

    Shared layers must be the same `Layer` objects in both chains. Raises ImageError.
    """
    shared = 0
    for layer_a, layer_b in zip(a.layers, b.layers, strict=False):
        if layer_a is not layer_b:
            break
        shared += 1
    own = (*a.layers[shared:], *b.layers[shared:])
    return Ranges(_covered(own, max(a.size, b.size)))


def _covered(layers: Sequence[Layer], size: int) -> Iterator[tuple[int, int]]:
    for layer in layers:
        yield from layer.allocated()
        # A shorter layer hides what is below it.
        yield layer.size, size

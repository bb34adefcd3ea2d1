"""A disk that is made of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from quicksand.diskdiff.layer import Layer
from quicksand.diskdiff.ranges import Ranges


class Disk(Protocol):
    """Something to read a file system from."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes; beyond the end there are zeros."""
        ...


class Chain:
    """Layers on top of each other, the lowest first. Their headers' backing files are not used."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)
        self.size = self.layers[-1].size

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes of the disk. Raises ImageError naming the layer that is damaged."""
        parts = []
        while length > 0:
            parts.append(self._piece(offset, length))
            offset += len(parts[-1])
            length -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _piece(self, offset: int, length: int) -> bytes:
        """The first bytes of them, as many as can be had at once."""
        for layer in reversed(self.layers):
            # A disk is no larger for what is beyond the end of a layer below: there are zeros.
            if offset >= layer.size:
                break
            cluster = layer.cluster
            length = min(length, layer.size - offset, cluster - (offset & (cluster - 1)))
            data = layer.read(offset, length)
            if data is not None:
                return data
        return bytes(length)


def differing(a: Chain, b: Chain) -> Ranges:
    """Bytes that may differ between two disks: those in layers that they do not share.

    The chains are made of the same `Layer` objects where they share files. Raises ImageError.
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

"""Keeping lines of layers short. QEMU opens all layers of a disk when it starts, which takes 1.3 ms
for each, and every checkpoint adds one."""

from __future__ import annotations

from quicksand.base.capacity import check_space
from quicksand.base.errors import HostError, ImageError
from quicksand.base.footprint import BLOCK
from quicksand.disks.images.visible import write_merged
from quicksand.records.layout import SandboxDir, layer_name
from quicksand.records.nodes import new_id
from quicksand.snapshots.layers import seal_layers

AT_LEAST = 16
"""Layers that are merged into one."""

MERGED_MAX = 32 * 1024 * 1024
"""Bytes of a merged layer, at most: a client waits while they are copied."""

SMALL = 1024 * 1024
"""Bytes of a layer that is merged whatever the sizes of the others."""


def merge_layers(place: SandboxDir, names: tuple[str, ...]) -> tuple[str, ...]:
    """The same frozen disk in fewer layers: if the latest ones of ``names`` are many and small,
    they are merged into a new layer.

    A layer is merged only with newer ones that together have as much data as itself, so that no
    data is copied more than a few times. If merging fails (the disk is full, a layer is damaged),
    the line stays long, which costs only time: no checkpoint fails because of it.
    """
    count, total = _choose(place, names)
    if count < AT_LEAST:
        return names
    kept, many = names[:-count], names[-count:]
    merged = new_id()
    try:
        check_space(place.layers, total)
        files = [place.layer(name) for name in many]
        write_merged(files, place.layer(merged), backing=layer_name(kept[-1]))
    except (HostError, ImageError):
        return names
    return (*kept, merged)


def seal_disk(place: SandboxDir, layers: tuple[str, ...], *, merge: bool = True) -> tuple[str, ...]:
    """Seal the layers of a frozen disk, and return them. With ``merge`` they may be fewer than
    those of the running machine, with the same content. Raises HostError."""
    if merge:
        layers = merge_layers(place, layers)
    seal_layers(place, layers)
    return layers


def _choose(place: SandboxDir, names: tuple[str, ...]) -> tuple[int, int]:
    """Return the number of latest layers to merge, and their bytes. The lowest layer stays."""
    count = total = 0
    for name in reversed(names[1:]):
        try:
            size = place.layer(name).stat().st_blocks * BLOCK
        except OSError:  # a revert to the checkpoint reports the error
            break
        if size > max(total, SMALL) or total + size > MERGED_MAX:
            break
        count, total = count + 1, total + size
    return count, total

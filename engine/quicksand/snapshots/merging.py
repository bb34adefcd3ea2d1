"""Keeping lines of layers short. QEMU opens all layers of a disk when it starts, which takes 1.3 ms
for each, and every checkpoint adds one."""

from __future__ import annotations

from quicksand.base.errors import HostError, ImageError
from quicksand.base.footprint import BLOCK
from quicksand.base.space import check_space
from quicksand.disks.images.merge import write_merged
from quicksand.records.layout import SandboxDir, layer_name
from quicksand.records.nodes import new_id

AT_LEAST = 16
"""Layers that are merged into one."""

MERGED_MAX = 32 * 1024 * 1024
"""Bytes of a merged layer, at most: a client waits while they are copied."""

SMALL = 1024 * 1024
"""Bytes of a layer that is merged whatever the others have."""


def merge_layers(place: SandboxDir, names: tuple[str, ...]) -> tuple[str, ...]:
    """The same frozen disk in fewer layers: if the latest ones of ``names`` are many and small,
    they are merged into a new layer.

    One is merged only with newer ones that have as much as itself, so that no data is copied more
    than a few times. If it cannot be done (the disk is full, a layer is damaged), the line stays
    long, which costs only time: no checkpoint fails for it.
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


def _choose(place: SandboxDir, names: tuple[str, ...]) -> tuple[int, int]:
    """How many of the latest layers to merge, and their bytes on disk. The lowest one stays."""
    count = total = 0
    for name in reversed(names[1:]):
        try:
            size = place.layer(name).stat().st_blocks * BLOCK
        except OSError:  # a revert to the checkpoint tells what is wrong
            break
        if size > max(total, SMALL) or total + size > MERGED_MAX:
            break
        count, total = count + 1, total + size
    return count, total

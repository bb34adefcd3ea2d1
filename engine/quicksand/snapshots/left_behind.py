"""Keeping the disk as the sandbox was last stopped, which a start at a checkpoint leaves behind."""

from __future__ import annotations

import time
from dataclasses import replace

from quicksand.base.errors import ImageError
from quicksand.base.files import map_os_errors
from quicksand.disks.diff.chain import Layer
from quicksand.records.nodes import BLANK, Head, Node, new_id
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import add_layer, seal_layers
from quicksand.snapshots.tags import automatic_tag
from quicksand.things.tier import DISK

BLOCK = 512
"""Bytes of a block as stat(2) counts them."""

NOTE = "the sandbox was stopped, and what was in memory is gone"


def keep_left_behind(history: History, left: Head, at: Node) -> Node | None:
    """Make the disk of the head ``left`` an automatic checkpoint of the tier "disk". Returns None
    if a checkpoint has the same disk already.

    The caller holds the history's lock, and the head on disk names ``left`` as previous. Previous
    then gets a new layer over that disk. Raises HostError, HistoryError.
    """
    place = history.place
    has_data = _has_data(history, left.top)
    layers = (*left.layers, left.top) if has_data else left.layers
    if not layers or any(node.layers == layers for node in history.nodes()):
        return None
    seal_layers(place, layers)
    if has_data:
        # If the start fails after all, the sandbox goes on in a layer that is nobody else's.
        top = new_id()
        add_layer(place, top, below=left.top)
        previous = replace(left, layers=layers, top=top)
        history.set_head(replace(history.head(), previous=previous))
    node = Node(
        id=new_id(),
        tag=automatic_tag(history, "before start" if at.auto else f"before start at {at.tag}"),
        parent=history.find_visible(left.node),
        created=time.time(),
        note="",
        tier=DISK,
        tier_note=NOTE,
        auto=True,
        pinned=False,
        pause_s=0.0,
        bytes_written=place.layer(layers[-1]).stat().st_blocks * BLOCK,
        layers=layers,
        shape={},
        memory=BLANK,
        pages=(),
        index=None,
        devices=None,
        token="",
        owner=place.root.name,
    )
    with map_os_errors(place.checkpoints):
        (place.checkpoints / node.id).mkdir(mode=0o700)
    history.commit(node)
    return node


def _has_data(history: History, layer: str) -> bool:
    """Whether data was written to the layer; also true if it cannot be read."""
    path = history.place.layer(layer)
    try:
        opened = Layer(path)
        try:
            return any(True for _ in opened.allocated())
        finally:
            opened.close()
    except (ImageError, OSError):
        return path.exists()

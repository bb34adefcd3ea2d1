"""Layers of a sandbox's disk."""

from __future__ import annotations

from collections.abc import Sequence

from quicksand.errors import HistoryError
from quicksand.host.files import sync_dir
from quicksand.images.overlay import create_overlay
from quicksand.images.qcow2 import check_qcow2
from quicksand.layout import SandboxDir
from quicksand.snapshots.history import History
from quicksand.snapshots.image import seal_image
from quicksand.snapshots.pages import verify
from quicksand.snapshots.records import File, Node
from quicksand.snapshots.verified import Verified


def add_layer(place: SandboxDir, name: str, *, below: str) -> None:
    """Make an empty layer ``name`` over the layer ``below``, on the disk.

    Raises ImageError if that one is damaged, DiskSpaceError, PathError.
    """
    lower = place.layer(below)
    size = check_qcow2(lower, allow_backing=True).virtual_size
    create_overlay(place.layer(name), backing=lower, size=size)
    sync_dir(place.layers)


def identify_layers(place: SandboxDir, names: Sequence[str]) -> tuple[File, ...]:
    """What identifies frozen layers: as their checkpoints know them, else as they are now. Raises
    HostError."""
    known = {file.name: file for node in History(place).all_nodes() for file in node.disk}
    verified = Verified.of_user()
    paths = [place.layer(name) for name in names]
    return tuple(known.get(path.name) or seal_image(path, verified) for path in paths)


def check_layers(place: SandboxDir, node: Node) -> None:
    """Raise HistoryError naming the layer of a checkpoint's disk that is missing or damaged."""
    verified = Verified.of_user()
    if [f"{name}.qcow2" for name in node.layers] != [file.name for file in node.disk]:
        raise HistoryError(f"the checkpoint {node.tag!r} has no checksums of its disk's layers")
    for name, file in zip(node.layers, node.disk, strict=True):
        verify(place.layer(name), file, verified)

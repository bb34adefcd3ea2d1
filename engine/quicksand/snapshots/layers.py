"""Layers of a sandbox's disk."""

from __future__ import annotations

from quicksand.host.files import sync_dir
from quicksand.images.overlay import create_overlay
from quicksand.images.qcow2 import check_qcow2
from quicksand.layout import SandboxDir


def add_layer(place: SandboxDir, name: str, *, below: str) -> None:
    """Make an empty layer ``name`` over the layer ``below``, on the disk.

    Raises ImageError if that one is damaged, DiskSpaceError, PathError.
    """
    lower = place.layer(below)
    size = check_qcow2(lower, allow_backing=True).virtual_size
    create_overlay(place.layer(name), backing=lower, size=size)
    sync_dir(place.layers)

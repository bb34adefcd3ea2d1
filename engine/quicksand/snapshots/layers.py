"""Layers of a sandbox's disk: making one, sealing frozen ones, checking them.

A seal is a layer's record of size and checksums (layers/<id>.json), written when it is frozen.
"""

from __future__ import annotations

from collections.abc import Iterable

from quicksand.base.errors import HistoryError
from quicksand.base.files import read_json, sync_dir, write_json
from quicksand.disks.images.overlay import create_overlay
from quicksand.disks.images.qcow2 import check_qcow2
from quicksand.records.layout import SandboxDir, layer_name
from quicksand.records.nodes import File, Node, Seal
from quicksand.snapshots.image import seal_image
from quicksand.snapshots.pages import verify
from quicksand.snapshots.verified import Verified


def add_layer(place: SandboxDir, name: str, *, below: str) -> None:
    """Create an empty layer ``name`` on top of the layer ``below`` and sync it.

    Raises ImageError if ``below`` is damaged, DiskSpaceError, PathError.
    """
    lower = place.layer(below)
    size = check_qcow2(lower, allow_backing=True).virtual_size
    create_overlay(place.layer(name), backing=layer_name(below), size=size)
    sync_dir(place.layers)


def seal_layers(place: SandboxDir, names: Iterable[str]) -> None:
    """Write a seal beside each of these frozen layers that has none. Seals are not part of the
    checkpoints' records because checkpoints share most of their layers, often hundreds.

    Raises HostError.
    """
    verified = Verified.of_user()
    for name in names:
        if not place.seal(name).exists():
            file = seal_image(place.layer(name), verified)
            write_json(place.seal(name), Seal(file).to_json())


def read_seal(place: SandboxDir, name: str) -> File:
    """The seal of a frozen layer. Raises HistoryError if it is missing or damaged."""
    path = place.seal(name)
    try:
        file = Seal.from_json(read_json(path)).file
        if file.name != place.layer(name).name:
            raise ValueError(f"it tells of {file.name}")
    except (OSError, ValueError) as error:
        raise HistoryError(f"{path} is damaged: {error}") from error
    return file


def check_layers(place: SandboxDir, node: Node) -> None:
    """Compare all layers of a checkpoint's disk with their seals. Raises HistoryError naming the
    one that is missing or damaged."""
    verified = Verified.of_user()
    for name in node.layers:
        verify(place.layer(name), read_seal(place, name), verified)

"""Layers of a sandbox's disk."""

from __future__ import annotations

from collections.abc import Iterable

from quicksand.errors import HistoryError
from quicksand.host.files import read_json, sync_dir, write_json
from quicksand.images.overlay import create_overlay
from quicksand.images.qcow2 import check_qcow2
from quicksand.layout import SandboxDir, layer_name
from quicksand.snapshots.image import seal_image
from quicksand.snapshots.pages import verify
from quicksand.snapshots.records import SCHEMA, File, Node, check_schema
from quicksand.snapshots.verified import Verified


def add_layer(place: SandboxDir, name: str, *, below: str) -> None:
    """Make an empty layer ``name`` over the layer ``below``, on the disk.

    Raises ImageError if that one is damaged, DiskSpaceError, PathError.
    """
    lower = place.layer(below)
    size = check_qcow2(lower, allow_backing=True).virtual_size
    create_overlay(place.layer(name), backing=layer_name(below), size=size)
    sync_dir(place.layers)


def seal_layers(place: SandboxDir, names: Iterable[str]) -> None:
    """Note beside each of these frozen layers what identifies it, unless that is there already. One
    record a layer, not in those of the checkpoints: they share most layers, hundreds of them.

    Raises HostError.
    """
    verified = Verified.of_user()
    for name in names:
        if not place.seal(name).exists():
            file = seal_image(place.layer(name), verified)
            write_json(place.seal(name), {"schema_version": SCHEMA, "file": file.to_json()})


def read_seal(place: SandboxDir, name: str) -> File:
    """What identifies a frozen layer. Raises HistoryError if nobody can tell."""
    path = place.seal(name)
    try:
        value = read_json(path)
        check_schema(value)
        file = File.from_json(value["file"])
        if file.name != place.layer(name).name:
            raise ValueError(f"it tells of {file.name}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HistoryError(f"{path} is damaged: {error}") from error
    return file


def check_layers(place: SandboxDir, node: Node) -> None:
    """Raise HistoryError naming the layer of a checkpoint's disk that is missing or damaged."""
    verified = Verified.of_user()
    for name in node.layers:
        verify(place.layer(name), read_seal(place, name), verified)

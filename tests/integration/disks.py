"""Files on disks, read without a guest: a boot takes longer than all that a test does besides."""

from __future__ import annotations

from pathlib import Path

from quicksand import Sandbox
from quicksand.base.files import read_json
from quicksand.base.paths import Paths, paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.snapshots.history import History
from quicksand_disks.ext4.filesystem import read_from_disk

MOST = 64 << 20
"""Bytes of a file."""


def file_of_stopped(places: Paths, sandbox: Sandbox, path: str) -> bytes | None:
    """A file on the disk with which a stopped sandbox would start; None if there is none."""
    record = Registry(places).find(sandbox.id).record
    assert record is not None
    place = sandbox_dir(places, sandbox.id)
    head = History(place).head()
    if head.previous is not None and head.machine != read_json(place.exit)["machine"]:
        head = head.previous  # what has run last decides
    layers = [place.layer(name) for name in (*head.layers, head.top)]
    return read_from_disk([*map(Path, record.chain), *layers], path, most=MOST)


def file_of_save(root: Path, path: str) -> bytes | None:
    """A file on the disk of a save that lies on the usual image; None if there is none."""
    image = ImageStore(paths().images).get("debian")
    assert image is not None
    layers = sorted((root / "overlays").iterdir(), key=lambda layer: int(layer.stem))
    return read_from_disk([*image.chain, *layers], path, most=MOST)

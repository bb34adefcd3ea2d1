"""Saves made without any VM."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from quicksand.base.files import write_json
from quicksand.base.paths import Paths, make_private_dir
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.records.config import SandboxConfig
from quicksand.saves.finding import all_stores, remember
from quicksand.saves.save_manifest import (
    MANIFEST,
    OVERLAYS,
    Base,
    Parent,
    Save,
    SavedLayer,
    SaveManifest,
)
from quicksand.saves.store import SaveStore
from quicksand_disks.qcow2.writing import CLUSTER

from tests.unit.disks.diff.disks import write_clusters

MIB = 1024 * 1024


def make_layer(path: Path, content: bytes, *, size: int = 64 * MIB) -> Path:
    """A layer of one cluster."""
    create_overlay(path, backing=path.with_name("none.qcow2"), size=size)
    write_clusters(path, {1: content[:CLUSTER]})
    return path


def workspace_of(places: Paths, cwd: Path) -> SaveStore:
    """The saves in the workspace of a directory, known as after a save."""
    store = all_stores(places, cwd)[0]
    remember(store.root, places)
    return store


def fill_save(
    made: Path,
    *contents: bytes,
    shared: tuple[Path, ...] = (),
    base: Base | None = None,
    parent: Parent | None = None,
    note: str = "",
    image: str = "debian",
) -> SaveManifest:
    """Put a whole save into ``made``: the layers ``shared`` by links, one more for each content."""
    (made / OVERLAYS).mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(shared):
        os.link(path, made / OVERLAYS / f"{number}.qcow2")
    for number, content in enumerate(contents, len(shared)):
        make_layer(made / OVERLAYS / f"{number}.qcow2", content)
    layers = []
    for number in range(len(shared) + len(contents)):
        path = made / OVERLAYS / f"{number}.qcow2"
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        layers.append(SavedLayer(id=digest[:12], size=path.stat().st_size, sha256=digest))
    manifest = SaveManifest(
        config=SandboxConfig.parse({"image": image}),
        arch="x86_64",
        id=os.urandom(6).hex(),
        created=1_700_000_000.0,
        note=note,
        engine="test",
        base=base or Base(name=image),
        parent=parent,
        layers=tuple(layers),
    )
    write_json(made / MANIFEST, manifest.to_json(), durable=False)
    return manifest


def make_save(
    store: SaveStore,
    name: str,
    *contents: bytes,
    over: Save | None = None,
    replace: bool = False,
    note: str = "",
    base: Base | None = None,
) -> Save:
    """A save in ``store`` with a layer for each content, over those of another one."""
    shared: tuple[Path, ...] = ()
    parent = None
    if over is not None:
        shared = tuple(sorted((over.root / OVERLAYS).iterdir(), key=lambda path: int(path.stem)))
        parent = Parent(name=over.name, id=over.require().id)
    with store.making() as made:
        fill_save(made, *contents, shared=shared, parent=parent, note=note, base=base)
        return store.publish(made, name, replace=replace)


def publish_image(places: Paths, content: str = "1", name: str = "debian") -> StoredImage:
    """An image in the store, with a disk that is empty."""
    store = ImageStore(places.images)
    staging = make_private_dir(store.root) / f".building-{name}-{os.urandom(4).hex()}"
    staging.mkdir()
    create_overlay(staging / "disk.qcow2", backing=None, size=64 * MIB)
    for part in ("kernel", "initrd"):
        (staging / part).write_text(f"{part} {content}")
    manifest = {
        "name": name,
        "version": "13",
        "arch": "x86_64",
        "created": 1_700_000_000,
        "files": {
            "disk": {"name": "disk.qcow2"},
            "kernel": {"name": "kernel"},
            "initrd": {"name": "initrd"},
        },
    }
    return store.publish(staging, manifest)


def make_published(root: Path, *contents: bytes, image: str = "debian") -> Path:
    """A save as the published packages write it: no digests, no list of layers."""
    (root / OVERLAYS).mkdir(parents=True)
    for number, content in enumerate(contents):
        make_layer(root / OVERLAYS / f"{number}.qcow2", content)
    manifest = {"version": 6, "config": {"image": image}, "arch": "x86_64"}
    (root / MANIFEST).write_text(json.dumps(manifest))
    return root

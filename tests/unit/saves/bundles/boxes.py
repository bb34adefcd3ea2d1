"""Sandboxes with checkpoints on disk, which no VM has made, and which an import takes."""

from __future__ import annotations

import itertools
import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

from quicksand.records.config import SandboxConfig
from quicksand.records.layout import SandboxDir, sandbox_dir
from quicksand.records.nodes import BLANK, Head, Node, new_id
from quicksand.records.sandboxes import Record
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.history import History
from quicksand.snapshots.image import seal_image
from quicksand.snapshots.layers import add_layer, read_seal, seal_layers
from quicksand.snapshots.pages import PageIndex, PageRun, verify, write_file
from quicksand.things.checkpoint import find_tier

from tests.conftest import blank_record
from tests.unit.saves.bundles.disks import entry, snapshots
from tests.unit.saves.bundles.making import Home
from tests.unit.saves.making import make_layer

MEMORY = 1024 * 1024
"""Bytes; no machine starts with so little (`small_memory` in conftest.py)."""


def make_box(home: Home, name: str = "box", **config: Any) -> Record:
    """Stopped, with three checkpoints: root, its child, and one of the other tier."""
    image = home.images.get("debian")
    assert image is not None
    options = {"image": "debian", "memory": "1M", **config}
    record = replace(
        blank_record(SandboxConfig.parse(options)),
        id=new_id(),
        name=name,
        committed=True,
        image_digest=image.digest,
        chain=(str(image.disk),),
    )
    os.close(home.registry.create(record))
    place = place_of(home, record)
    place.make()
    layers = tuple(new_id() for _ in range(3))
    make_layer(place.layer(layers[0]), b"lowest")
    for below, above in itertools.pairwise(layers):
        add_layer(place, above, below=below)
    root = add_node(place, record, "root", layers[:1])
    child = add_node(place, record, "child", layers[:2], parent=root.id)
    hidden = add_node(place, record, "hidden", layers[:2], parent=child.id, hidden=True)
    last = add_internal(place, record, "other", layers[:2], parent=hidden.id)
    History(place).set_head(Head(layers=layers[:2], top=layers[2], node=last.id))
    return record


def place_of(home: Home, record: Record) -> SandboxDir:
    return sandbox_dir(home.paths, record.id)


def shape_of(record: Record) -> dict[str, Any]:
    return {
        "arch": "x86_64",
        "accel": "tcg",
        "memory": record.config.memory_bytes,
        "cpus": 1,
        "network": "mounts_only",
        "qemu": "1.2.3",
        "image": record.image_digest,
        "extra": [],
        "cpu": "",
    }


def add_node(
    place: SandboxDir, record: Record, tag: str, layers: tuple[str, ...], **facts: Any
) -> Node:
    id_ = new_id()
    directory = place.checkpoints / id_
    directory.mkdir()
    ram = place.memory / f"{id_}.ram"
    with ram.open("xb") as file:
        file.truncate(MEMORY)
        file.seek(5 * PAGE)
        file.write(os.urandom(PAGE))
    runs = PageIndex(MEMORY, (PageRun(0, 2, 0, 0), PageRun(9, 1, 0xFFFFFFFF, 0))).encode()
    seal_layers(place, layers)
    node = Node(
        id=id_,
        tag=tag,
        created=1_700_000_000.0 + len(list(place.checkpoints.iterdir())),
        note="a note",
        tier=find_tier("pages"),
        tier_note="",
        auto=False,
        pinned=tag == "root",
        pause_s=0.01,
        bytes_written=1,
        layers=layers,
        shape=shape_of(record),
        memory=ram.name,
        image=seal_image(ram),
        firmware=write_file(place.memory / f"{id_}.rom", iter([os.urandom(PAGE)])),
        pages=(write_file(place.memory / f"{id_}.pages", iter([os.urandom(2 * PAGE)])),),
        index=write_file(directory / "pages.index", iter([runs])),
        devices=write_file(directory / "devices", iter([os.urandom(500)])),
        token=secrets.token_hex(16),
        **{"parent": None, "owner": record.id, **facts},
    )
    History(place).commit(node)
    return node


def add_internal(
    place: SandboxDir, record: Record, tag: str, layers: tuple[str, ...], **facts: Any
) -> Node:
    id_ = new_id()
    (place.checkpoints / id_).mkdir()
    path = place.memory / f"{id_}.state"
    path.write_bytes(snapshots(entry()))
    seal_layers(place, layers)
    node = Node(
        id=id_,
        tag=tag,
        created=1_700_000_100.0,
        note="",
        tier=find_tier("internal"),
        tier_note="why",
        auto=True,
        pinned=False,
        pause_s=0.01,
        bytes_written=1,
        layers=layers,
        shape=shape_of(record),
        memory=BLANK,
        pages=(),
        index=None,
        devices=None,
        state=seal_image(path),
        token="t",
        **{"owner": "", **facts},
    )
    History(place).commit(node)
    return node


def check_whole(home: Home, id_: str) -> list[Node]:
    """Every file of every checkpoint is what its record says."""
    place = sandbox_dir(home.paths, id_)
    nodes = History(place).nodes()
    for node in nodes:
        files: list[tuple[Path, Any]] = [(place.memory / f.name, f) for f in node.files]
        files += [(place.layer(name), read_seal(place, name)) for name in node.layers]
        own = place.checkpoints / node.id
        files += [(own / "devices", node.devices), (own / "pages.index", node.index)]
        for path, file in files:
            if file is not None:
                verify(path, file)
    return nodes

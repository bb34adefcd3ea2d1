"""Stopped sandboxes with a checkpoint, made without any VM."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from quicksand.disks.images.disk_layers import create_overlay
from quicksand.disks.images.resolve import ResolvedImage
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import SandboxDir, sandbox_dir
from quicksand.records.nodes import File, Head, Node, new_id
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import add_layer, read_seal, seal_layers
from quicksand.snapshots.pages import PageIndex, PageRun, verify, write_file
from quicksand.things.checkpoint import find_tier

from tests.conftest import blank_record

MIB = 1024 * 1024


def tree(root: Path) -> set[str]:
    """Every file below ``root`` that is no lock."""
    return {
        str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and "lock" not in p.name
    }


def make_base(directory: Path) -> Path:
    """An image's disk."""
    path = directory / "base.qcow2"
    create_overlay(path, backing=directory / "none", size=64 * MIB)
    return path


def image_of(base: Path) -> ResolvedImage:
    return ResolvedImage(
        name="base",
        chain=(base,),
        kernel=base,
        initrd=base,
        guest_arch=None,  # type: ignore[arg-type]
    )


def make_box(registry: Registry, base: Path, name: str) -> Record:
    """A stopped sandbox with a disk and, in its history, a checkpoint."""
    config = SandboxConfig.parse({"image": str(base)})
    record = replace(
        blank_record(config), id=new_id(), name=name, committed=True, chain=(str(base),)
    )
    os.close(registry.create(record))
    place = sandbox_dir(registry.paths, record.id)
    for directory in (place.layers, place.memory, place.checkpoints):
        directory.mkdir()
    low, top = new_id(), new_id()
    create_overlay(place.layer(low), backing=base, size=64 * MIB)
    add_layer(place, top, below=low)
    node = commit_node(place, (low,))
    History(place).set_head(Head(layers=(low,), top=top, node=node.id))
    return record


def commit_node(place: SandboxDir, layers: tuple[str, ...]) -> Node:
    id_ = new_id()
    directory = place.checkpoints / id_
    directory.mkdir()
    runs = PageIndex(8 * PAGE, (PageRun(0, 2, 0, 0),)).encode()
    index = write_file(directory / "pages.index", iter([runs]))
    devices = write_file(directory / "devices", iter([os.urandom(500)]))
    stored, ram, rom = (
        write_file(place.memory / f"{id_}.{kind}", iter([os.urandom(count * PAGE)]))
        for kind, count in (("pages", 2), ("ram", 8), ("rom", 1))
    )
    seal_layers(place, layers)
    node = Node(
        id=id_,
        tag="one",
        parent=None,
        created=1.0,
        note="",
        tier=find_tier("pages"),
        tier_note="",
        auto=False,
        pinned=False,
        pause_s=0.0,
        bytes_written=0,
        layers=layers,
        shape={},
        memory=ram.name,
        image=ram,
        firmware=rom,
        pages=(stored,),
        index=index,
        devices=devices,
        token="t",
    )
    History(place).commit(node)
    return node


def check_whole(place: SandboxDir, node: Node) -> None:
    found = History(place).get(node.id)
    directory = place.checkpoints / node.id
    assert found.devices is not None
    assert found.index is not None
    files: list[tuple[Path, File]] = [(directory / "devices", found.devices)]
    files += [(directory / "pages.index", found.index)]
    files += [(place.memory / file.name, file) for file in found.files]
    files += [(place.layer(name), read_seal(place, name)) for name in found.layers]
    for path, file in files:
        verify(path, file)

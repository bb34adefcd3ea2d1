"""A sandbox with its checkpoints out of a bundle: a new, stopped sandbox.

Its records come first and are parsed by the classes that sandboxes are read with; only files that
they need are taken, and each has to fit its checksums in them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from quicksand.config import check_name
from quicksand.errors import ConfigError, NameTakenError
from quicksand.host.files import map_os_errors, sync_dir
from quicksand.host.staging import staging
from quicksand.images.store import ImageStore, StoredImage
from quicksand.layout import SandboxDir, sandbox_dir
from quicksand.registry import Record, Registry, new_id, remove_tree
from quicksand.saves.bundle.bases import IncomingBase
from quicksand.saves.bundle.checks import check_disk, check_layer, warnings
from quicksand.saves.bundle.importing import Imported, Options
from quicksand.saves.bundle.manifest import IMAGE_FILES, Bundle, Kind, Member, Sandbox, parse_json
from quicksand.saves.bundle.receiving import Receiver, require_space
from quicksand.saves.bundle.trees import (
    layer_files,
    memory_files,
    node_files,
    record_name,
    sealed_layers,
    start_at,
)
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import add_layer
from quicksand.snapshots.pages import check_index
from quicksand.snapshots.records import BLANK, DISK, INTERNAL, PAGES, File, Head, Node, check_schema
from quicksand.snapshots.records import new_id as new_layer

RECORD_MAX = 4 * 1024 * 1024
"""Bytes of a checkpoint's record, as `read_json` takes them."""

INDEX_MAX = 64 * 1024 * 1024
"""Bytes of an index of pages; it has 24 for each piece of memory that hangs together."""

DEVICES_MAX = 256 * 1024 * 1024
"""Bytes of the devices' state; it has some hundred KiB, a picture of a large display 16 MiB."""


def import_tree(
    receiver: Receiver, bundle: Bundle, images: ImageStore, registry: Registry, options: Options
) -> Imported:
    """Make a sandbox out of the bundle that ``receiver`` reads. Raises ValueError, BundleError,
    NameTakenError, HostError: nothing has changed then."""
    if options.replace:
        raise ConfigError(
            "an imported sandbox does not take the place of another one",
            hint=f"`quicksand-tui rm {options.name or bundle.name}` first, or --name",
        )
    sandbox = bundle.content
    assert isinstance(sandbox, Sandbox)
    record = _new_record(bundle, options.name)
    _refuse_taken(registry, record.name)
    base = IncomingBase(images, bundle)
    require_space(registry.paths.sandboxes, bundle.size)
    with staging(registry.paths.sandboxes) as made:
        place = SandboxDir(made)
        with map_os_errors(made):
            place.make()
        nodes = _receive_records(receiver, bundle, sandbox)
        _receive_files(receiver, bundle, sandbox, nodes, place)
        with staging(images.root) as image_made:
            base.receive(receiver, image_made)
            receiver.end()
            _write_records(place, sandbox, nodes)
            options.stop()
            image = base.publish()
        _publish(registry, record, image, place)
    receiver.note_verified()
    return Imported(
        kind=Kind.TREE,
        name=record.name,
        id=record.id,
        root=sandbox_dir(registry.paths, record.id).root,
        size=bundle.size,
        base=f"{image.name} {image.digest[:12]}",
        image_added=base.is_new,
        checkpoints=len(nodes),
        notes=tuple(warnings(record.config)),
    )


def _new_record(bundle: Bundle, name: str | None) -> Record:
    id_ = new_id()
    assert isinstance(bundle.content, Sandbox)
    # One without a name is called by its id, which is not to be another one's.
    own = bundle.name if bundle.name != bundle.content.id else id_
    return Record(
        id=id_,
        name=name or own,
        config=bundle.config,
        image_digest=bundle.base.digest,
        chain=(),
        created=time.time(),
        committed=False,
        discard=False,
    )


def _refuse_taken(registry: Registry, name: str) -> None:
    """Before a long import, not after it: raises as `Registry.create`."""
    check_name(name)
    if any(name in (entry.name, entry.id) for entry in registry.list()):
        raise NameTakenError(
            f"there is a sandbox {name!r} already",
            hint="`import --name NAME` gives the imported one another name",
        )


def _receive_records(receiver: Receiver, bundle: Bundle, sandbox: Sandbox) -> list[Node]:
    """The checkpoints, which fit each other and the files that the manifest lists."""
    nodes: list[Node] = []
    for member in bundle.files:
        if not member.name.endswith("/node.json"):
            break
        plain = parse_json(receiver.take_small(member, RECORD_MAX), member.name)
        node = Node.from_json(plain)
        if member.name != record_name(node.id):
            raise ValueError(f"{member.name} is the record of {node.id}")
        nodes.append(replace(node, hidden=False, owner=node.owner or sandbox.id))
    if len({node.id for node in nodes}) != len(nodes):
        raise ValueError("two checkpoints have the same id")
    for node in nodes:
        _check_node(node, bundle)
    _check_parents(nodes)
    _check_stand(sandbox, nodes)
    _check_shared(nodes)
    expected = _expected_names(sandbox, nodes)
    found = [file.name for file in bundle.files[len(nodes) :] if file.name not in IMAGE_FILES]
    if expected != found:
        differing = sorted({*expected} ^ {*found}) or ["their order"]
        raise ValueError(f"its files are not those of its checkpoints: {differing[0]}")
    return nodes


def _check_node(node: Node, bundle: Bundle) -> None:
    if node.tier not in (PAGES, INTERNAL, DISK):
        raise ValueError(f"the tier of {node.tag!r} is {node.tier[:40]!r}")
    if not node.layers:
        raise ValueError(f"the checkpoint {node.tag!r} has no disk")
    if node.tier == DISK:
        return
    memory = bundle.config.memory_bytes
    shape = node.shape
    if shape.get("memory") != memory or shape.get("image") != bundle.base.digest:
        raise ValueError(f"the checkpoint {node.tag!r} is of another machine than its sandbox")
    if shape.get("arch") != bundle.base.arch:
        raise ValueError(f"the checkpoint {node.tag!r} is of another machine than its base")
    name = BLANK if node.image is None else node.image.name
    if node.memory != name or (node.image is not None and node.image.size != memory):
        raise ValueError(f"the memory of {node.tag!r} is not that of its sandbox")
    if node.index is not None and node.index.size > INDEX_MAX:
        raise ValueError(f"the index of {node.tag!r} has {node.index.size} bytes")
    if node.devices is not None and node.devices.size > DEVICES_MAX:
        raise ValueError(f"the devices of {node.tag!r} have {node.devices.size} bytes")


def _check_shared(nodes: Sequence[Node]) -> None:
    """Raise ValueError unless all records say the same of a file that they share."""
    seen: dict[str, File] = {}
    for node in nodes:
        for file in node.files:
            if seen.setdefault(file.name, file) != file:
                raise ValueError(f"two checkpoints do not agree on {file.name}")


def _check_parents(nodes: Sequence[Node]) -> None:
    """Raise ValueError unless they are a tree."""
    parents = {node.id: node.parent for node in nodes}
    sound: set[str] = set()
    for node in nodes:
        path: list[str] = []
        at: str | None = node.id
        while at is not None and at not in sound:
            if at not in parents or len(path) > len(nodes):
                raise ValueError(f"the checkpoint {node.tag!r} does not descend from another one")
            path.append(at)
            at = parents[at]
        sound.update(path)


def _check_stand(sandbox: Sandbox, nodes: Sequence[Node]) -> None:
    ids = {node.id for node in nodes}
    if sandbox.node is not None and sandbox.node not in ids:
        raise ValueError("it stands on a checkpoint that it does not have")
    if sandbox.top is None and (sandbox.layers or not nodes):
        raise ValueError("it has neither checkpoints nor a disk")
    frozen = {name for node in nodes for name in node.layers} | set(sandbox.layers)
    if sandbox.top in frozen:
        raise ValueError("the layer that its guest writes to is a frozen one")


def _expected_names(sandbox: Sandbox, nodes: Sequence[Node]) -> list[str]:
    """All members behind the records, in their order (trees.py, `_list_files`)."""
    layers = layer_files(nodes, sandbox.layers)
    names = [f"layers/{name}.json" for name in layers if name in sealed_layers(nodes)]
    names += [f"layers/{name}.qcow2" for name in layers]
    if sandbox.top is not None:
        names.append(f"layers/{sandbox.top}.qcow2")
    names += memory_files(nodes)
    names += [name for node in nodes for name, _ in node_files(node)]
    return names


def _receive_files(
    receiver: Receiver, bundle: Bundle, sandbox: Sandbox, nodes: list[Node], place: SandboxDir
) -> None:
    memory = memory_files(nodes)
    own = {name: (node, file) for node in nodes for name, file in node_files(node)}
    seals: dict[str, File] = {}
    with map_os_errors(place.root):
        for node in nodes:
            (place.checkpoints / node.id).mkdir(mode=0o700)
    for member in bundle.files[len(nodes) :]:
        path = place.root / member.name
        if member.name in IMAGE_FILES:
            continue
        if member.name.startswith("layers/"):
            _receive_layer(receiver, member, path, seals)
        elif (file := memory.get(member.name)) is not None:
            receiver.write(member, path, file)
            if path.suffix == ".state":
                check_disk(path, member.name)
        else:
            node, file = own[member.name]
            receiver.write(member, path, file)
            if path.name == "pages.index":
                _check_index(path, node, bundle.config.memory_bytes)


def _receive_layer(receiver: Receiver, member: Member, path: Path, seals: dict[str, File]) -> None:
    if path.suffix == ".json":
        data = receiver.take_small(member, RECORD_MAX)
        seals[path.stem] = _parse_seal(parse_json(data, member.name), path)
        with map_os_errors(path):
            path.write_bytes(data)
            with path.open("rb") as file:
                os.fsync(file.fileno())
        return
    receiver.write(member, path, seals.get(path.stem))
    check_layer(path, member.name)


def _parse_seal(plain: dict[str, Any], path: Path) -> File:
    check_schema(plain)
    file = File.from_json(plain["file"])
    if file.name != f"{path.stem}.qcow2":
        raise ValueError(f"{path.name} tells of {file.name}")
    return file


def _check_index(path: Path, node: Node, memory: int) -> None:
    """Where its pages are said to be, they are; and in the guest's memory they have a place."""
    size = check_index(path.read_bytes(), files=[file.size // PAGE for file in node.pages])
    if size != memory:
        raise ValueError(f"the memory of {node.tag!r} has {size} bytes, and not {memory}")


def _write_records(place: SandboxDir, sandbox: Sandbox, nodes: list[Node]) -> None:
    history = History(place)
    for node in nodes:
        sync_dir(place.checkpoints / node.id)
        history.commit(node)
    if sandbox.top is not None:
        head = Head(layers=sandbox.layers, top=sandbox.top, node=sandbox.node)
    else:
        node = start_at(sandbox, nodes)
        head = Head(layers=node.layers, top=new_layer(), node=node.id)
        add_layer(place, head.top, below=node.layers[-1])
    history.set_head(head)
    sync_dir(place.layers)
    sync_dir(place.memory)


def _publish(registry: Registry, record: Record, image: StoredImage, made: SandboxDir) -> None:
    """Make the files in ``made`` those of a new sandbox; it is one when its record says so."""
    record = replace(record, chain=(str(image.disk.resolve()),))
    lock = registry.create(record)
    place = sandbox_dir(registry.paths, record.id)
    try:
        with map_os_errors(place.root):
            for path in (made.layers, made.memory, made.checkpoints, made.head):
                path.rename(place.root / path.name)
            sync_dir(place.root)
        registry.save(replace(record, committed=True))
    except BaseException:
        remove_tree(place.root)
        raise
    finally:
        os.close(lock)

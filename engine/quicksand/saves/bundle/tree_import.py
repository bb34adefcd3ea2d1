"""Imports a sandbox with its checkpoints as a new, stopped sandbox.

The checkpoints' records come first and are parsed by the classes that read sandboxes. Only files
that the records need are accepted, and each has to match the checksums there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from quicksand.base.errors import ConfigError, NameTakenError
from quicksand.base.files import map_os_errors, sync_dir
from quicksand.base.regular import create, read_file
from quicksand.base.remedies import Remedy, Words
from quicksand.base.staging import staging
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.records.config import NetworkMode, check_name
from quicksand.records.layout import SandboxDir, remove_elsewhere, sandbox_dir
from quicksand.records.nodes import BLANK, File, Head, Node, Seal
from quicksand.records.nodes import new_id as new_layer
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, new_id
from quicksand.records.trash import remove_tree
from quicksand.saves.bundle.bases import IncomingBase
from quicksand.saves.bundle.exporting import (
    layer_files,
    memory_files,
    node_files,
    record_name,
    sealed_layers,
    start_at,
)
from quicksand.saves.bundle.manifest import (
    Bundle,
    BundledSandbox,
    BundleKind,
    Member,
    image_part,
    parse_json,
)
from quicksand.saves.bundle.receiving import (
    DiskWatch,
    Imported,
    ImportOptions,
    Receiver,
    check_disk,
    check_layer,
    require_space,
    warnings,
)
from quicksand.saves.resolving import confine
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import add_layer
from quicksand.snapshots.pages import check_index

RECORD_MAX = 4 * 1024 * 1024
"""Bytes of a checkpoint's record; `read_json` accepts as many."""

INDEX_MAX = 64 * 1024 * 1024
"""Bytes of a page index, which has 24 for each contiguous piece of memory."""

SHAPE_MAX = 16 * 1024
"""Characters of the JSON with which a checkpoint describes its machine; ours have 400."""

FIRMWARE_MAX = 64 * 1024 * 1024
"""Bytes; that of a PC has 256 KiB, UEFI has at most 64 MiB."""

DEVICES_MAX = 256 * 1024 * 1024
"""Bytes of the device state, usually some hundred KiB; a large display would add 16 MiB."""


def import_tree(
    receiver: Receiver,
    bundle: Bundle,
    images: ImageStore,
    registry: Registry,
    options: ImportOptions,
) -> Imported:
    """Make a sandbox from the bundle that ``receiver`` reads. Raises ValueError, BundleError,
    ConfigError, NameTakenError, ImageError, HostError; then there is no new sandbox."""
    if options.replace:
        name = options.name or bundle.name
        raise ConfigError(
            "an imported sandbox cannot replace another one",
            hint=Words(
                Remedy("trash", name=name), " first, or ", Words("--name", python="another name")
            ),
        )
    sandbox = bundle.content
    assert isinstance(sandbox, BundledSandbox)
    record = _new_record(bundle, options.name)
    if not options.trusted:
        record = replace(record, config=confine(record.config))
    # Directories of this host are chosen here, and never by a bundle.
    record = replace(record, config=record.config.without_host(**options.places))
    _refuse_taken(registry, record.name)
    base = IncomingBase(images, bundle)
    require_space(registry.paths.sandboxes, bundle.size)
    memory = registry.paths.memory
    with staging(registry.paths.sandboxes, forget=remove_elsewhere) as made:
        place = SandboxDir(made, None if memory is None else memory / record.id)
        place.put_elsewhere(record.config.places, record.id)
        with map_os_errors(memory or made):
            place.make()
        nodes = _receive_records(receiver, bundle, sandbox)
        nodes = [_fit_network(node, record) for node in nodes]
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
        kind=BundleKind.TREE,
        name=record.name,
        id=record.id,
        root=sandbox_dir(registry.paths, record.id).root,
        size=bundle.size,
        base=f"{image.name} {image.digest[:12]}",
        image_added=base.is_new,
        checkpoints=len(nodes),
        notes=tuple(warnings(sandbox.config, bundle.base.arch, trusted=options.trusted)),
    )


def _new_record(bundle: Bundle, name: str | None) -> Record:
    id_, sandbox = new_id(), bundle.content
    assert isinstance(sandbox, BundledSandbox)
    # A sandbox without a name is called by its id, and this one gets a new id.
    own = bundle.name if bundle.name != sandbox.id else id_
    return Record(
        id=id_,
        name=name or own,
        config=sandbox.config,
        image_digest=bundle.base.digest,
        chain=(),
        created=time.time(),
        committed=False,
        discard=False,
    )


def _fit_network(node: Node, record: Record) -> Node:
    """Note the sandbox's network mode in a checkpoint. The guest's machine is the same in every
    mode with a network card, so only the presence of the card must match."""
    network, none = record.config.network_mode.value, NetworkMode.NONE.value
    if none in (node.shape.get("network", none), network):
        return node
    return replace(node, shape={**node.shape, "network": network})


def _refuse_taken(registry: Registry, name: str) -> None:
    """Refuse a taken name before a long import. Raises NameTakenError, ConfigError."""
    check_name(name)
    if any(name in (entry.name, entry.id) for entry in registry.list()):
        raise NameTakenError(
            f"there is a sandbox {name!r} already",
            hint=Words(
                Words("`import --name NAME`", python="`name=`"),
                " gives the imported one another name",
            ),
        )


def _receive_records(receiver: Receiver, bundle: Bundle, sandbox: BundledSandbox) -> list[Node]:
    """Read the checkpoints' records; check them against each other and the manifest's files."""
    nodes: list[Node] = []
    for member in bundle.files:
        if not member.name.endswith("/node.json"):
            break
        plain = parse_json(receiver.take_small(member, RECORD_MAX), member.name)
        if len(json.dumps(plain.get("shape"))) > SHAPE_MAX:
            raise ValueError(f"{member.name} says too much of its machine")
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
    found = [file.name for file in bundle.files[len(nodes) :] if image_part(file.name) is None]
    if expected != found:
        differing = sorted({*expected} ^ {*found}) or ["their order"]
        raise ValueError(f"its files are not those of its checkpoints: {differing[0]}")
    return nodes


def _check_node(node: Node, bundle: Bundle) -> None:
    if not node.layers:
        raise ValueError(f"the checkpoint {node.tag!r} has no disk")
    if not node.tier.has_memory:
        return
    assert isinstance(bundle.content, BundledSandbox)
    memory = bundle.content.config.memory_bytes
    shape = node.shape
    if shape.get("memory") != memory or shape.get("image") != bundle.base.digest:
        raise ValueError(f"the checkpoint {node.tag!r} is of another machine than its sandbox")
    if shape.get("arch") != bundle.base.arch:
        raise ValueError(f"the checkpoint {node.tag!r} is of another machine than its base")
    name = BLANK if node.image is None else node.image.name
    if node.memory != name or (node.image is not None and node.image.size != memory):
        raise ValueError(f"the memory of {node.tag!r} is not that of its sandbox")
    _check_sizes(node, memory)


def _check_sizes(node: Node, memory: int) -> None:
    """Raise ValueError for a file that is too large for a guest with ``memory`` bytes."""
    limits: list[tuple[File | None, int]] = [
        (node.index, INDEX_MAX),
        (node.devices, DEVICES_MAX),
        (node.firmware, FIRMWARE_MAX),
        (node.state, 2 * memory + DEVICES_MAX),
        *((file, memory) for file in node.pages),
    ]
    for file, most in limits:
        if file is not None and file.size > most:
            raise ValueError(f"{file.name} of {node.tag!r} has {file.size} bytes, more than {most}")


def _check_shared(nodes: Sequence[Node]) -> None:
    """Raise ValueError unless all records agree on the files that they share."""
    seen: dict[str, File] = {}
    for node in nodes:
        for file in node.files:
            if seen.setdefault(file.name, file) != file:
                raise ValueError(f"two checkpoints do not agree on {file.name}")


def _check_parents(nodes: Sequence[Node]) -> None:
    """Raise ValueError unless the checkpoints form a tree."""
    parents = {node.id: node.parent for node in nodes}
    sound: set[str] = set()
    for node in nodes:
        path: list[str] = []
        at: str | None = node.id
        while at is not None and at not in sound:
            if at not in parents or len(path) > len(nodes):
                raise ValueError(f"the checkpoint {node.tag!r} has no valid parent")
            path.append(at)
            at = parents[at]
        sound.update(path)


def _check_stand(sandbox: BundledSandbox, nodes: Sequence[Node]) -> None:
    ids = {node.id for node in nodes}
    if sandbox.node is not None and sandbox.node not in ids:
        raise ValueError("it stands on a checkpoint that it does not have")
    if sandbox.top is None and (sandbox.layers or not nodes):
        raise ValueError("it has neither checkpoints nor a disk")
    frozen = {name for node in nodes for name in node.layers} | set(sandbox.layers)
    if sandbox.top in frozen:
        raise ValueError("the layer that its guest writes to is a frozen one")


def _expected_names(sandbox: BundledSandbox, nodes: Sequence[Node]) -> list[str]:
    """List the members after the records, in the order of `_list_files` (tree_export.py)."""
    layers = layer_files(nodes, sandbox.layers)
    sealed = sealed_layers(nodes)
    names = [f"layers/{name}.json" for name in layers if name in sealed]
    names += [f"layers/{name}.qcow2" for name in layers]
    if sandbox.top is not None:
        names.append(f"layers/{sandbox.top}.qcow2")
    names += memory_files(nodes)
    names += [name for node in nodes for name, _ in node_files(node)]
    return names


def _receive_files(
    receiver: Receiver,
    bundle: Bundle,
    sandbox: BundledSandbox,
    nodes: list[Node],
    place: SandboxDir,
) -> None:
    memory = memory_files(nodes)
    own = {name: (node, file) for node in nodes for name, file in node_files(node)}
    seals: dict[str, File] = {}
    with map_os_errors(place.root):
        for node in nodes:
            (place.checkpoints / node.id).mkdir(mode=0o700)
    for member in bundle.files[len(nodes) :]:
        path = place.root / member.name
        if image_part(member.name) is not None:
            continue
        if member.name.startswith("layers/"):
            _receive_layer(receiver, member, path, seals)
        elif (file := memory.get(member.name)) is not None:
            if path.suffix == ".state":
                receiver.write(member, path, file, DiskWatch(member.name, member.size))
                check_disk(path, member.name)
            else:
                receiver.write(member, path, file)
        else:
            node, file = own[member.name]
            receiver.write(member, path, file)
            if path.name == "pages.index":
                _check_index(path, node, sandbox.config.memory_bytes)


def _receive_layer(receiver: Receiver, member: Member, path: Path, seals: dict[str, File]) -> None:
    if path.suffix == ".json":
        data = receiver.take_small(member, RECORD_MAX)
        seals[path.stem] = _parse_seal(parse_json(data, member.name), path)
        with map_os_errors(path), create(path) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return
    watch = DiskWatch(member.name, member.size, allow_backing=True)
    receiver.write(member, path, seals.get(path.stem), watch)
    check_layer(path, member.name)


def _parse_seal(plain: dict[str, Any], path: Path) -> File:
    file = Seal.from_json(plain).file
    if file.name != f"{path.stem}.qcow2":
        raise ValueError(f"{path.name} describes {file.name}")
    return file


def _check_index(path: Path, node: Node, memory: int) -> None:
    """Raise ValueError unless an index names only pages that exist and fills the guest's memory."""
    size = check_index(read_file(path), files=[file.size // PAGE for file in node.pages])
    if size != memory:
        raise ValueError(f"the memory of {node.tag!r} has {size} bytes, and not {memory}")


def _write_records(place: SandboxDir, sandbox: BundledSandbox, nodes: list[Node]) -> None:
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
    """Move the files in ``made`` into a new sandbox, which exists once its record is committed."""
    record = replace(record, chain=tuple(str(path.resolve()) for path in image.chain))
    lock = registry.create(record)
    place = sandbox_dir(registry.paths, record.id)
    try:
        with map_os_errors(place.root):
            links = {made.root / name for name in record.config.places}
            for path in {made.layers, made.memory, made.checkpoints, made.head} | links:
                path.rename(place.root / path.name)
            sync_dir(place.root)
        registry.save(replace(record, committed=True))
    except BaseException:
        remove_elsewhere(place.root)
        remove_tree(place.root)
        raise
    finally:
        os.close(lock)

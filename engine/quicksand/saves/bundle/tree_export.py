"""Exports a sandbox with all its checkpoints as one file: layers, memory, records. The guest's
memory contains its secrets, including the agent's token."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from quicksand.base.arch import Architecture
from quicksand.base.errors import HistoryError, StateError
from quicksand.base.progress import Progress
from quicksand.base.remedies import Remedy, Words
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end
from quicksand.disks.images.resolve import ImageResolver
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import SCHEMA, File, Node
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.saves.bundle.bases import FoundBase, find_base
from quicksand.saves.bundle.bundle_writer import Outgoing, find_digests, open_all, write_bundle
from quicksand.saves.bundle.exporting import Exported, require_files
from quicksand.saves.bundle.hostile_parts import check_layer, dangers
from quicksand.saves.bundle.manifest import Bundle, BundledSandbox, BundleKind
from quicksand.saves.bundle.receiving import stopping
from quicksand.saves.bundle.streams import open_target
from quicksand.snapshots.history import History, history_of
from quicksand.snapshots.keeping import locked_history
from quicksand.snapshots.layers import read_seal

NOTE_RUNNING = "it runs: the bundle has its checkpoints, and not what came after the last one"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledTree:
    """The parts of a sandbox that go into a bundle."""

    sandbox: BundledSandbox
    nodes: tuple[Node, ...]
    """The checkpoints as the bundle has them, the oldest first."""


def node_files(node: Node) -> Iterator[tuple[str, File]]:
    """Yield the files that belong to one checkpoint only, with their names in a bundle."""
    for name, file in node.own_files:
        yield f"checkpoints/{node.id}/{name}", file


def record_name(node_id: str) -> str:
    """Return the name in a bundle of a checkpoint's record."""
    return f"checkpoints/{node_id}/node.json"


def memory_files(nodes: Sequence[Node]) -> dict[str, File]:
    """Return the files of guest memory, which checkpoints share, by their names in a bundle."""
    found = {f"memory/{file.name}": file for node in nodes for file in node.files}
    return dict(sorted(found.items()))


def layer_files(nodes: Sequence[Node], layers: Sequence[str]) -> list[str]:
    """Return the ids of the frozen layers of checkpoints and of the present disk."""
    return sorted({*layers, *(name for node in nodes for name in node.layers)})


def sealed_layers(nodes: Sequence[Node]) -> set[str]:
    """Return the ids of the layers that have checksums: those of checkpoints."""
    return {name for node in nodes for name in node.layers}


async def export_tree(
    registry: Registry,
    record: Record,
    target: Path | BinaryIO,
    *,
    full: bool = False,
    compress: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write a sandbox as a bundle: its checkpoints and, if it is stopped, its present disk.

    A running sandbox keeps running; a stopped one cannot be started meanwhile. Raises HistoryError
    for a damaged checkpoint, StateError, SaveError, BundleError, ImageError, HostError; ``target``
    is then unchanged.
    """
    entry = registry.inspect(record.id)
    live = entry is not None and entry.is_live
    history = history_of(registry, record.id)
    with ExitStack() as stack:
        if not live:
            stack.callback(os.close, registry.lock(record.id))
        async with locked_history(history):
            tree, files = await in_thread_to_the_end(
                lambda: _open_tree(history, record, present=not live, stack=stack)
            )

        def write(stop: Callable[[], None]) -> Exported:
            say = stopping(progress, stop)
            return _write(registry, record, tree, files, stack, target, full, compress, say)

        return await in_stoppable_thread(write)


def _open_tree(
    history: History, record: Record, *, present: bool, stack: ExitStack
) -> tuple[BundledTree, list[Outgoing]]:
    """Open all files, so that it no longer matters what happens to their names."""
    tree = _look(history, record, present=present)
    files = _list_files(history.place, tree)
    open_all(files, stack)
    return tree, files


def _look(history: History, record: Record, *, present: bool) -> BundledTree:
    if broken := history.broken():
        id_, why = next(iter(broken.items()))
        raise HistoryError(
            f"the checkpoint {id_} is damaged: {why}",
            hint=Words(Remedy("remove_checkpoint", name=record.name, id=id_), " gives it up"),
        )
    nodes = tuple(_for_export(history, node, record) for node in history.nodes())
    head = history.head() if history.place.head.exists() else None
    if not nodes and (head is None or not present):
        raise StateError(
            f"the sandbox {record.name!r} has no checkpoints",
            hint=Words(
                Remedy("checkpoint", name=record.name),
                " takes one; stopped, its disk can be exported without any",
            ),
        )
    stands_on = None if head is None else history.find_visible(head.node)
    if stands_on not in [node.id for node in nodes]:
        stands_on = None  # that checkpoint was removed
    sandbox = BundledSandbox(id=record.id, config=record.config, node=stands_on)
    if present and head is not None:
        if head.previous is not None:
            raise StateError(
                f"the last start of {record.name!r} did not end well",
                hint=Words(Remedy("start", name=record.name), " and stop it, then export it"),
            )
        sandbox = replace(sandbox, layers=head.layers, top=head.top)
    return BundledTree(sandbox=sandbox, nodes=nodes)


def _for_export(history: History, node: Node, record: Record) -> Node:
    """Return the record for a bundle: without hidden parents, and naming the owner of its memory,
    which a record leaves out if it is the sandbox itself."""
    parent = history.find_visible(node.parent)
    return replace(node, parent=parent, owner=node.owner or record.id)


def _list_files(place: SandboxDir, tree: BundledTree) -> list[Outgoing]:
    """List all files in the order that an import expects: records first."""
    nodes, sandbox = tree.nodes, tree.sandbox
    files: list[Outgoing] = []
    for node in nodes:
        files.append(Outgoing(name=record_name(node.id), data=b""))  # set once the base is known
    sealed = sealed_layers(nodes)
    layers = layer_files(nodes, sandbox.layers)
    seals = {name: read_seal(place, name) for name in layers if name in sealed}
    for name, seal in seals.items():
        plain = {"schema_version": SCHEMA, "file": seal.to_json()}
        files.append(Outgoing(name=f"layers/{name}.json", data=_encode(plain)))
    for name in [*layers, *([sandbox.top] if sandbox.top is not None else [])]:
        path = place.layer(name)
        check_layer(path, str(path))
        files.append(Outgoing(name=f"layers/{path.name}", path=path, expected=seals.get(name)))
    for name, file in memory_files(nodes).items():
        files.append(
            Outgoing(name=name, path=place.memory / file.name, size=file.size, expected=file)
        )
    for node in nodes:
        for name, file in node_files(node):
            path = place.root / name
            files.append(Outgoing(name=name, path=path, size=file.size, expected=file))
    return files


def _write(
    registry: Registry,
    record: Record,
    tree: BundledTree,
    files: list[Outgoing],
    stack: ExitStack,
    target: Path | BinaryIO,
    full: bool,
    compress: bool,
    say: Progress,
) -> Exported:
    found = _find_base(registry, record)
    nodes = tuple(_on_base(node, found) for node in tree.nodes)
    for node, file in zip(nodes, files, strict=False):
        file.data = _encode(node.to_json())
        file.open(stack)
    base_files = require_files(found, record.name) if full else []
    open_all(base_files, stack)
    find_digests(files, say)
    files = [*files, *base_files]
    # Directories of this host are nobody else's.
    config = replace(tree.sandbox.config, image=found.base.name, mounts=(), memory_dir=None)
    bundle = Bundle(
        name=record.name,
        created=max((node.created for node in nodes), default=record.created),
        content=replace(tree.sandbox, config=config),
        base=found.base,
        files=tuple(file.member for file in files),
    )
    with open_target(target, compress=compress) as write:
        write_bundle(bundle, files, write, say)
    return Exported(
        kind=BundleKind.TREE,
        name=record.name,
        size=bundle.size,
        base=str(found.base),
        full=full,
        checkpoints=len(nodes),
        notes=tuple(_notes(tree, config)),
    )


def _notes(tree: BundledTree, config: SandboxConfig) -> Iterator[str]:
    if tree.sandbox.top is None:
        yield NOTE_RUNNING
    if tree.nodes:
        yield "it holds the guest's memory, and with it every secret of the programs there"
    if danger := dangers(config):
        yield f"importing it takes --trust: the bundle {danger}"


def _find_base(registry: Registry, record: Record) -> FoundBase:
    arch = record.config.arch or Architecture.host()
    resolver = ImageResolver(registry.paths)
    return find_base(resolver, record.config.image, record.image_digest, arch)


def _on_base(node: Node, found: FoundBase) -> Node:
    """Add the image's digest to a checkpoint that lacks it, because its image is not in the
    store."""
    if node.shape.get("image"):
        return node
    return replace(node, shape={**node.shape, "image": found.base.digest})


def _encode(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


def start_at(sandbox: BundledSandbox, nodes: Sequence[Node]) -> Node:
    """Return the checkpoint to start at: the one that the sandbox stood on, else the last."""
    return next((node for node in nodes if node.id == sandbox.node), nodes[-1])

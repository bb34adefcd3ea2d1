"""Importing a checkpoint from another sandbox or from a template, for clones and warm starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from quicksand.base.errors import HistoryError
from quicksand.base.files import map_os_errors, sync_dir
from quicksand.base.sharing import share_file
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import Node
from quicksand.snapshots.history import History


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A checkpoint, and the directory of the sandbox or template that it belongs to."""

    place: SandboxDir
    node: Node


def import_node(origin: Origin, place: SandboxDir, **changes: Any) -> Node:
    """Add a checkpoint, with all files that it needs and with ``changes`` to its record, to the
    sandbox in ``place``; returns it. The caller holds the locks of both histories.

    Files are hard-linked where the file system allows it, else copied. Raises HistoryError if a
    file is missing, DiskSpaceError, PathError.
    """
    old, node = origin.place, origin.node
    if (place.checkpoints / node.id / "node.json").exists():
        return History(place).get(node.id)
    with map_os_errors(place.root):
        place.make()
        (place.checkpoints / node.id).mkdir(mode=0o700, exist_ok=True)
    shared = [(old.layer(name), place.layer(name)) for name in node.layers]
    shared += [(old.seal(name), place.seal(name)) for name in node.layers]
    for name in {file.name for file in node.files}:
        shared.append((old.memory / name, place.memory / name))
    for name, _ in node.own_files:
        shared.append((old.checkpoints / node.id / name, place.checkpoints / node.id / name))
    for source, target in shared:
        if not source.exists():
            raise HistoryError(f"the checkpoint {node.tag!r} is damaged: {source} is missing")
        share_file(source, target)
    if (screen := old.screen(node.id)).exists():
        share_file(screen, place.screen(node.id))
    for changed in (place.layers, place.memory, place.checkpoints / node.id):
        sync_dir(changed)
    imported = replace(node, parent=None, **changes)
    History(place).commit(imported)
    return imported

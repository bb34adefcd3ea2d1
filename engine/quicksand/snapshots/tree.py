"""A sandbox's tree of checkpoints as users see it, the present's place in it, and its sizes on
disk."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from quicksand.base.errors import HistoryError
from quicksand.base.footprint import BLOCK
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import BLANK, Head, Node
from quicksand.snapshots.history import History
from quicksand.things.checkpoint import Checkpoint, CheckpointFacts

EMPTY_LAYER = 64 * 1024
"""Bytes of one qcow2 cluster. A layer to which nothing was written occupies less."""


def written_since(place: SandboxDir, head: Head, layers: Sequence[str]) -> int:
    """Bytes written to the disk since the checkpoint with ``layers`` from which ``head`` descends.
    Raises OSError."""
    newer = [name for name in head.layers if name not in layers]
    taken = (place.layer(name).stat().st_blocks * BLOCK for name in (*newer, head.top))
    return sum(size for size in taken if size > EMPTY_LAYER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The checkpoints of a sandbox at one moment."""

    nodes: tuple[Node, ...]
    """The visible checkpoints, the oldest first; objects of unchanged checkpoints stay equal."""
    broken: Mapping[str, str]
    """The checkpoints that cannot be read: id -> reason."""
    head: str | None = None
    """The id of the visible checkpoint from which the present descends."""
    changed: int | None = None
    """Bytes written to the disk since that checkpoint; None if unknown."""
    error: str = ""
    """The reason why the head cannot be read; "" if it can, or if the sandbox was never started."""


def read_tree(history: History) -> Tree:
    """Read the tree of a sandbox, running or not. Damaged records are reported in the result, not
    raised. Blocks for I/O."""
    nodes, broken = history.look()
    known = {node.id: node for node in nodes}
    head: str | None = None
    changed: int | None = None
    error = ""
    if history.place.head.exists():
        try:
            present = history.head()
        except HistoryError as found:
            error = str(found)
        else:
            head = present.node
            while head in known and known[head].hidden:
                head = known[head].parent
            if head in known:
                with contextlib.suppress(OSError):  # the disk is just being switched to a new layer
                    changed = written_since(history.place, present, known[head].layers)
    visible = tuple(node for node in nodes if not node.hidden)
    return Tree(nodes=visible, broken=broken, head=head, changed=changed, error=error)


def told_by(node: Node) -> dict[str, Any]:
    """Return what a node tells, by the names of the fields of `CheckpointFacts`."""
    names = (one.name for one in fields(CheckpointFacts))
    return {name: getattr(node, name) for name in names if hasattr(node, name)} | {
        "tier": node.tier.name
    }


def checkpoint_of(node: Node) -> Checkpoint:
    """Return the checkpoint of a node, without its sizes."""
    return Checkpoint(**told_by(node))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTree:
    """The checkpoints of a sandbox, the oldest first, and their total sizes."""

    checkpoints: list[Checkpoint]
    size: int
    """Bytes on disk that deleting all of them would free."""
    shared: int
    """Further bytes, which the present state, clones or templates need as well."""


def list_checkpoints(history: History) -> list[Checkpoint]:
    """All checkpoints with their sizes, the oldest first. Blocks for I/O. Raises OSError."""
    return measure_tree(history).checkpoints


def measure_tree(history: History) -> MeasuredTree:
    """Measure all checkpoints. Blocks for I/O. Raises OSError."""
    nodes, present = history.all_nodes(), _present(history)
    everybody = Counter(name for node in nodes for name in _files(node))
    everybody.update(present)
    measures = {name: _measure(history.place.root / name) for name in everybody}
    staying = {*present, *(name for node in nodes if node.hidden for name in _files(node))}
    freed = stays = 0
    for name in {name for node in nodes if not node.hidden for name in _files(node)}:
        allocated, links = measures[name]
        if name in staying or links > 1:
            stays += allocated
        else:
            freed += allocated
    found = []
    for node in (node for node in nodes if not node.hidden):
        own = shared = 0
        for name in _files(node):
            size, links = measures[name]
            if everybody[name] == 1 and links == 1:
                own += size
            else:
                shared += size
        found.append(Checkpoint(**told_by(node), size=own, shared=shared))
    return MeasuredTree(checkpoints=found, size=freed, shared=stays)


def _files(node: Node) -> Iterator[str]:
    """Yield names relative to the sandbox's directory. They are plain strings for speed: hundreds
    of checkpoints may have hundreds of layers each."""
    yield from (f"layers/{name}.qcow2" for name in node.layers)
    yield from {f"memory/{file.name}" for file in node.files}
    yield from (f"checkpoints/{node.id}/{name}" for name, _ in node.own_files)
    # Nothing if there are none.
    yield f"checkpoints/{node.id}/screen.png"
    yield f"checkpoints/{node.id}/shell.json"


def _present(history: History) -> list[str]:
    try:
        head = history.head()
    except HistoryError:
        return []
    files = [f"layers/{name}.qcow2" for name in (*head.layers, head.top)]
    return files if head.memory == BLANK else [*files, f"memory/{head.memory}"]


def _measure(path: Path) -> tuple[int, int]:
    """The file's bytes on disk (st_blocks, stat(2)) and its hard links; (0, 1) if it is gone."""
    try:
        found = path.stat()
    except OSError:
        return 0, 1
    return found.st_blocks * 512, found.st_nlink

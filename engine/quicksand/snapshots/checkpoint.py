"""What callers see of a checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from quicksand.errors import HistoryError
from quicksand.snapshots.history import History
from quicksand.snapshots.records import BLANK, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An instant of a sandbox that it can go back to."""

    tag: str
    id: str
    parent: str | None
    """The id of the checkpoint that it descends from."""
    created: float
    """Unix time."""
    note: str
    tier: str
    """How it was made: "pages" or "internal"."""
    tier_note: str
    """Why not in a better way."""
    auto: bool
    """Taken by a revert, so that it can be undone."""
    pinned: bool
    """Not to be deleted, neither by a slip nor as the oldest of the automatic ones."""
    pause_s: float
    """Seconds that the VM stood still."""
    bytes_written: int
    """When it was taken."""
    size: int = 0
    """Bytes on the disk that are its own: deleting it frees them."""
    shared: int = 0
    """Bytes on the disk that others need too: checkpoints, clones, the present."""

    @classmethod
    def from_node(cls, node: Node, *, size: int = 0, shared: int = 0) -> Checkpoint:
        fields = {field: getattr(node, field) for field in cls.__slots__ if hasattr(node, field)}
        return cls(**{**fields, "size": size, "shared": shared})


def list_checkpoints(history: History) -> list[Checkpoint]:
    """All checkpoints with their sizes, the oldest first. Blocks for I/O."""
    nodes = history.all_nodes()
    everybody = Counter(name for node in nodes for name in _files(node))
    everybody.update(_present(history))
    measures = {name: _measure(history.place.root / name) for name in everybody}
    found = []
    for node in (node for node in nodes if not node.hidden):
        own = shared = 0
        for name in _files(node):
            size, links = measures[name]
            if everybody[name] == 1 and links == 1:
                own += size
            else:
                shared += size
        found.append(Checkpoint.from_node(node, size=own, shared=shared))
    return found


def _files(node: Node) -> Iterator[str]:
    """Names in the sandbox's directory. Of hundreds of checkpoints each has hundreds of layers, so
    these are no paths yet."""
    yield from (f"layers/{name}.qcow2" for name in node.layers)
    yield from {f"memory/{file.name}" for file in node.files}
    yield from (f"checkpoints/{node.id}/{name}" for name, _ in node.own_files)


def _present(history: History) -> list[str]:
    try:
        head = history.head()
    except HistoryError:
        return []
    files = [f"layers/{name}.qcow2" for name in (*head.layers, head.top)]
    return files if head.memory == BLANK else [*files, f"memory/{head.memory}"]


def _measure(path: Path) -> tuple[int, int]:
    """Bytes on the disk, and in how many directories the file is; of one that is gone 0, 1."""
    try:
        found = path.stat()
    except OSError:
        return 0, 1
    return found.st_blocks * 512, found.st_nlink

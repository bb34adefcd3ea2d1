"""`Checkpoint`, the public view of a checkpoint, and the list of a sandbox's checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import HistoryError
from quicksand.records.nodes import BLANK, Node
from quicksand.records.tier import find_tier
from quicksand.snapshots.history import History


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A state of a sandbox to which it can revert."""

    tag: str
    id: str
    parent: str | None
    """The id of its parent in the tree of checkpoints."""
    created: float
    """Unix time."""
    note: str
    tier: str
    """The way its memory is kept: "pages", "internal", or "disk" if it has none."""
    tier_note: str
    """Why no better tier was used; "" for the best one."""
    auto: bool
    """Whether the engine took it (before a revert, a start at a checkpoint, or removal)."""
    pinned: bool
    """Whether it cannot be deleted, and does not expire as an old automatic checkpoint."""
    pause_s: float
    """Seconds for which the VM was paused to take it."""
    bytes_written: int
    """Bytes that were written to disk to take it."""
    size: int = 0
    """Bytes on disk that only it needs: deleting it frees them."""
    shared: int = 0
    """Bytes on disk that it shares with other checkpoints, clones or the present disk."""
    revert_form: str = ""
    """Of the checkpoint that a revert returns, the form of that revert: "warm" (in the QEMU that
    runs), "flushed" (the same, but QEMU translates the guest's code anew), "new QEMU"."""
    revert_why: str = ""
    """The reason why no better form was used; "" for the best one."""
    revert_answer_s: float = 0.0
    """Seconds from the call to the guest's answer. The call itself takes longer: it ends when the
    earlier state is on disk."""
    revert_pause_s: float = 0.0
    """Seconds for which that revert paused the VM."""

    def __post_init__(self) -> None:
        """Raises ValueError for a tier that there is not: another machine may tell anything."""
        try:
            find_tier(self.tier)
        except LookupError:
            raise ValueError(f"there is no tier {self.tier!r:.40}") from None

    @property
    def has_memory(self) -> bool:
        """Whether a sandbox can revert to it; otherwise it can only boot from its disk."""
        return find_tier(self.tier).has_memory

    @property
    def has_pages(self) -> bool:
        """Whether its tier is "pages"."""
        return find_tier(self.tier).has_pages

    @classmethod
    def from_node(cls, node: Node, *, size: int = 0, shared: int = 0) -> Checkpoint:
        fields = {field: getattr(node, field) for field in cls.__slots__ if hasattr(node, field)}
        return cls(**{**fields, "tier": node.tier.name, "size": size, "shared": shared})


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
        found.append(Checkpoint.from_node(node, size=own, shared=shared))
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

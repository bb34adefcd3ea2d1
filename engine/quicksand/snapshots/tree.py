"""A sandbox's tree of checkpoints as users see it, and the present's place in it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from quicksand.base.errors import HistoryError
from quicksand.records.nodes import Node
from quicksand.snapshots.changed import written_since
from quicksand.snapshots.history import History


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

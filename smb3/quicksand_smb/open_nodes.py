"""The open nodes of a share, and the paths by which they are known."""

from __future__ import annotations

from _thread import allocate_lock

from quicksand_smb.node import Node
from quicksand_smb.store_errors import Reason, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from quicksand_smb.walk import SharedDescriptor


class OpenNodes:
    """The open nodes. Several threads may use them."""

    def __init__(self, root: SharedDescriptor, most: int) -> None:
        self._root = root
        self._most = most
        self._nodes: set[Node] = set()
        self._lock = allocate_lock()

    @property
    def is_full(self) -> bool:
        return len(self._nodes) >= self._most

    def add(self, node: Node) -> None:
        """Add a node. Raises TOO_MANY, and GONE if the share was taken away meanwhile."""
        with self._lock:
            # `Store.close` closes the root first and then what is in the set.
            if self._root.closed:
                raise StoreError(Reason.GONE)
            if len(self._nodes) >= self._most:
                raise StoreError(Reason.TOO_MANY)
            self._nodes.add(node)

    def forget(self, node: Node) -> None:
        """Remove a node that was closed."""
        with self._lock:
            self._nodes.discard(node)

    def close(self) -> None:
        """Close all nodes."""
        with self._lock:
            nodes = list(self._nodes)
        for node in nodes:
            node.close()

    def without_name(self) -> list[Node]:
        """Return the nodes whose paths are unknown."""
        with self._lock:
            return [node for node in self._nodes if node.path is None]

    def below(self, path: bytes) -> list[Node]:
        """Return the nodes with a known path below a directory."""
        start = path + b"/"
        with self._lock:
            return [node for node in self._nodes if node.path and node.path.startswith(start)]

    def renamed(self, old: bytes, new: bytes) -> None:
        """Update the paths of the nodes at or below `old`. A path that grows longer than the one by
        which the file was opened becomes unknown."""
        below = old + b"/"
        more = len(new) - len(old)
        with self._lock:
            for node in self._nodes:
                path = node.path
                if path is not None and (path == old or path.startswith(below)):
                    fits = len(path) + more <= node.opened_by
                    node.path = new + path[len(old) :] if fits else None

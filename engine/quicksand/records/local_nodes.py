"""Local nodes: machines on this one, each with a data directory of its own.

A package beside the engine makes them, and enters by the group ``quicksand.nodes`` with a module
that has the functions of `Nodes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from quicksand.base.entering import entered
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import Paths, paths


class Node(Protocol):
    """A local node that is up."""

    @property
    def id(self) -> str:
        """Return the name of its directories."""

    @property
    def name(self) -> str: ...

    def paths(self, paths: Paths) -> Paths:
        """Return its directories."""

    def require_ours(self, paths: Paths) -> None:
        """Raise PathError if something else is in the place of its directories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesView:
    """The facts about local nodes that the app shows."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    """Their addresses, by their names."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Values that tell nodes from earlier ones that had the same names."""
    drained: frozenset[str] = frozenset()
    """The names of machines, nodes or not, that take no new sandboxes."""
    waiting: int = 0
    """The number of sandboxes that wait for a place on any of them."""
    error: QuicksandError | None = None
    """The reason why the nodes are not known."""
    stamp: Sequence[int] = ()
    """A mark of what was read, which is not read again while it is the same."""


class Nodes(Protocol):
    """The module that has local nodes. All of it blocks."""

    def nodes_of(self, paths: Paths) -> Sequence[Node]:
        """Return the nodes that are up; none if that cannot be read."""

    def lost_nodes(self, paths: Paths) -> list[Path]:
        """Return directories of nodes that are not known any more."""

    def useless_nodes(self, paths: Paths) -> list[Path]:
        """Return those of them that hold nothing."""

    def look(self, paths: Paths, before: NodesView) -> NodesView:
        """Return what is there now; ``before`` is the result of the last look. Raises OSError."""


class NoNodes:
    """`Nodes` without the package."""

    def nodes_of(self, paths: Paths) -> Sequence[Node]:
        return ()

    def lost_nodes(self, paths: Paths) -> list[Path]:
        return []

    def useless_nodes(self, paths: Paths) -> list[Path]:
        return []

    def look(self, paths: Paths, before: NodesView) -> NodesView:
        return before


def local_nodes() -> Nodes:
    """Return what has the local nodes of this machine."""
    for one in entered("quicksand.nodes").values():
        found: Nodes = one.load()
        return found
    return NoNodes()


def look_at_nodes(before: NodesView | None) -> NodesView:
    """Return what is there now; ``before`` is the result of the last look. Raises OSError."""
    return local_nodes().look(paths(), before or NodesView())

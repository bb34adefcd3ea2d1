"""Local nodes: machines on this one, each with a data directory of its own.

A package beside the engine makes them, and enters by the group ``quicksand.nodes`` with functions
that do what those here say: ``up``, ``lost``, ``useless``, ``look``, and ``way`` (`remote.node`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from quicksand.base.entering import entered
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import Paths, paths
from quicksand.records.fleet_files import fleet_dir

GROUP = "quicksand.nodes"


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


def nodes_of(paths: Paths) -> Sequence[Node]:
    """Return the nodes that are up; none if that cannot be read. Blocks."""
    return one.load()(paths) if (one := entered(GROUP).get("up")) else ()


def lost_nodes(paths: Paths) -> list[Path]:
    """Return directories of nodes that are not known any more. Blocks."""
    return one.load()(paths) if (one := entered(GROUP).get("lost")) else []


def useless_nodes(paths: Paths) -> list[Path]:
    """Return those of them that hold nothing. Blocks."""
    return one.load()(paths) if (one := entered(GROUP).get("useless")) else []


def look_at_nodes(before: NodesView | None) -> NodesView:
    """Return what is there now; ``before`` is the result of the last look. Blocks. Raises
    OSError."""
    before, ours = before or NodesView(), paths()
    # To look for packages takes 20 ms, which the app's first look has no need of.
    one = entered(GROUP).get("look") if fleet_dir(ours).is_dir() else None
    return one.load()(ours, before) if one else NodesView()

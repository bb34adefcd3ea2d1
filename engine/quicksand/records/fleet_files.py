"""The files of fleets in the data directory.

::

    <data>/fleet/fleet.json     the fleet that is up: its back end, its machines
    <data>/fleet/machine        32 hex digits: which machine, or node of one, this is to fleets
    <data>/fleet/claims/        memory claimed by clients of other machines (memory_budget.py)
    <data>/fleet/waiting/       sandboxes that wait for a place (quicksand_fleet)
    <data>/fleet/places/        which place, as Ray keeps it, which sandbox has (likewise)
    <data>/fleet/kept/          sandboxes that are restarted elsewhere (likewise)
    <data>/fleet/exports.json   the copies of their exported saves (likewise)
    <data>/fleet/nodes/<id>/    the data directory of a local node; in it, `home` is its home
    <runtime>-fleet/<id>/       its runtime directory

Local nodes are machines on this one, each with a data directory of its own. A package beside the
engine makes them, and enters by the group ``quicksand.nodes`` with functions that do what those
here say: ``up``, ``lost``, ``useless``, ``look``, and ``way`` (`parse_address`). A sandbox that a
fleet keeps has a lease (lease.json in its directory): its epoch, and whether it may be started here
(docs/internals/fleet.md, "Restart elsewhere").
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Protocol

from quicksand.base.entering import entered
from quicksand.base.errors import PathError, QuicksandError, StateError
from quicksand.base.fields import JsonRecord
from quicksand.base.files import map_os_errors, read_json, write_json
from quicksand.base.paths import Paths, make_private_dir, paths
from quicksand.base.processes import boot_id
from quicksand.base.regular import create, read_word
from quicksand.base.remedies import Remedy, Words
from quicksand.records.layout import SandboxDir
from quicksand.things.frozen import frozen

NODE_HOME = "home"
"""The name of the home of a node's programs, in its data directory."""
HEX32 = re.compile(r"[0-9a-f]{32}")


def fleet_dir(paths: Paths) -> Path:
    """Return the directory of all this; it need not exist."""
    return paths.data / "fleet"


def fleet_file(paths: Paths) -> Path:
    """The record of the fleet that is up."""
    return fleet_dir(paths) / "fleet.json"


def claims_dir(paths: Paths) -> Path:
    """The directory of claims on this machine's memory."""
    return fleet_dir(paths) / "claims"


def nodes_dir(paths: Paths) -> Path:
    """The directory of the local nodes."""
    return fleet_dir(paths) / "nodes"


def nodes_runtime(paths: Paths) -> Path:
    """The directory of the local nodes' runtime directories: beside ours, where paths of sockets
    are as short."""
    return paths.runtime.with_name(f"{paths.runtime.name}-fleet")


def is_known_to_fleets(paths: Paths) -> bool:
    """Whether a fleet has asked this machine for its capacity."""
    return _machine_file(paths).exists()


def _machine_file(paths: Paths) -> Path:
    return fleet_dir(paths) / "machine"


def machine_id(paths: Paths) -> str:
    """Return this machine's id: 32 hex digits that are made when they are first needed. Raises
    PathError."""
    make_private_dir(fleet_dir(paths))
    place = _machine_file(paths)
    with map_os_errors(place):
        if not place.exists():
            temporary = place.with_name(f".machine.{os.urandom(4).hex()}")
            with create(temporary) as file:
                file.write(os.urandom(16).hex().encode("ascii"))
            with contextlib.suppress(FileExistsError):
                os.link(temporary, place)  # one of several programs makes it
            temporary.unlink()
        found = read_word(place).strip()
    if not HEX32.fullmatch(found):
        raise PathError(f"{place} is damaged", hint="remove it; another one is made")
    return found


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


@frozen
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


SCHEMA = 1


@frozen
class LeaseRecord(JsonRecord):
    """The record that a fleet keeps a sandbox. While the file exists, only the fleet starts it."""

    WHAT = "bad lease"
    VERSION = SCHEMA

    name: str
    """The name for which the fleet keeps it."""
    epoch: int
    boot: str
    """The machine's boot in which it was written."""
    superseded_by: str = ""
    """The machine where a later epoch was started; "" if this is the latest known one."""
    may_start_until: float = 0.0
    """The moment of the clock `keeper_parts.owner_wait.now` until which it may be started."""


def lease_file(place: SandboxDir) -> Path:
    """The path of its file."""
    return place.root / "lease.json"


def read_lease(place: SandboxDir) -> LeaseRecord | None:
    """The lease of a sandbox; None if no fleet keeps it. Raises ValueError for a damaged one,
    OSError."""
    try:
        return LeaseRecord.from_json(read_json(lease_file(place)))
    except FileNotFoundError:
        return None


def write_lease(place: SandboxDir, lease: LeaseRecord) -> None:
    """Replace it. Raises HostError."""
    write_json(lease_file(place), lease.to_json(), read=LeaseRecord.from_json)


def use_permission(place: SandboxDir, name: str, now: float) -> None:
    """Let a start go on, unless a fleet keeps the sandbox and has not permitted it: it may run
    elsewhere. A permission is valid for one start. Raises StateError, HostError."""
    try:
        lease = read_lease(place)
    except (OSError, ValueError) as error:
        raise StateError(
            f"whether a fleet keeps {name!r} cannot be read: {error}",
            hint=f"have a look at {lease_file(place)}",
        ) from error
    if lease is None:
        return
    if lease.superseded_by:
        raise StateError(
            f"{name!r} is epoch {lease.epoch} of the sandbox {lease.name!r}, which runs on "
            f"{lease.superseded_by}: it is not started again",
            hint=Words("a save of it can be started: ", Remedy("save", name=name)),
        )
    if lease.boot != boot_id() or now >= lease.may_start_until:
        raise StateError(
            f"a fleet keeps {name!r}, and only the fleet starts it: it may run elsewhere by now",
            hint="look for it in the fleet; Sandbox.attach(…, fleet=True) finds it",
        )
    write_lease(place, replace(lease, may_start_until=0.0))

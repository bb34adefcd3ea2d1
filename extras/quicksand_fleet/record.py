"""The record of the fleet that is up (fleet.json), by which programs find its machines.

Losing it loses no sandbox: the local nodes are directories, and other machines are in the config.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quicksand.errors import FleetError, PathError, StateError
from quicksand.extending import (
    Fields,
    NotOursError,
    Paths,
    Remedy,
    Words,
    fleet_dir,
    fleet_file,
    lock_within,
    make_private_dir,
    map_os_errors,
    nodes_dir,
    nodes_runtime,
    read_json,
    require_ours,
    write_json,
)

SCHEMA = 1
SSH, RAY = "ssh", "ray"
"""The back ends."""
LOCK_WAIT_S = 10.0
NODES_MAX = 64
NODE_ID = re.compile(r"[0-9a-f]{8}")
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A local node: a data directory of its own, on this machine."""

    id: str
    """8 hex digits, which name its directories."""
    name: str
    memory_bytes: int
    """Its share of the machine's memory."""
    cpus: int
    """Its share of the machine's processors, for information only: nothing enforces it."""

    def data(self, paths: Paths) -> Path:
        """Its data directory."""
        return nodes_dir(paths) / self.id

    def runtime(self, paths: Paths) -> Path:
        """Its runtime directory."""
        return nodes_runtime(paths) / self.id

    def paths(self, paths: Paths) -> Paths:
        """Return its directories; the nodes share files that can be made again."""
        return replace(paths, data=self.data(paths), runtime=self.runtime(paths))

    def require_ours(self, paths: Paths) -> None:
        """Raise PathError if something else is in the place of its directories: that is neither
        read nor written."""
        require_node(self.name, self.data(paths), self.runtime(paths))

    @classmethod
    def from_json(cls, value: object) -> NodeRecord:
        """Parse a node. Raises ValueError."""
        if not isinstance(value, dict):
            raise ValueError("a node is no JSON object")
        found = Fields(value, "bad node")
        node = cls(
            id=found.text("id"),
            name=found.text("name"),
            memory_bytes=found.whole("memory_bytes"),
            cpus=found.whole("cpus"),
        )
        if not NODE_ID.fullmatch(node.id) or not NODE_NAME.fullmatch(node.name):
            raise ValueError("bad node: its name or id makes no sense")
        return node

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRecord:
    """The fleet that is up."""

    back_end: str = SSH
    made: float = 0.0
    """Unix time."""
    nodes: tuple[NodeRecord, ...] = ()
    """The local nodes, with SSH. If there are none, its machines are those of the config."""
    drained: frozenset[str] = frozenset()
    """Names of machines that take no new sandboxes."""
    more: dict[str, Any] = field(default_factory=dict)
    """The back end's own notes."""

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA,
            "back_end": self.back_end,
            "made": self.made,
            "nodes": [node.to_json() for node in self.nodes],
            "drained": sorted(self.drained),
            "more": self.more,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> FleetRecord:
        """Parse a record. Raises ValueError."""
        if value.get("schema_version") != SCHEMA:
            raise ValueError(f"schema_version {value.get('schema_version')!r} is not {SCHEMA}")
        found = Fields(value, "bad fleet")
        more = found.any("more")
        record = cls(
            back_end=found.text("back_end"),
            made=found.real("made"),
            nodes=tuple(map(NodeRecord.from_json, found.items("nodes"))),
            drained=frozenset(found.texts("drained")),
            more=more if isinstance(more, dict) else {},
        )
        if record.back_end not in (SSH, RAY) or len(record.nodes) > NODES_MAX:
            raise ValueError("bad fleet: its back end or its nodes make no sense")
        return record


def read_fleet(paths: Paths) -> FleetRecord | None:
    """Return the fleet that is up; None if none is. Raises FleetError for a damaged record."""
    place = fleet_file(paths)
    try:
        return FleetRecord.from_json(read_json(place))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FleetError(
            f"{place} cannot be read: {error}",
            hint=Words(
                "have a look at it; ",
                Words(Remedy("fleet_up"), python="the command `fleet up`"),
                " makes another one once it is removed",
            ),
        ) from error


def require_node(name: str, *places: Path) -> None:
    """Raise PathError for a directory of the node ``name`` that is not proven ours. A missing one
    is not ours."""
    for place in places:
        try:
            require_ours(place)
        except NotOursError as error:
            raise PathError(
                f"{place}, a directory of {name}, is left alone: {error.why}",
                hint="look at what is there; if nobody needs it, remove it yourself",
            ) from error


def write_fleet(paths: Paths, record: FleetRecord) -> None:
    """Replace the record. Raises HostError."""
    make_private_dir(fleet_dir(paths))
    write_json(fleet_file(paths), record.to_json(), read=FleetRecord.from_json)


def remove_fleet(paths: Paths) -> None:
    """Remove the record. Raises HostError."""
    with map_os_errors(fleet_file(paths)):
        fleet_file(paths).unlink(missing_ok=True)


@contextlib.contextmanager
def changing_fleet(paths: Paths) -> Iterator[None]:
    """Keep others from changing the fleet meanwhile. Blocks. Raises StateError, HostError."""
    place = make_private_dir(fleet_dir(paths)) / ".fleet.lock"
    with map_os_errors(place):
        descriptor = lock_within(place, LOCK_WAIT_S)
    if descriptor is None:
        raise StateError("another program is changing the fleet", hint="try again when it is done")
    try:
        yield
    finally:
        os.close(descriptor)


def set_drained(paths: Paths, name: str, *, on: bool) -> None:
    """Note that a machine is drained, or no longer is. Raises FleetError, StateError, HostError."""
    with changing_fleet(paths):
        record = read_fleet(paths) or FleetRecord()
        drained = record.drained | {name} if on else record.drained - {name}
        write_fleet(paths, replace(record, drained=drained))

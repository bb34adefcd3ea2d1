"""Directories of local nodes that belong to no fleet: its record is lost, or another one's."""

from __future__ import annotations

import contextlib
from pathlib import Path

from quicksand.base.errors import FleetError
from quicksand.base.listing import own_directories
from quicksand.base.paths import Paths
from quicksand.base.removal import MARK, why_not_ours
from quicksand.records.fleet_files import nodes_dir, nodes_runtime
from quicksand.records.fleet_record import NODE_ID, read_fleet


def lost_nodes(paths: Paths) -> list[Path]:
    """Return the data directories of local nodes that belong to no fleet, and runtime directories
    without one; none if the record of the fleet cannot be read. Blocks."""
    try:
        record = read_fleet(paths)
    except FleetError:
        return []
    known = set() if record is None else {node.id for node in record.nodes}
    data = [one for one in own_directories(nodes_dir(paths), NODE_ID) if one.name not in known]
    has_data = known | {one.name for one in data}
    runtime = own_directories(nodes_runtime(paths), NODE_ID)
    return data + [one for one in runtime if one.name not in has_data]


def useless_nodes(paths: Paths) -> list[Path]:
    """Return those of them that hold nothing but our mark: runtime directories that a node left.
    Blocks."""
    found = []
    for place in lost_nodes(paths):
        with contextlib.suppress(OSError):
            is_empty = [one.name for one in place.iterdir()] == [MARK]
            if place.parent == nodes_runtime(paths) and is_empty and not why_not_ours(place):
                found.append(place)
    return found

"""Local nodes as the engine and the app ask for them (`quicksand.records.fleet_files`): those
that are up, and directories of others, whose fleet's record is lost, or another one's."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from quicksand.errors import FleetError
from quicksand.extending import (
    MARK,
    NODE_SCHEME,
    NodesView,
    Paths,
    fleet_file,
    nodes_dir,
    nodes_runtime,
    own_directories,
    why_not_ours,
)

from quicksand_fleet.record import NODE_ID, NodeRecord, read_fleet
from quicksand_fleet.waiting_list import WaitingList


def nodes_of(paths: Paths) -> tuple[NodeRecord, ...]:
    """Return the local nodes that are up; none if the record cannot be read."""
    try:
        record = read_fleet(paths)
    except FleetError:
        return ()
    return () if record is None else record.nodes


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


def look(paths: Paths, before: NodesView) -> NodesView:
    """See `look_at_nodes`. The record of the fleet is read when it has changed."""
    stamp: tuple[int, ...] = (0,)
    with contextlib.suppress(FileNotFoundError):
        found = fleet_file(paths).stat()
        stamp = (found.st_ino, found.st_mtime_ns)
    view = before if stamp == before.stamp else replace(_read(paths), stamp=stamp)
    waiting = WaitingList(paths).count()
    return view if waiting == view.waiting else replace(view, waiting=waiting)


def _read(paths: Paths) -> NodesView:
    try:
        record = read_fleet(paths)
    except FleetError as error:
        return NodesView(error=error)
    if record is None:
        return NodesView()
    return NodesView(
        addresses={node.name: f"{NODE_SCHEME}{node.name}" for node in record.nodes},
        ids={node.name: node.id for node in record.nodes},
        drained=record.drained,
    )

"""Local nodes: several machines of a fleet on this one, each a data directory of its own.

They share the images, QEMU and the cache without copying, and divide the machine's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Callable

from quicksand import Entry
from quicksand.errors import ConfigError, FleetError, MemoryBudgetError, StateError
from quicksand.extending import (
    NODE_HOME,
    OVERHEAD,
    RESERVE,
    Paths,
    Registry,
    available_memory,
    best_effort,
    end_spares,
    in_thread_to_the_end,
    known_stores,
    make_marked,
    make_private_dir,
    map_os_errors,
    nodes_dir,
    nodes_runtime,
    physical_memory,
    read_addresses,
    remove_sandbox,
    remove_tree,
    size_text,
)

from quicksand_fleet.keeping.running import await_end
from quicksand_fleet.keeping.tidying import end_keeping
from quicksand_fleet.keeping.wire import KEPT_SAVE
from quicksand_fleet.record import (
    NODES_MAX,
    FleetRecord,
    NodeRecord,
    changing_fleet,
    read_fleet,
    remove_fleet,
    write_fleet,
)
from quicksand_fleet.remedies import ADD_MACHINES, BRING_UP, END_IT

LEAST = 256 * 1024**2 + OVERHEAD
"""The least bytes of a node: room for one small guest."""
MIB = 1024**2
SHARED = ("qemu", "tools")
"""Names in the data directory, besides the images, that a node only reads."""


def share_of(count: int) -> int:
    """Return the bytes of memory for each of ``count`` nodes: the memory available now, less a
    reserve, divided. Raises MemoryBudgetError if that is too little."""
    reserve = min(RESERVE, physical_memory() // 8)
    available = available_memory()
    share = (available - reserve) // count // MIB * MIB
    if share < LEAST:
        raise MemoryBudgetError(
            f"{count} nodes would have {size_text(max(0, share))} of memory each, and one needs "
            f"{size_text(LEAST)}: {size_text(available)} are available, and {size_text(reserve)} "
            "stay with the machine",
            hint="make fewer nodes, or stop sandboxes",
        )
    return share


def make_nodes(paths: Paths, count: int) -> FleetRecord:
    """Make a fleet of local nodes. Blocks. Raises ConfigError, StateError if a fleet is up,
    HostError; after an error nothing is left."""
    if not 1 <= count <= NODES_MAX:
        raise ConfigError(f"--local must be 1 to {NODES_MAX}, not {count}")
    with changing_fleet(paths), contextlib.ExitStack() as undo:
        _require_none(paths)
        share = share_of(count)
        cpus = max(1, (os.cpu_count() or 1) // count)
        nodes = []
        for number in range(1, count + 1):
            node = NodeRecord(
                id=os.urandom(4).hex(), name=f"node-{number}", memory_bytes=share, cpus=cpus
            )
            _make(paths, node, undo)
            nodes.append(node)
        record = FleetRecord(made=time.time(), nodes=tuple(nodes))
        write_fleet(paths, record)
        undo.pop_all()
    return record


def _make(paths: Paths, node: NodeRecord, undo: contextlib.ExitStack) -> None:
    make_private_dir(nodes_dir(paths))
    make_private_dir(nodes_runtime(paths))
    make_private_dir(paths.images)
    for place in (node.data(paths), node.runtime(paths)):
        with map_os_errors(place):
            undo.callback(remove_tree, make_marked(place))
    data = node.data(paths)
    with map_os_errors(data):
        (data / "images").symlink_to(paths.images)
        for name in SHARED:
            if (paths.data / name).is_dir():
                (data / name).symlink_to(paths.data / name)


def _words(record: FleetRecord) -> str:
    return f", of {len(record.nodes)} local nodes" if record.nodes else ""


def take_config(paths: Paths) -> FleetRecord:
    """Make a fleet of the machines of the config. Blocks. Raises as `make_nodes`, FleetError if the
    config has none."""
    if not read_addresses():
        raise FleetError(
            "the config names no other machine",
            hint=ADD_MACHINES,
        )
    with changing_fleet(paths):
        _require_none(paths)
        known = read_fleet(paths)
        drained = frozenset() if known is None else known.drained
        record = FleetRecord(made=time.time(), drained=drained)
        write_fleet(paths, record)
    return record


def _require_none(paths: Paths) -> None:
    """Raise StateError if a fleet is up."""
    if (known := read_fleet(paths)) is not None and known.made:
        raise StateError(f"a fleet is up already{_words(known)}", hint=END_IT)


def sandboxes_of(paths: Paths, node: NodeRecord) -> list[Entry]:
    """Return the sandboxes of a node, running or not. Blocks. Raises PathError."""
    node.require_ours(paths)
    return Registry(node.paths(paths)).list()


def saves_of(paths: Paths, node: NodeRecord) -> list[str]:
    """Return the sandboxes of a node, running or not. Blocks. Raises PathError."""
    node.require_ours(paths)
    home = node.data(paths) / NODE_HOME
    found = {
        place.name
        for store in known_stores(node.paths(paths), home)
        if store.root.is_relative_to(node.data(paths))
        for place in store.roots()
    }
    return sorted(name for name in found if not KEPT_SAVE.fullmatch(name))


async def end_fleet(paths: Paths, *, told: Callable[[str], None]) -> None:
    """Return the names of the saves that are removed with a node, except those that the fleet has
    exported for its own sandboxes. Blocks. Raises PathError."""
    with changing_fleet(paths):
        record = read_fleet(paths)
        if record is None:
            raise FleetError("no fleet is up", hint=BRING_UP)
        await end_keeping(paths, [node.name for node in record.nodes])
        for node in record.nodes:
            await _end_node(paths, node, told)
        remove_fleet(paths)
    if record.nodes and not await await_end(paths):
        raise FleetError("the fleet's coordinator does not end", hint="do it again")


async def _end_node(paths: Paths, node: NodeRecord, told: Callable[[str], None]) -> None:
    node.require_ours(paths)
    registry = Registry(node.paths(paths))
    with best_effort("end the spares of a node", paths.engine_log):
        await asyncio.to_thread(end_spares, registry)
    for entry in await asyncio.to_thread(registry.list):
        told(f"{entry.name}@{node.name}")
        await remove_sandbox(registry, entry.id, now=True, stop=True)
    for place in (node.runtime(paths), node.data(paths)):
        with map_os_errors(place):
            await in_thread_to_the_end(functools.partial(remove_tree, place))

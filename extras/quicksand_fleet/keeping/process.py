"""The coordinator's process, and its start. It outlives the program that started it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from quicksand.errors import FleetError
from quicksand.extending import (
    Paths,
    best_effort,
    make_private_dir,
    map_os_errors,
    no_core_files,
    noting_faults,
    paths,
    try_lock,
)

from quicksand_fleet.desk import Desk
from quicksand_fleet.keeping.book import Book
from quicksand_fleet.keeping.coordinator import Coordinator
from quicksand_fleet.keeping.machines import Machines
from quicksand_fleet.keeping.running import lock_of
from quicksand_fleet.keeping.unneeded import Unneeded
from quicksand_fleet.record import FleetRecord, read_fleet


async def coordinate(ours: Paths) -> None:
    """Coordinate this data directory until there is nothing to keep; return at once if another
    process does so. Raises FleetError if no fleet is left, HostError."""
    place = lock_of(ours)
    make_private_dir(place.parent)
    with map_os_errors(place):
        lock = try_lock(place)
    if lock is None:
        return
    try:
        while True:
            before = await asyncio.to_thread(_which, ours)
            async with Desk.open() as desk:
                coordinator = Coordinator(
                    Book(ours), Machines(desk, ours), Unneeded(ours, time.monotonic)
                )
                await coordinator.run(is_over=lambda: _which(ours) != before)  # noqa: B023 - in it
            if await asyncio.to_thread(_is_done, ours, before):
                return
    finally:
        os.close(lock)


def _which(ours: Paths) -> object:
    """Return a value that differs between fleets. The machines of the config are one fleet, up or
    not."""
    try:
        record = read_fleet(ours) or FleetRecord()
    except FleetError:
        return None
    return record.back_end, [node.id for node in record.nodes]


def _is_done(ours: Paths, before: object) -> bool:
    """Whether no coordinator is needed: nothing is kept, or the fleet is the same and nobody asks
    for one."""
    return _which(ours) == before or not any(Book(ours).place.glob("*.json"))


def main() -> None:
    no_core_files()
    json.load(sys.stdin)
    os.chdir("/")  # it must keep no directory in use
    ours = paths()
    with noting_faults(), best_effort("coordinate the fleet", ours.engine_log):
        asyncio.run(coordinate(ours))


if __name__ == "__main__":
    main()

"""The coordinator's process, and starting it. It goes on after the program that has started it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from quicksand.base.effort import best_effort
from quicksand.base.files import map_os_errors, read_json, try_lock
from quicksand.base.paths import Paths, make_private_dir, paths
from quicksand.fleet.desk import Desk
from quicksand.fleet.keeping.book import Book
from quicksand.fleet.keeping.coordinator import Coordinator
from quicksand.fleet.keeping.machines import Machines
from quicksand.fleet.keeping.running import lock_of
from quicksand.qemu.keeper_parts.bounds import no_core_files
from quicksand.records.fleet_files import fleet_file


async def coordinate(ours: Paths) -> None:
    """Be the coordinator of this data directory until there is nothing to keep, or another fleet is
    up; return at once if there is one. Raises FleetError, HostError."""
    place = lock_of(ours)
    make_private_dir(place.parent)
    with map_os_errors(place):
        lock = try_lock(place)
    if lock is None:
        return
    try:
        before = _which(fleet_file(ours))
        async with Desk.open() as desk:
            coordinator = Coordinator(Book(ours), Machines(desk, ours))
            await coordinator.run(is_over=lambda: _which(fleet_file(ours)) != before)
    finally:
        os.close(lock)


def _which(place: Path) -> object:
    """What differs when another fleet is up."""
    try:
        return read_json(place).get("made")
    except (OSError, ValueError):
        return None


def main() -> None:
    no_core_files()
    json.load(sys.stdin)
    os.chdir("/")  # it must keep no directory in use
    ours = paths()
    with best_effort("coordinate the fleet", ours.engine_log):
        asyncio.run(coordinate(ours))


if __name__ == "__main__":
    main()

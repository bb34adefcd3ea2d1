"""Makes the parts of a `Sandbox` that a fleet places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quicksand.errors import ConfigError
from quicksand.extending import FarParts, Parts, Progress, describe, paths

from quicksand_fleet.desk import Desk
from quicksand_fleet.finding import FoundLife
from quicksand_fleet.keeping.book import find_kept
from quicksand_fleet.keeping.life import KeptLife
from quicksand_fleet.keeping.restart import Restart, find_restart
from quicksand_fleet.life import FleetLife


def make_in_fleet(
    fleet: Desk | bool,
    restart: Restart | bool | None,
    own: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Parts:
    """Return the parts of a sandbox that `start` places. ``own`` are the keywords of `Sandbox` that
    are not options of the machine. Raises ConfigError."""
    desk = _desk_of(fleet)
    terms = find_restart(restart, own)
    known, opening = describe(own, options)
    progress: Progress | None = own["progress_callback"]
    life = (
        FleetLife(desk, known, opening, progress=progress)
        if terms is None
        else KeptLife(desk, known, opening, terms, own=own, progress=progress)
    )
    return FarParts(life).as_parts()


def open_in_fleet(fleet: Desk | bool, name: str) -> Parts:
    """Return the parts of a sandbox that exists somewhere in the fleet; a kept one is followed.
    Raises ConfigError."""
    desk = _desk_of(fleet)
    kept = find_kept(paths(), name)
    life = FoundLife(desk, name) if kept is None else KeptLife.of(desk, kept)
    return FarParts(life).as_parts()


def _desk_of(fleet: Desk | bool) -> Desk | None:
    if fleet is not True and not isinstance(fleet, Desk):
        raise ConfigError(f"fleet must be a Fleet or True, not {fleet!r:.80}")
    return None if fleet is True else fleet

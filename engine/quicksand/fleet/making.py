"""Makes the parts of a `Sandbox` that a fleet places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quicksand.base.errors import ConfigError
from quicksand.base.paths import paths
from quicksand.base.progress import Progress
from quicksand.fleet.desk import Desk
from quicksand.fleet.keeping.book import Book, Kept, Phase
from quicksand.fleet.keeping.life import KeptLife
from quicksand.fleet.keeping.restart import Restart, find_restart
from quicksand.fleet.life import FleetLife
from quicksand.hosted.making import describe
from quicksand.hosted.parts import FarParts
from quicksand.life.parts import Parts


def make_in_fleet(
    fleet: Desk | bool,
    restart: Restart | bool | None,
    own: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Parts:
    """The parts of a sandbox that `start` places. ``own`` are the keywords of `Sandbox` that are no
    options of the machine. Raises ConfigError."""
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
    """The parts of a sandbox that the fleet keeps, wherever it is. Raises ConfigError,
    FleetError if it keeps none of that name."""
    desk = _desk_of(fleet)
    kept: Kept | None = Book(paths()).read(name)
    if kept is None or kept.phase is Phase.ENDED:
        raise ConfigError(
            f"the fleet keeps no sandbox {name!r:.80}",
            hint="one that was made without restart= is found on its machine: "
            'Sandbox.attach(NAME, host=fleet.host("box"))',
        )
    return FarParts(KeptLife.of(desk, kept)).as_parts()


def _desk_of(fleet: Desk | bool) -> Desk | None:
    if fleet is not True and not isinstance(fleet, Desk):
        raise ConfigError(f"fleet must be a Fleet or True, not {fleet!r:.80}")
    return None if fleet is True else fleet

"""The places that sandboxes of a machine have.

::

    <data>/fleet/places/<id>.json   a reservation (32 hex digits) used by a sandbox of this machine

This is the truth on the machine's disk, from which Ray's knowledge is made again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from quicksand.extending import (
    HEX32,
    Paths,
    Registry,
    fleet_dir,
    is_id,
    make_private_dir,
    map_os_errors,
    read_json,
    write_json,
)

PLACES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A place that a sandbox has."""

    id: str
    """The id of the reservation, 32 hex digits."""
    sandbox: str
    memory_bytes: int
    """Bytes including QEMU's need."""


class Places:
    """The places of one data directory. All methods block."""

    def __init__(self, paths: Paths) -> None:
        self._registry = Registry(paths)
        self._directory = fleet_dir(paths) / "places"

    def bind(self, kept: Kept) -> None:
        """Note that a sandbox has a place. Raises HostError, ValueError."""
        if not HEX32.fullmatch(kept.id) or not is_id(kept.sandbox):
            raise ValueError("no id of a place or of a sandbox")
        make_private_dir(self._directory)
        with map_os_errors(self._file(kept.id)):
            write_json(
                self._file(kept.id), {"sandbox": kept.sandbox, "memory_bytes": kept.memory_bytes}
            )

    def drop(self, id_: str) -> None:
        """Note that no sandbox has the place any more. Idempotent. Raises HostError."""
        if HEX32.fullmatch(id_):
            with map_os_errors(self._file(id_)):
                self._file(id_).unlink(missing_ok=True)

    def list(self) -> list[Kept]:
        """Return all places that sandboxes have, or had. Raises OSError."""
        found = []
        for path in sorted(self._directory.glob("*.json"))[:PLACES_MAX]:
            with contextlib.suppress(FileNotFoundError, ValueError):
                match read_json(path):
                    case {"sandbox": str(sandbox), "memory_bytes": int(size)} if is_id(sandbox):
                        if HEX32.fullmatch(path.stem):
                            found.append(Kept(id=path.stem, sandbox=sandbox, memory_bytes=size))
        return found

    def is_live(self, kept: Kept) -> bool:
        """Whether the sandbox runs, or is starting. Raises OSError."""
        return self._registry.is_live(kept.sandbox)

    def _file(self, id_: str) -> Path:
        return self._directory / f"{id_}.json"

"""The coordinator's book: which sandboxes are kept, where, and what is known of their saves.

Each sandbox has a file, ``<data>/fleet/kept/<name>.json``. The program that starts the sandbox
creates the file; from then on only the coordinator writes it, always before it acts on the new
content. Programs make requests by an empty file beside it (`Wish`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from quicksand.errors import ConfigError, NameTakenError, StateError
from quicksand.extending import (
    ForeignValueError,
    Paths,
    check_name,
    decode,
    encode,
    fleet_dir,
    lock_within,
    make_private_dir,
    map_os_errors,
    read_json,
    write_json,
)

SCHEMA = 1
LOCK_WAIT_S = 10.0
"""Seconds to wait while another program begins to keep a sandbox."""


class Phase(StrEnum):
    """The phase in which a kept sandbox is."""

    PLACED = "placed"
    """The sandbox was started, and still ends with the program that started it. It is not restarted
    elsewhere while its machine is away."""
    LEASED = "leased"
    """The sandbox runs with a lease, or its machine is away."""
    STARTING = "starting"
    """The sandbox is being started, or is about to be."""
    ENDED = "ended"
    """The sandbox is no longer kept; its machines must still be told."""


class Wish(StrEnum):
    """A request of a program to the coordinator."""

    END = "end"
    """Do not restart the sandbox: its program is ending it."""
    SAVE = "save"
    """Export a save of the sandbox now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The last save of a sandbox that was exported to another machine."""

    name: str
    at: float
    """Unix time of the state in the save."""
    hosts: Sequence[str]
    """The machines that have the save, besides the coordinator's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Older:
    """An earlier epoch that is still on a machine which must be told of it."""

    host: str
    id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A sandbox that is started elsewhere when its machine is lost."""

    name: str
    epoch: int
    phase: Phase
    host: str
    """The machine where it is; with STARTING the machine where it is being started, "" if not
    chosen yet."""
    id: str
    """Its id on that machine; "" if not known yet."""
    lease: float
    """Seconds."""
    every: float | None
    """Seconds between two saves; None for only the first save and those that are requested."""
    make: str = field(repr=False)
    """How the sandbox is made: the keywords of `Sandbox`, including its whole config, as JSON."""
    is_here: bool = False
    """Whether it was, or is being, restarted on its own machine from its own disk."""
    is_fenced: bool = False
    """With PLACED: whether its machine has confirmed that it ends the sandbox with its lease."""
    exported: Exported | None = None
    unneeded: Sequence[str] = ()
    """Exported saves of earlier moments that are to be removed, noted by earlier versions
    (exports.py)."""
    older: Sequence[Older] = ()
    restarted: str = ""
    """When and from what the sandbox was restarted last, in words."""
    trouble: str = ""
    """Why a save or a restart failed last."""

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA, "kept": encode(self)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Kept:
        """Parse a file of the book. Raises ValueError."""
        if value.get("schema_version") != SCHEMA:
            raise ValueError(f"schema_version {value.get('schema_version')!r} is not {SCHEMA}")
        kept: Kept = decode(value.get("kept"), cls)
        try:
            check_name(kept.name)
        except ConfigError as error:
            raise ForeignValueError(str(error)) from None
        return kept


class Book:
    """The kept sandboxes of one data directory. All methods block."""

    def __init__(self, paths: Paths) -> None:
        self.place = fleet_dir(paths) / "kept"
        self.log = paths.engine_log
        """The log of attempts that failed."""

    def read_all(self) -> dict[str, Kept]:
        """Return all kept sandboxes by name. Those that cannot be read are skipped: nothing is done
        about them. Raises OSError."""
        found = {}
        for path in sorted(self.place.glob("*.json")):
            with contextlib.suppress(FileNotFoundError, ValueError):
                kept = Kept.from_json(read_json(path))
                if kept.name == path.stem:
                    found[kept.name] = kept
        return found

    def names(self) -> frozenset[str]:
        """Return the names of all kept sandboxes, including those that cannot be read. Raises
        OSError."""
        return frozenset(path.stem for path in self.place.glob("*.json"))

    def read(self, name: str) -> Kept | None:
        """Return one kept sandbox; None if it is not kept. Raises ValueError if its file is
        damaged, OSError."""
        try:
            return Kept.from_json(read_json(self._file(name)))
        except FileNotFoundError:
            return None

    def add(self, kept: Kept) -> None:
        """Begin to keep a sandbox. Raises NameTakenError, HostError, StateError if another program
        adds one for longer than LOCK_WAIT_S."""
        make_private_dir(self.place)
        with map_os_errors(self.place):
            lock = lock_within(self.place / ".lock", LOCK_WAIT_S)
            if lock is None:
                raise StateError(
                    f"another program has had {self.place / '.lock'} for {LOCK_WAIT_S:g} s",
                    hint="try again when it has ended",
                )
            try:
                if self._is_kept(kept.name):
                    raise NameTakenError(
                        f"the fleet keeps another sandbox {kept.name!r}", hint="choose another name"
                    )
                self._forget_wishes(kept.name)
                self.write(kept)
            finally:
                os.close(lock)

    def _is_kept(self, name: str) -> bool:
        try:
            known = self.read(name)
        except ValueError:
            return True
        return known is not None and known.phase is not Phase.ENDED

    def write(self, kept: Kept) -> None:
        """Replace what is known of a sandbox, in a way that outlives a crash. Raises HostError."""
        write_json(self._file(kept.name), kept.to_json(), read=Kept.from_json)

    def remove(self, name: str) -> None:
        """Stop keeping a sandbox. Raises HostError."""
        with map_os_errors(self.place):
            self._file(name).unlink(missing_ok=True)
            self._forget_wishes(name)

    def wish(self, name: str, wish: Wish) -> None:
        """Make a request to the coordinator. Raises HostError."""
        with map_os_errors(self.place):
            self._wish(name, wish).touch(mode=0o600)

    def has_wish(self, name: str, wish: Wish) -> bool:
        """Whether a program has made the request ``wish``."""
        return self._wish(name, wish).exists()

    def wishes(self, name: str) -> frozenset[Wish]:
        """Return all requests of programs."""
        return frozenset(wish for wish in Wish if self.has_wish(name, wish))

    def grant_wish(self, name: str, wish: Wish) -> None:
        """Remove a request, because it is being granted. Raises OSError."""
        self._wish(name, wish).unlink(missing_ok=True)

    def _forget_wishes(self, name: str) -> None:
        for wish in Wish:
            self.grant_wish(name, wish)

    def _file(self, name: str) -> Path:
        return self.place / f"{check_name(name)}.json"

    def _wish(self, name: str, wish: Wish) -> Path:
        return self.place / f"{check_name(name)}.{wish.value}"


def find_kept(paths: Paths, name: str) -> Kept | None:
    """Return the sandbox that is kept by that name. None if there is none, if it has ended, or if
    its record is damaged. Blocks."""
    try:
        kept = Book(paths).read(name)
    except (OSError, ValueError, ConfigError):
        return None
    return None if kept is None or kept.phase is Phase.ENDED else kept

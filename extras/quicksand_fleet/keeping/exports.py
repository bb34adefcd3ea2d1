"""The exported saves that may exist, and their machines.

A copy is noted before it is made, and stays noted until its machine reports that it is gone. So no
copy is forgotten, whichever machine is lost and when. The book says which of them are needed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from quicksand.errors import FleetError
from quicksand.extending import (
    ForeignValueError,
    Paths,
    decode,
    encode,
    fleet_dir,
    make_private_dir,
    read_json,
    write_json,
)

from quicksand_fleet.keeping.wire import KEPT_SAVE

SCHEMA = 1
HERE = ""
"""The coordinator's own machine."""


@dataclass(frozen=True, slots=True, order=True)
class Copy:
    """An exported save of a machine."""

    host: str
    name: str

    @property
    def of(self) -> str:
        """Return the name of the sandbox from which the save was exported."""
        return self.name.rpartition(".kept-")[0]


@dataclass(frozen=True, slots=True)
class _Noted:
    copies: Sequence[Copy]


def new_name(of: str) -> str:
    """A name for the next exported save of a sandbox."""
    return f"{of}.kept-{os.urandom(6).hex()}"


def read_copies(paths: Paths) -> frozenset[Copy]:
    """Return all copies that are noted. Blocks. Raises FleetError if they cannot be read."""
    place = fleet_dir(paths) / "exports.json"
    try:
        return _parse(read_json(place))
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        raise FleetError(
            f"{place} cannot be read: {error}",
            hint="remove it; exported saves that nobody needs then stay until `saves rm`",
        ) from error


def write_copies(paths: Paths, copies: Collection[Copy]) -> None:
    """Replace the noted copies, in a way that outlives a crash. Blocks. Raises HostError."""
    value = {"schema_version": SCHEMA, **encode(_Noted(sorted(copies)))}
    write_json(make_private_dir(fleet_dir(paths)) / "exports.json", value, read=_parse)


def _parse(value: dict[str, Any]) -> frozenset[Copy]:
    if value.get("schema_version") != SCHEMA:
        raise ValueError(f"schema_version {value.get('schema_version')!r} is not {SCHEMA}")
    noted: _Noted = decode(value, _Noted)
    if not all(KEPT_SAVE.fullmatch(copy.name) for copy in noted.copies):
        raise ForeignValueError("it names what is no exported save")
    return frozenset(noted.copies)

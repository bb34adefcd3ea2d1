"""The lease of a sandbox that a fleet keeps (lease.json in its directory): its epoch, and whether
it may be started here (docs/internals/fleet.md, "Restart elsewhere")."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from quicksand.base.errors import StateError
from quicksand.base.fields import JsonRecord
from quicksand.base.files import read_json, write_json
from quicksand.base.processes import boot_id
from quicksand.base.remedies import Remedy, Words
from quicksand.records.layout import SandboxDir

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord(JsonRecord):
    """The record that a fleet keeps a sandbox. While the file exists, only the fleet starts it."""

    WHAT = "bad lease"
    VERSION = SCHEMA

    name: str
    """The name for which the fleet keeps it."""
    epoch: int
    boot: str
    """The machine's boot in which it was written."""
    superseded_by: str = ""
    """The machine where a later epoch was started; "" if this is the latest known one."""
    may_start_until: float = 0.0
    """The moment of the clock `keeper_parts.owner_wait.now` until which it may be started."""


def lease_file(place: SandboxDir) -> Path:
    """The path of its file."""
    return place.root / "lease.json"


def read_lease(place: SandboxDir) -> LeaseRecord | None:
    """The lease of a sandbox; None if no fleet keeps it. Raises ValueError for a damaged one,
    OSError."""
    try:
        return LeaseRecord.from_json(read_json(lease_file(place)))
    except FileNotFoundError:
        return None


def write_lease(place: SandboxDir, lease: LeaseRecord) -> None:
    """Replace it. Raises HostError."""
    write_json(lease_file(place), lease.to_json(), read=LeaseRecord.from_json)


def use_permission(place: SandboxDir, name: str, now: float) -> None:
    """Let a start go on, unless a fleet keeps the sandbox and has not permitted it: it may run
    elsewhere. A permission is valid for one start. Raises StateError, HostError."""
    try:
        lease = read_lease(place)
    except (OSError, ValueError) as error:
        raise StateError(
            f"whether a fleet keeps {name!r} cannot be read: {error}",
            hint=f"have a look at {lease_file(place)}",
        ) from error
    if lease is None:
        return
    if lease.superseded_by:
        raise StateError(
            f"{name!r} is epoch {lease.epoch} of the sandbox {lease.name!r}, which runs on "
            f"{lease.superseded_by}: it is not started again",
            hint=Words("a save of it can be started: ", Remedy("save", name=name)),
        )
    if lease.boot != boot_id() or now >= lease.may_start_until:
        raise StateError(
            f"a fleet keeps {name!r}, and only the fleet starts it: it may run elsewhere by now",
            hint="look for it in the fleet; Sandbox.attach(…, fleet=True) finds it",
        )
    write_lease(place, replace(lease, may_start_until=0.0))

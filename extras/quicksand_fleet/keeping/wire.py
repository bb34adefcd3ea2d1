"""The messages about leases between machines and the coordinator.

The machine sends lines of JSON (`Line`), and the coordinator answers each with the event ``tell``,
which has a `Told`. Times are by the machine's clock (CLOCK_BOOTTIME): the coordinator only hands
them back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from quicksand.errors import ConfigError
from quicksand.extending import ForeignValueError, check_name, decode, encode, is_id

KEEPING = "keeping"
"""The capability of a machine that takes leases."""
LEASES = "leases"
"""The request of this capability."""
ASK_S = 2.0
"""Seconds between two lines that a machine sends."""
LEASE_LEAST_S, LEASE_MOST_S = 6.0, 3600.0
LINE_MAX = 512 * 1024
HELD_MAX = 2000
BY_MAX = 200
"""The most characters of a machine's name."""
KEPT_SAVE = re.compile(r"[A-Za-z0-9_.-]{1,63}\.kept-[0-9a-f]{12}")
"""The pattern of the names of exported saves: no other save is ever removed."""


class State(StrEnum):
    """The state of a sandbox with a lease."""

    RUNNING = "running"
    STOPPED = "stopped"
    """The sandbox was asked to end, or ended by itself."""
    FENCED = "fenced"
    """The sandbox's lease has run out."""
    DOWN = "down"
    """The sandbox's machine went down, or its processes were killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A sandbox of a machine that has, or had, a lease."""

    id: str
    name: str
    """The name for which it is kept."""
    epoch: int
    state: State
    is_fenced: bool = False
    """Whether its keeper has been given a lease of this epoch, and ends the sandbox with it."""
    is_let_go: bool = False
    """Whether it has outlived the program that started it."""
    is_superseded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One report of a machine."""

    asked: float
    """The time from which the answer's leases count."""
    saves: str
    """The directory of the machine's saves."""
    held: Sequence[Held]
    left: Sequence[str] = ()
    """The exported saves that the last answer told it to remove, and that are still there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A lease for a sandbox that runs."""

    id: str
    name: str
    epoch: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """A sandbox that goes on elsewhere."""

    id: str
    name: str
    epoch: int
    by: str
    """The machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The coordinator's answer to a line."""

    asked: float
    """The time `Line.asked` of the line."""
    grants: Sequence[Grant] = ()
    permits: Sequence[Grant] = ()
    """The sandboxes that may be started once, with this epoch."""
    superseded: Sequence[Superseded] = ()
    released: Sequence[str] = ()
    """Ids of sandboxes that no fleet keeps any more."""
    unneeded: Sequence[str] = ()
    """Names of exported saves to be removed."""


def encode_line(line: Line) -> bytes:
    """Return its line."""
    return json.dumps(encode(line), separators=(",", ":")).encode() + b"\n"


def decode_line(data: bytes) -> Line:
    """Read a line of another machine. Raises ForeignValueError."""
    try:
        line: Line = decode(json.loads(data), Line)
    except (ValueError, RecursionError) as error:
        raise ForeignValueError(f"no leases: {error}") from None
    if len(line.held) > HELD_MAX or not 0 <= line.asked < 2**40:
        raise ForeignValueError("leases make no sense")
    if not line.saves.startswith("/") or len(line.saves) > 4096:
        raise ForeignValueError("there is no directory of saves")
    if len(line.left) > HELD_MAX or not all(map(KEPT_SAVE.fullmatch, line.left)):
        raise ForeignValueError("the saves that are left make no sense")
    for one in line.held:
        _check(one.id, one.name, one.epoch)
    return line


def decode_told(value: object) -> Told:
    """Read an answer. Raises ForeignValueError."""
    told: Told = decode(value, Told)
    for gone in told.superseded:
        _check(gone.id, gone.name, gone.epoch)
        if not gone.by.isprintable() or len(gone.by) > BY_MAX:
            raise ForeignValueError("the name of a machine makes no sense")
    for grant in (*told.grants, *told.permits):
        _check(grant.id, grant.name, grant.epoch)
        if not LEASE_LEAST_S <= grant.seconds <= LEASE_MOST_S:
            raise ForeignValueError("a lease makes no sense")
    if not all(map(is_id, told.released)) or not all(map(KEPT_SAVE.fullmatch, told.unneeded)):
        raise ForeignValueError("an answer names what cannot be")
    return told


def _check(id_: str, name: str, epoch: int) -> None:
    try:
        check_name(name)
    except ConfigError as error:
        raise ForeignValueError(str(error)) from None
    if not is_id(id_) or not 0 < epoch < 2**31:
        raise ForeignValueError("the id or the epoch of a sandbox makes no sense")

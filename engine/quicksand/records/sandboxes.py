"""The records of a sandbox: `Record` (sandbox.json) outlives a stop; clients need `RunState`
(state.json) while it runs. `Entry` is its state at one moment."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from quicksand.base.errors import ConfigError
from quicksand.records.config import SandboxConfig, check_name
from quicksand.records.save_source import SaveSource

SCHEMA = 1
ID_BYTES = 6

LOCK_WAIT_S = 5.0
"""Seconds to wait for the lock of a sandbox that does not run."""


class Status(StrEnum):
    """The state of a sandbox."""

    STARTING = "starting"
    UNREACHABLE = "unreachable"
    """It runs, but its sockets were removed. It can only be ended."""
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    CRASHED = "crashed"
    """It ended without being asked to."""
    BROKEN = "broken"
    """Its record cannot be read; ``Entry.error`` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The record of a sandbox, which outlives a stop."""

    id: str
    name: str
    config: SandboxConfig
    image_digest: str
    """The image's digest, "" for images outside of the store."""
    chain: tuple[str, ...]
    """Absolute paths of the image's qcow2 files, the lowest first."""
    created: float
    """Unix time."""
    committed: bool
    """False until the first start has succeeded; if the process that starts it dies before, the
    sandbox is removed."""
    discard: bool
    """Ephemeral: it is removed when it stops."""
    source: SaveSource | None = None
    """The save that it started with."""

    @property
    def began_with(self) -> str:
        """The name of the save or image that it started with."""
        return self.config.image if self.source is None else self.source.name

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA,
            "id": self.id,
            "name": self.name,
            "config": self.config.to_json(),
            "image_digest": self.image_digest,
            "chain": list(self.chain),
            "created": self.created,
            "committed": self.committed,
            "discard": self.discard,
            "source": None if self.source is None else self.source.to_json(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Record:
        """Parse a record. Raises ValueError naming what is wrong."""
        if value.get("schema_version") != SCHEMA:
            raise ValueError(f"schema_version {value.get('schema_version')!r} is not {SCHEMA}")
        try:
            record = cls(
                id=str(value["id"]),
                name=check_name(value["name"]),
                config=SandboxConfig.parse(value["config"]),
                image_digest=str(value["image_digest"]),
                chain=tuple(str(path) for path in value["chain"]),
                created=float(value["created"]),
                committed=bool(value["committed"]),
                discard=bool(value["discard"]),
                source=_read_source(value["source"]),
            )
        except (KeyError, TypeError, OverflowError, ConfigError) as error:
            raise ValueError(f"bad record: {error!r}") from error
        if not math.isfinite(record.created):
            raise ValueError(f"bad record: created is {record.created}")
        return record


def _read_source(value: dict[str, Any] | None) -> SaveSource | None:
    """Parse the record of the save that a sandbox started with. Raises KeyError, TypeError."""
    if value is None:
        return None
    return SaveSource.from_json(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Everything that a client needs to use a running sandbox."""

    keeper_pid: int
    qemu_pid: int
    token: str
    """The agent's token, a secret; it is stored only in 0700 directories."""
    accel: str
    accel_reason: str
    """Why no faster accelerator is used; "" if it is the fastest."""
    forwards: tuple[tuple[int, int], ...]
    """(host port, guest port), with the host ports that were chosen."""
    http_port: int | None
    """The host port of the agent's HTTP interface."""
    run: str
    """The id of this run of QEMU."""
    origin: str
    """The tag of the checkpoint from which it continued; "" if it booted."""
    started: float
    """Unix time."""
    paused: bool
    qemu_command: tuple[str, ...]
    vnc_port: int | None = None
    """The host port at which the screen is served, too."""

    @property
    def forwarded(self) -> tuple[int, ...]:
        """The host's ports that lead into the guest."""
        ports = tuple(host for host, _ in self.forwards)
        return ports if self.http_port is None else (*ports, self.http_port)

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA, **{f: getattr(self, f) for f in self.__slots__}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RunState:
        """Parse the state of a run. Raises ValueError."""
        try:
            return cls(
                keeper_pid=int(value["keeper_pid"]),
                qemu_pid=int(value["qemu_pid"]),
                token=str(value["token"]),
                accel=str(value["accel"]),
                accel_reason=str(value["accel_reason"]),
                forwards=tuple((int(h), int(g)) for h, g in value["forwards"]),
                http_port=None if value["http_port"] is None else int(value["http_port"]),
                run=str(value["run"]),
                origin=str(value["origin"]),
                started=float(value["started"]),
                paused=bool(value["paused"]),
                qemu_command=tuple(str(a) for a in value["qemu_command"]),
                vnc_port=None if value.get("vnc_port") is None else int(value["vnc_port"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"bad state: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The state of one sandbox at one moment, from `Registry.inspect`."""

    id: str
    name: str
    status: Status
    record: Record | None
    """None if it is BROKEN."""
    run: RunState | None = None
    """None unless it is running or paused."""
    error: str = ""
    """Why it is BROKEN, CRASHED or UNREACHABLE, or PAUSED by the keeper: by a full host disk, or
    for its memory; "" otherwise."""

    @property
    def is_live(self) -> bool:
        """Whether a process of it runs or starts."""
        return self.status not in (Status.STOPPED, Status.CRASHED, Status.BROKEN)


def new_id() -> str:
    """A new id for a sandbox: 12 hexadecimal digits."""
    return os.urandom(ID_BYTES).hex()


def is_id(text: str) -> bool:
    """Whether ``text`` has the form of a sandbox's id."""
    return len(text) == 2 * ID_BYTES and set(text) <= set("0123456789abcdef")

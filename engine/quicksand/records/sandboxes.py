"""The records of a sandbox: `Record` (sandbox.json) outlives a stop; clients need `RunState`
(state.json) while it runs. `Entry` is its state at one moment."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from quicksand.base.fields import Fields, JsonRecord, each_by, later, read_by
from quicksand.records.config import SandboxConfig, check_name
from quicksand.records.port_forwards import PortForward, Protocol
from quicksand.things.frozen import frozen
from quicksand.things.sandbox_facts import SHOWN
from quicksand.things.status import Status

SCHEMA = 1
ID_BYTES = 6

LOCK_WAIT_S = 5.0
"""Seconds to wait for the lock of a sandbox that does not run."""


@frozen
class SaveSource(JsonRecord):
    """A save as it was when the sandbox was created. It is needed only for the first start."""

    WHAT = "bad record of a save"

    path: str
    """The save's directory or snapshot file."""
    below: tuple[str, ...] = ()
    """The directories of the saves below it, the lowest first."""
    name: str
    id: str
    """The save's id; "" for a save of the published packages."""
    digest: str
    """The digest of all its layers (`layers_digest`); "" if they have no checksums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(JsonRecord):
    """The record of a sandbox, which outlives a stop."""

    WHAT = "bad record"
    VERSION = SCHEMA

    id: str
    name: str = field(metadata=read_by(check_name))
    config: SandboxConfig = field(metadata=read_by(SandboxConfig.parse))
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
    """Whether it is ephemeral: removed when it stops."""
    source: SaveSource | None = field(default=None, metadata=read_by(SaveSource.from_json))
    """The save with which it started."""

    @property
    def began_with(self) -> str:
        """Return the name of the save or image with which it started."""
        return self.save or self.config.image

    @property
    def save(self) -> str | None:
        """Return the name of the save with which it started."""
        return None if self.source is None else self.source.name

    @classmethod
    def from_json(cls, value: Any, known: dict[str, SandboxConfig] | None = None) -> Record:
        """Parse a record. ``known`` are configs that were read before: most of a thousand sandboxes
        share a few, and parsing one takes half of the time. Raises ValueError naming what is
        wrong."""
        configs = {} if known is None else known
        return cls._read(value, config=lambda said: _read_config(said, configs))


def _read_config(value: Any, known: dict[str, SandboxConfig]) -> SandboxConfig:
    """Raises TypeError, ConfigError."""
    said = repr(value)
    if said not in known:
        known[said] = SandboxConfig.parse(value)
    return known[said]


def _read_forward(pair: object) -> tuple[int, int]:
    """Raises ValueError."""
    if not isinstance(pair, list) or len(pair) != 2 or any(type(port) is not int for port in pair):
        raise ValueError(f"bad state: {repr(pair)[:80]} is no forwarded port")
    return pair[0], pair[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState(JsonRecord):
    """Everything that a client needs to use a running sandbox."""

    WHAT = "bad state"
    VERSION = SCHEMA

    keeper_pid: int
    qemu_pid: int
    token: str
    """The agent's token, a secret; it is stored only in 0700 directories."""
    accel: str
    accel_reason: str
    """Why no faster accelerator is used; "" if it is the fastest."""
    forwards: tuple[tuple[int, int], ...] = field(metadata=each_by(_read_forward))
    """(host port, guest port) of the TCP forwards with which it was started, with the chosen host
    ports."""
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
    vnc_port: int | None = field(default=None, metadata=later(None))
    """The host port at which the screen is served, too."""
    udp_forwards: tuple[tuple[int, int], ...] = field(
        default=(), metadata=later((), **each_by(_read_forward))
    )
    """As ``forwards``, of UDP."""
    owner_pid: int = field(default=0, metadata=later(0))
    """The process with which it ends unless it is detached; 0 if unknown."""
    owner_started: str = field(default="", metadata=later(""))
    """The start of that process (`processes.start_of`): process ids are reused."""

    @property
    def published(self) -> tuple[PortForward, ...]:
        """Return all forwards with which it was started."""
        return (
            *(PortForward(host, guest) for host, guest in self.forwards),
            *(PortForward(host, guest, Protocol.UDP) for host, guest in self.udp_forwards),
        )

    @property
    def forwarded(self) -> tuple[int, ...]:
        """The host's ports that QEMU's network leads into the guest."""
        return () if self.http_port is None else (self.http_port,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The state of one sandbox at one moment, from `Registry.inspect`."""

    id: str
    name: str
    status: Status
    record: Record | None
    """The record; None if it is BROKEN."""
    run: RunState | None = None
    """The run; None unless it is running or paused."""
    dialled: tuple[PortForward, ...] = ()
    """The forwards that were made while it runs (`Sandbox.forward`)."""
    error: str = ""
    """Why it is BROKEN, CRASHED or UNREACHABLE, or PAUSED by the keeper: by a full host disk, or
    for its memory; or that its later forwards are unknown; "" otherwise."""
    epoch: int = 0
    """The number of this start of a sandbox that a fleet keeps, from 1 on, one more with each
    restart elsewhere; 0 if no fleet keeps it, or its lease is damaged."""
    superseded_by: str = ""
    """The machine where a later epoch runs; "" if none is known."""

    @property
    def ports(self) -> tuple[tuple[int, int], ...]:
        """(host port, guest port) of all forwards of TCP, in order."""
        return self._all(Protocol.TCP)

    @property
    def udp_ports(self) -> tuple[tuple[int, int], ...]:
        """(host port, guest port) of all forwards of UDP, in order."""
        return self._all(Protocol.UDP)

    def _all(self, protocol: Protocol) -> tuple[tuple[int, int], ...]:
        published = self.run.published if self.run is not None else ()
        found = (one for one in (*published, *self.dialled) if one.protocol is protocol)
        return tuple(sorted((one.host, one.guest) for one in found))

    @property
    def is_live(self) -> bool:
        """Whether a process of it runs or starts."""
        return self.status.is_live

    def told(self) -> dict[str, Any]:
        """Return the facts of the sandbox by the names of the fields of `SandboxFacts`, without
        those of a record or a run that it does not have."""
        has: dict[str, Any] = {"entry": self, "record": self.record, "run": self.run}
        has |= {"config": self.record and self.record.config, "running": self.run and self}
        parts = ((one.name, has[one.part], one.attribute) for one in SHOWN)
        return {name: getattr(part, attribute) for name, part, attribute in parts if part}


def read_forwards(found: Fields, name: str = "forwards") -> tuple[tuple[int, int], ...]:
    """Read a field that has pairs of a host's port and a guest's. Raises ValueError."""
    return tuple(_read_forward(pair) for pair in found.items(name))


def new_id() -> str:
    """A new id for a sandbox: 12 hexadecimal digits."""
    return os.urandom(ID_BYTES).hex()


def is_id(text: str) -> bool:
    """Whether ``text`` has the form of a sandbox's id."""
    return len(text) == 2 * ID_BYTES and set(text) <= set("0123456789abcdef")

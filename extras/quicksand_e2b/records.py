"""The API's knowledge of its sandboxes beyond the engine's: a file for each sandbox and each
snapshot, written before the thing is made, and removed after it is gone.

Whether a sandbox runs is never read from here but from the engine's registry, on its host.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from quicksand.extending import (
    Fields,
    in_thread_to_the_end,
    make_private_dir,
    read_json,
    write_json,
)

SCHEMA = 1
SANDBOX_SCHEMA = 2
"""The version of sandboxes' records: since 2, names in the engine do not tell the id."""
PLACED_SCHEMA = 3
"""The version of records with a host of a fleet: an earlier server would find nothing of these
sandboxes, and forget them."""

ID_LENGTH = 20
NAME_PREFIX = "api-"
"""The beginning of the names that sandboxes have in the engine."""

_DIGITS = string.ascii_lowercase + string.digits
T = TypeVar("T")


class State(StrEnum):
    """The state of a sandbox by its last order: under way, or done."""

    MAKING = "making"
    """It may exist in part. After a crash it is removed."""
    RUNNING = "running"
    PAUSING = "pausing"
    """After a crash it runs on, or is paused if it has stopped already."""
    PAUSED = "paused"
    ENDING = "ending"
    """It is to be removed, whatever there is of it."""
    HELD = "held"
    """It is gone for its clients, and stays only for the snapshots of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRecord:
    """A sandbox of the API."""

    id: str
    owner: str
    template: str
    """The template that was asked for."""
    state: State
    created: float
    """Unix time."""
    ends: float
    """Unix time at which its time is up, if it runs."""
    on_timeout: str
    """"kill" or "pause"."""
    auto_resume: bool
    pauses_memory: bool
    """Whether the pause when its time is up keeps the memory."""
    token: str
    """A secret, for the guest's files and processes."""
    traffic_token: str
    """A secret, for ports of the guest that are not public."""
    is_public: bool = True
    """Whether its ports are reached without that token."""
    internet: bool = False
    cpus: int
    memory_mb: int
    disk_mb: int
    user: str = "user"
    """The user for requests that name none."""
    paused_memory: bool = True
    """Whether the memory was kept when it was paused."""
    metadata: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    """The rules that a client gave, told back to it."""
    host_mask: str = ""
    """The Host that requests to its ports have there (`network.masked`); "" for their own."""
    request_key: str = ""
    """The idempotency key of the request that made it, "" without one."""
    request_digest: str = ""
    """SHA-256 of that request."""
    shows_id: bool = False
    """Whether its name in the engine has the id in it, as in an earlier version."""
    host: str = ""
    """The host of the fleet where it is, or is being made; "" for this machine."""
    machine_id: str = ""
    """The id of that host, whatever machine has its name later; "" if unknown."""
    sandbox_id: str = ""
    """Its id in the engine of that host; "" until it is made."""

    @property
    def name(self) -> str:
        """Its name in the engine, which every user of the host sees among the processes. The id,
        which opens the public ports, cannot be computed from it."""
        return NAME_PREFIX + self.id if self.shows_id else engine_name(self.id)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its processes: the variables that it was made with, and those that
        programs for E2B look at."""
        return {
            "E2B_SANDBOX": "true",
            "E2B_SANDBOX_ID": self.id,
            "E2B_TEMPLATE_ID": self.template,
            **self.env,
        }

    def with_state(self, state: State, **changes: Any) -> SandboxRecord:
        return replace(self, state=state, **changes)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": PLACED_SCHEMA if self.host else SANDBOX_SCHEMA,
            **{f.name: getattr(self, f.name) for f in fields(self)},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SandboxRecord:
        """Reads a record. Raises ValueError."""
        found = _versioned(value, "bad sandbox of the API", PLACED_SCHEMA)
        network = found.any("network", default={})
        return cls(
            id=_id(found.text("id")),
            owner=found.text("owner"),
            template=found.text("template"),
            state=State(found.text("state")),
            created=found.real("created"),
            ends=found.real("ends"),
            on_timeout=found.text("on_timeout"),
            auto_resume=found.flag("auto_resume"),
            pauses_memory=found.flag("pauses_memory"),
            token=found.text("token"),
            traffic_token=found.text("traffic_token"),
            is_public=found.flag("is_public", default=True),
            internet=found.flag("internet", default=False),
            cpus=found.whole("cpus"),
            memory_mb=found.whole("memory_mb"),
            disk_mb=found.whole("disk_mb"),
            user=found.text("user", default="user"),
            paused_memory=found.flag("paused_memory", default=True),
            metadata=_texts(found.any("metadata", default={})),
            env=_texts(found.any("env", default={})),
            network=network if isinstance(network, dict) else {},
            host_mask=found.text("host_mask", default=""),
            request_key=found.text("request_key", default=""),
            request_digest=found.text("request_digest", default=""),
            shows_id=found.flag("shows_id", default=True),
            host=found.text("host", default=""),
            machine_id=found.text("machine_id", default=""),
            sandbox_id=found.text("sandbox_id", default=""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRecord:
    """A snapshot: a checkpoint of a sandbox, from which others can be made."""

    id: str
    owner: str
    name: str
    """The name; "" if it has none."""
    source: str
    """The id of the sandbox that it was taken of, and that holds it."""
    created: float
    is_whole: bool
    """False until its checkpoint is there."""
    has_memory: bool
    template: str
    user: str
    cpus: int
    memory_mb: int
    disk_mb: int

    @property
    def tag(self) -> str:
        """The tag of its checkpoint."""
        return f"api-snapshot-{self.id}"

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA, **{f.name: getattr(self, f.name) for f in fields(self)}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SnapshotRecord:
        """Reads a record. Raises ValueError."""
        found = _versioned(value, "bad snapshot of the API", SCHEMA)
        return cls(
            id=_id(found.text("id")),
            owner=found.text("owner"),
            name=found.text("name"),
            source=_id(found.text("source")),
            created=found.real("created"),
            is_whole=found.flag("is_whole"),
            has_memory=found.flag("has_memory"),
            template=found.text("template"),
            user=found.text("user"),
            cpus=found.whole("cpus"),
            memory_mb=found.whole("memory_mb"),
            disk_mb=found.whole("disk_mb"),
        )


class Records:
    """The files below one directory. Methods raise DiskSpaceError, PathError. Writing waits for the
    disk, so it is done in a thread; each change of a record waits for the one before."""

    def __init__(self, directory: Path, tell: Callable[[str], None]) -> None:
        """``tell`` is told of files that cannot be read or written when no client has asked."""
        self.directory = directory
        self.tell = tell
        self._sandboxes = directory / "sandboxes"
        self._snapshots = directory / "snapshots"
        self._processes = directory / "processes"

    def prepare(self) -> None:
        """Makes the directories."""
        for path in (self.directory, self._sandboxes, self._snapshots, self._processes):
            make_private_dir(path)

    def sandboxes(self) -> Iterator[SandboxRecord]:
        """Yields all records that can be read. A damaged file is reported and left alone: nobody
        ends its sandbox when its time is up."""
        return self._all(self._sandboxes, SandboxRecord.from_json)

    def snapshots(self) -> Iterator[SnapshotRecord]:
        """Yields the records of snapshots likewise."""
        return self._all(self._snapshots, SnapshotRecord.from_json)

    def _all(self, directory: Path, parse: Callable[[dict[str, Any]], T]) -> Iterator[T]:
        for path in sorted(directory.glob("[!.]*.json")):
            try:
                found = parse(read_json(path))
            except (OSError, ValueError) as error:
                self.tell(f"{path} cannot be read, and is left alone: {error}")
            else:
                yield found

    async def save(self, record: SandboxRecord | SnapshotRecord) -> None:
        value = record.to_json()
        await in_thread_to_the_end(
            lambda: write_json(self._path(record), value, read=type(record).from_json)
        )

    async def forget(self, record: SandboxRecord | SnapshotRecord) -> None:
        await in_thread_to_the_end(lambda: self._forget(record))

    def _forget(self, record: SandboxRecord | SnapshotRecord) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path(record).unlink()
        if isinstance(record, SandboxRecord):
            with contextlib.suppress(FileNotFoundError):
                self.processes_of(record.id).unlink()

    def processes_of(self, id_: str) -> Path:
        """Returns the file that lists the processes of a sandbox."""
        return self._processes / f"{id_}.json"

    def _path(self, record: SandboxRecord | SnapshotRecord) -> Path:
        place = self._sandboxes if isinstance(record, SandboxRecord) else self._snapshots
        return place / f"{record.id}.json"


def new_id() -> str:
    """Returns a new id. It cannot be guessed, and fits with a port into a DNS label."""
    return "i" + "".join(secrets.choice(_DIGITS) for _ in range(ID_LENGTH - 1))


def engine_name(id_: str) -> str:
    """Returns the name in the engine of the sandbox with an id."""
    return NAME_PREFIX + hashlib.sha256(id_.encode("ascii")).hexdigest()[:ID_LENGTH]


def new_token() -> str:
    return secrets.token_hex(24)


def is_id(text: str) -> bool:
    return len(text) == ID_LENGTH and set(text) <= set(_DIGITS)


def _id(text: str) -> str:
    if not is_id(text):
        raise ValueError(f"{text!r:.80} is no id")
    return text


def _versioned(value: dict[str, Any], what: str, newest: int) -> Fields:
    found = Fields(value, what)
    if not SCHEMA <= found.whole("schema_version") <= newest:
        raise ValueError(f"{what}: it is of another version")
    return found


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise ValueError("an object of texts is needed")
    return value

"""Sandboxes on disk: which there are, which run, and clearing up after those that ended badly.

The files are the truth (layout.py). A sandbox runs while somebody holds the lock on its directory:
its keeper, QEMU itself, or the client that is starting it. A lock ends with its holders, so neither
a crash, a reboot nor a reused process id can make a dead sandbox look alive.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.config import SandboxConfig, check_name
from quicksand.errors import (
    ConfigError,
    NameTakenError,
    QuicksandError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.host.files import (
    is_locked,
    lock_within,
    map_os_errors,
    read_json,
    tail,
    write_json,
)
from quicksand.host.paths import Paths, make_private_dir
from quicksand.host.staging import sweep_staging
from quicksand.layout import (
    MachineDir,
    RuntimeDir,
    SandboxDir,
    remove_memory,
    runtime_dir,
    sandbox_dir,
)
from quicksand.saves.source import Source

if TYPE_CHECKING:
    from quicksand.snapshots.history import History

SCHEMA = 1
ID_BYTES = 6
LOCK_WAIT_S = 5.0
NOBODY_TOLD = "nothing tells how it ended: the host went down, or all its processes were killed"
REMOVED = ".removed-"
"""Directories so named are on their way out."""

DISK_FULL = "the host's disk is full: it goes on when there is space"
PANIC_MARK = "Kernel panic - not syncing"


class Status(StrEnum):
    """What a sandbox is doing."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    CRASHED = "crashed"
    """It ended without being asked to."""
    BROKEN = "broken"
    """Its record cannot be read; ``Entry.error`` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What outlives a stop."""

    id: str
    name: str
    config: SandboxConfig
    image_digest: str
    """Identity of the base image's files, "" for images outside the store."""
    chain: tuple[str, ...]
    """The overlay's read-only layers, the root base first: absolute paths."""
    created: float
    """Unix time."""
    committed: bool
    """False while the first start is under way: such a sandbox is cleared up when its starter is
    gone."""
    discard: bool
    """Remove it when it stops."""
    source: Source | None = None
    """The save that it began from."""

    @property
    def began_with(self) -> str:
        """The name of the save or image whose disk it had at first."""
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
        """Raises ValueError naming what is wrong."""
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
                source=Source.from_json(value["source"]),
            )
        except (KeyError, TypeError, OverflowError, ConfigError) as error:
            raise ValueError(f"bad record: {error!r}") from error
        if not math.isfinite(record.created):
            raise ValueError(f"bad record: created is {record.created}")
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What a client needs to use a running sandbox."""

    keeper_pid: int
    qemu_pid: int
    token: str
    """The agent's. Lies in a 0700 directory only."""
    accel: str
    accel_reason: str
    """Why not a faster one; "" if it is the fastest."""
    forwards: tuple[tuple[int, int], ...]
    """(host port, guest port) as they are."""
    http_port: int | None
    run: str
    """Names this run of QEMU."""
    origin: str
    """What it came from: "" for a boot, else the tag of a checkpoint."""
    started: float
    paused: bool
    qemu_command: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA, **{f: getattr(self, f) for f in self.__slots__}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RunState:
        """Raises ValueError."""
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
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"bad state: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One sandbox as it is on disk at this moment."""

    id: str
    name: str
    status: Status
    record: Record | None
    run: RunState | None = None
    error: str = ""
    """Why it is BROKEN or CRASHED, or PAUSED by a full host disk."""

    @property
    def is_live(self) -> bool:
        return self.status in (Status.STARTING, Status.RUNNING, Status.PAUSED)


class Registry:
    """All sandboxes of this user."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self._histories: dict[str, History] = {}

    def history(self, id_: str) -> History:
        """The history of a sandbox; the same object each time, which knows what it has read."""
        from quicksand.snapshots.history import History

        if id_ not in self._histories:
            self._histories[id_] = History(sandbox_dir(self.paths, id_))
        return self._histories[id_]

    def list(self) -> list[Entry]:
        """Every sandbox, oldest first. Never raises for a bad one: it is listed as BROKEN."""
        entries = [e for id_ in self._ids() if (e := self.inspect(id_)) is not None]
        return sorted(entries, key=lambda e: (e.record.created if e.record else 0.0, e.id))

    def find(self, id_or_name: str) -> Entry:
        """The sandbox of that name or id (or an unambiguous start of the id).

        Raises SandboxNotFoundError; the message suggests a near name.
        """
        if is_id(id_or_name) and (known := self.inspect(id_or_name)) is not None:
            return known  # without a look at all the others
        entries = self.list()
        exact = [e for e in entries if id_or_name in (e.name, e.id)]
        if exact:
            return exact[0]
        near = [e for e in entries if len(id_or_name) >= 4 and e.id.startswith(id_or_name)]
        if len(near) == 1:
            return near[0]
        raise self._not_found(id_or_name, [e.name for e in entries])

    @staticmethod
    def _not_found(asked: str, names: builtins.list[str]) -> SandboxNotFoundError:
        import difflib

        close = difflib.get_close_matches(asked, names, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else "`quicksand-tui ps -a` lists them all"
        return SandboxNotFoundError(f"no sandbox is called {asked!r}", hint=hint)

    def inspect(self, id_: str) -> Entry | None:
        """The state of one sandbox, or None if it does not exist (any more)."""
        place = sandbox_dir(self.paths, id_)
        try:
            live = is_locked(place.lock)
            record = Record.from_json(read_json(place.record))
            if record.id != id_:
                raise ValueError(f"bad record: it is of the sandbox {record.id!r}")
        except FileNotFoundError:
            return None  # not yet, or being removed
        except (OSError, ValueError) as error:
            return Entry(id=id_, name=id_, status=Status.BROKEN, record=None, error=str(error))
        if live:
            return self._inspect_live(record)
        if not record.committed:
            return None
        reason = self._crash_reason(place)
        status = Status.CRASHED if reason else Status.STOPPED
        return Entry(id=id_, name=record.name, status=status, record=record, error=reason)

    def _inspect_live(self, record: Record) -> Entry:
        run: RunState | None = None
        machine = runtime_dir(self.paths, record.id).current()
        with contextlib.suppress(OSError, ValueError):
            run = RunState.from_json(read_json(machine.state))
        status, reason = Status.RUNNING, ""
        if run is None:
            status = Status.STARTING
        elif machine.disk_full.exists():
            status, reason = Status.PAUSED, DISK_FULL
        elif run.paused:
            status = Status.PAUSED
        return Entry(
            id=record.id, name=record.name, status=status, record=record, run=run, error=reason
        )

    @staticmethod
    def _crash_reason(place: SandboxDir) -> str:
        """Why the last run ended unasked, or "" if it ended well."""
        try:
            ended = read_json(place.exit)
            panic = find_panic(place)
        except FileNotFoundError:
            # Every run begins its logs, and its keeper's last act is to write how it ended.
            return NOBODY_TOLD if place.qemu_log.exists() else ""
        except (OSError, ValueError) as error:
            return f"how it ended cannot be read: {error}"
        code = ended.get("code")
        if panic:
            return panic
        if ended.get("asked") or code == 0:
            return ""
        if isinstance(code, int) and code < 0:
            with contextlib.suppress(ValueError):
                return f"QEMU was ended by {signal.Signals(-code).name}"
        return f"QEMU ended with status {code}"

    # Making and removing

    def create(self, record: Record) -> int:
        """Make the directory of a new sandbox and lock it; returns the lock's descriptor.

        Raises NameTakenError when another sandbox has the name, PathError, DiskSpaceError.
        """
        check_name(record.name)
        make_private_dir(self.paths.sandboxes)
        place = sandbox_dir(self.paths, record.id)
        with self._names_locked():
            self.reap()
            for other in self.list():
                if record.name in (other.name, other.id):
                    raise NameTakenError(
                        f"the name {record.name!r} is taken by a sandbox that is {other.status}",
                        hint=f"choose another, or `quicksand-tui rm {record.name}` first",
                    )
            with map_os_errors(place.root):
                place.root.mkdir(mode=0o700)
            lock = None
            try:
                with map_os_errors(place.lock):
                    lock = lock_within(place.lock, LOCK_WAIT_S)
                assert lock is not None, "nobody knows this directory yet"
                write_json(place.record, record.to_json())
            except BaseException:
                shutil.rmtree(place.root, ignore_errors=True)
                if lock is not None:
                    os.close(lock)
                raise
        return lock

    def lock(self, id_: str) -> int:
        """Lock a stopped sandbox to start or remove it.

        Raises StateError if it runs, SandboxNotFoundError if it is gone.
        """
        place = sandbox_dir(self.paths, id_)
        lock = None
        if place.root.exists():
            with map_os_errors(place.lock):
                lock = lock_within(place.lock, 0.5)
        if not place.root.exists():
            if lock is not None:
                os.close(lock)
            raise SandboxNotFoundError(f"the sandbox {id_} does not exist any more")
        if lock is None:
            raise StateError("the sandbox is running, or somebody is just starting it")
        return lock

    def save(self, record: Record) -> None:
        """Write a record anew."""
        write_json(sandbox_dir(self.paths, record.id).record, record.to_json())

    def remove(self, id_: str) -> None:
        """Remove a stopped sandbox and its disk. Raises as `lock` does."""
        lock = self.lock(id_)
        try:
            self._remove_locked(id_)
        finally:
            os.close(lock)

    def _remove_locked(self, id_: str) -> None:
        remove_tree(runtime_dir(self.paths, id_).root)
        root = sandbox_dir(self.paths, id_).root
        # It goes as a whole: once its lock file is unlinked, others could lock what is left of it.
        doomed = root.with_name(f"{REMOVED}{new_id()}")
        with map_os_errors(root):
            root.rename(doomed)
        remove_memory(doomed)
        remove_tree(doomed)

    def reap(self) -> builtins.list[str]:
        """Remove what dead owners left: half-made sandboxes, those to be discarded, and runtime
        directories without a machine. Returns the ids. Live ones are never touched, and one that
        cannot be removed is no reason to leave the others."""
        reaped = []
        for id_ in {*self._ids(), *self._runtime_ids()}:
            with contextlib.suppress(QuicksandError, OSError):
                if self._reap_one(id_):
                    reaped.append(id_)
        for doomed in self.paths.sandboxes.glob(f"{REMOVED}*"):
            remove_memory(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
        with contextlib.suppress(QuicksandError, OSError):
            sweep_staging(self.paths.sandboxes)
        return reaped

    def _reap_one(self, id_: str) -> bool:
        place, runtime = sandbox_dir(self.paths, id_), runtime_dir(self.paths, id_)
        if not place.root.exists():
            if not _is_abandoned(runtime):
                return False
            remove_tree(runtime.root)
            return True
        if is_locked(place.lock):
            return False
        if not self._is_leftover(place, patience=LOCK_WAIT_S) and not runtime.root.exists():
            return False
        lock = self.lock(id_)
        try:
            remove_tree(runtime.root)
            # Asked again: somebody may have started it just before we had the lock.
            if self._is_leftover(place, patience=0):
                self._remove_locked(id_)
        finally:
            os.close(lock)
        return True

    @staticmethod
    def _is_leftover(place: SandboxDir, *, patience: float) -> bool:
        try:
            record = Record.from_json(read_json(place.record))
        except FileNotFoundError:
            # Without a record it never was: but its maker may be between two instructions.
            with contextlib.suppress(OSError):
                return time.time() - place.root.stat().st_mtime >= patience
            return False
        except (OSError, ValueError):
            return False  # somebody's data that we cannot read: shown as broken, never removed
        return record.discard or not record.committed

    def _ids(self) -> builtins.list[str]:
        return _subdirectories(self.paths.sandboxes)

    def _runtime_ids(self) -> builtins.list[str]:
        return _subdirectories(self.paths.runtime)

    @contextlib.contextmanager
    def _names_locked(self) -> Iterator[None]:
        path = self.paths.sandboxes / ".names.lock"
        with map_os_errors(path):
            lock = lock_within(path, LOCK_WAIT_S)
        if lock is None:
            raise StateError("another process has been making a sandbox for too long")
        try:
            yield
        finally:
            os.close(lock)


def _is_abandoned(runtime: RuntimeDir) -> bool:
    """Whether no machine uses a runtime directory whose sandbox is not in our data directory: it
    may be in another one (QUICKSAND_DATA_DIR), so what counts is whether its sockets are served."""
    if time.time() - runtime.root.stat().st_mtime < LOCK_WAIT_S:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(runtime.keeper_socket))
        except (FileNotFoundError, ConnectionRefusedError):
            return True
        return False


def new_id() -> str:
    """A fresh sandbox id: 12 hexadecimal digits."""
    return os.urandom(ID_BYTES).hex()


def is_id(text: str) -> bool:
    """Whether it could be one of `new_id`."""
    return len(text) == 2 * ID_BYTES and set(text) <= set("0123456789abcdef")


def find_panic(place: SandboxDir) -> str:
    """The kernel's panic message on the console, or ""."""
    log = tail(place.console_log, limit=16 * 1024)
    if PANIC_MARK not in log:
        return ""
    line = log[log.rindex(PANIC_MARK) :].splitlines()[0]
    return "".join(c if c.isprintable() else "?" for c in line[:200])


def remove_tree(path: Path) -> None:
    """Remove a directory of ours; no error if it is not there."""
    with map_os_errors(path), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def _subdirectories(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
    except FileNotFoundError:
        return []


def publish_state(machine: MachineDir, run: RunState) -> None:
    """Write what clients need to attach; from here on the sandbox is RUNNING."""
    write_json(machine.state, run.to_json(), durable=False)

"""The sandboxes on disk: which exist, which run, and cleaning up after those that ended badly.

The files (layout.py) are the only record. A sandbox is live while a process holds the lock on its
directory: its keeper, QEMU itself, or the client that is starting it. A lock ends with its holders,
so neither a crash, a reboot nor a reused process id can make a dead sandbox look alive.

Some questions about all of them come at each start: which has a name, and which may be left by dead
processes. They are answered by a `Glance` at each record. No index is kept, so none can be wrong:
reading the few fields of a thousand records takes some 15 ms. A glance is only a reason to look
properly (`Registry.inspect`).
"""

from __future__ import annotations

import builtins
import contextlib
import difflib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from quicksand.base.ageing import NOTE
from quicksand.base.effort import best_effort
from quicksand.base.errors import (
    NameTakenError,
    PathError,
    QuicksandError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.base.files import is_locked, lock_within, map_os_errors, read_json, write_json
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.processes import is_same_place, processes_of
from quicksand.base.regular import NotAFileError
from quicksand.base.remedies import Remedy, Words
from quicksand.base.removal import belongs_to, make_marked, remove, require_ours, why_not_ours
from quicksand.base.staging import sweep_staging
from quicksand.records.config import SandboxConfig, check_name
from quicksand.records.host_sockets import ours_beside_sandboxes
from quicksand.records.inspection import Held, inspect, say_held, write_end
from quicksand.records.layout import (
    MachineDir,
    SandboxDir,
    remove_elsewhere,
    runtime_dir,
    sandbox_dir,
)
from quicksand.records.sandboxes import LOCK_WAIT_S, Entry, Record, RunState, is_id
from quicksand.records.trash import REMOVED, Trash, remove_for_good, remove_tree, trash_dir


class Glance(NamedTuple):
    """The few facts of a sandbox's record that every other start needs."""

    id: str
    name: str
    """Its recorded name; "" if none can be read."""
    may_be_left: bool
    """Whether it is removed if nobody runs it: it is ephemeral, has never started, or has no record
    yet. A sandbox with a damaged record stays."""


def glance_at_all(sandboxes: Path) -> Iterator[Glance]:
    """Yield a glance at each directory that is named as a sandbox. Blocks for small files."""
    place, name = os.fspath(sandboxes), SandboxDir(sandboxes).record.name
    for id_ in ids_in(sandboxes):
        try:
            record = read_json(f"{place}/{id_}/{name}")
        except FileNotFoundError:
            yield Glance(id_, "", True)
        except (OSError, ValueError):
            yield Glance(id_, "", False)
        else:
            stays = record.get("committed") is True and record.get("discard") is False
            yield Glance(id_, str(record.get("name")), not stays)


def ids_in(place: Path) -> list[str]:
    """The names in a directory that are ids of sandboxes; none if there is no such directory."""
    return [name for name in names_in(place) if is_id(name)]


def names_in(place: Path) -> list[str]:
    """The names in a directory; none if there is no such directory."""
    try:
        with os.scandir(place) as found:
            return [one.name for one in found]
    except (FileNotFoundError, NotADirectoryError):
        return []


T = TypeVar("T")


class LockUnusableError(PathError):
    """Raised when the thing with a lock's name is not a file, so that nobody holds it."""


class Registry:
    """All sandboxes of this user."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self._kept: dict[tuple[object, str], Any] = {}
        self._last_named: dict[str, str] = {}
        """The last id that `named` has found, by name."""
        self.expired: tuple[str, ...] = ()
        """Names of the sandboxes that `reap` has removed from the trash for good."""

    def kept(self, kind: Callable[[SandboxDir], T], id_: str) -> T:
        """Return the result of ``kind`` for a sandbox's directory: the same object each time."""
        if (kind, id_) not in self._kept:
            self._kept[kind, id_] = kind(self.place(id_))
        made: T = self._kept[kind, id_]
        return made

    def place(self, id_: str) -> SandboxDir:
        """The directory of a sandbox."""
        return sandbox_dir(self.paths, id_)

    def machine(self, id_: str) -> MachineDir:
        """The directory of a sandbox's running QEMU; it does not exist if none runs."""
        return runtime_dir(self.paths, id_).current()

    def is_live(self, id_: str) -> bool:
        """Whether the sandbox runs or is starting."""
        return is_locked(sandbox_dir(self.paths, id_).lock)

    def list(self) -> list[Entry]:
        """Every sandbox, oldest first. One that cannot be read is listed as BROKEN, not raised."""
        known: dict[str, SandboxConfig] = {}
        found = (inspect(self.paths, id_, known) for id_ in self._ids())
        entries = [entry for entry in found if entry is not None]
        return sorted(entries, key=lambda e: (e.record.created if e.record else 0.0, e.id))

    def list_live(self) -> builtins.list[Entry]:
        """Return the sandboxes that run or start, in no order. Stopped ones cost little more than a
        look at their locks."""
        found = []
        for id_ in self._ids():
            with contextlib.suppress(OSError):  # whose lock is none is broken, and nobody holds it
                if self.is_live(id_) and (entry := self.inspect(id_)) is not None:
                    found.append(entry)
        return [entry for entry in found if entry.is_live]

    def names(self) -> set[str]:
        """Return the names that sandboxes have, and perhaps some that are free by now."""
        return {glance.name for glance in self._glances()}

    def find(self, id_or_name: str) -> Entry:
        """The sandbox with that name or id, or an unambiguous prefix of the id, at least 4 digits.

        Raises SandboxNotFoundError, whose hint suggests a similar name.
        """
        if is_id(id_or_name) and (known := self.inspect(id_or_name)) is not None:
            return known  # the others need not be read
        if (named := self.named(id_or_name)) is not None:
            return named
        entries = self.list()
        near = [e for e in entries if len(id_or_name) >= 4 and e.id.startswith(id_or_name)]
        if len(near) == 1:
            return near[0]
        raise self._not_found(id_or_name, [e.name for e in entries])

    def named(self, name: str) -> Entry | None:
        """Return the sandbox with exactly that name; None if there is none, whatever the ids."""
        # The last known owner of the name usually still has it.
        before = self._last_named.get(name)
        likely = (glance.id for glance in self._glances() if glance.name == name)
        for id_ in likely if before is None else itertools.chain((before,), likely):
            known = self.inspect(id_)
            if known is not None and known.name == name:
                self._last_named[name] = id_
                return known
        self._last_named.pop(name, None)
        return None

    def _not_found(self, asked: str, names: builtins.list[str]) -> SandboxNotFoundError:
        if any(asked in (trashed.id, trashed.name) for trashed in Trash(self.paths).list()):
            return SandboxNotFoundError(
                f"the sandbox {asked!r} is in the trash",
                hint=Words(Remedy("restore", name=asked), " brings it back"),
            )
        close = difflib.get_close_matches(asked, names, n=1, cutoff=0.5)
        lists = Words(Remedy("list"), " lists them all")
        hint = f"did you mean {close[0]!r}?" if close else lists
        return SandboxNotFoundError(f"no sandbox is called {asked!r}", hint=hint)

    def inspect(self, id_: str) -> Entry | None:
        """The state of one sandbox; None if it does not exist."""
        return inspect(self.paths, id_)

    # Making and removing

    def create(self, record: Record, *, unlisted: bool = False) -> int:
        """Create the directory of a new sandbox and lock it; returns the lock's descriptor. One
        that is ``unlisted`` gets no record and takes no name (a spare, for instance).

        Raises NameTakenError if another sandbox has the name, ConfigError for a bad name,
        StateError, PathError, DiskSpaceError.
        """
        check_name(record.name)
        make_private_dir(self.paths.sandboxes)
        place = sandbox_dir(self.paths, record.id)
        with self._names_locked():
            glances = [*self._glances()]
            self._reap(glances)
            self._expire()
            if not unlisted:
                self._require_free(record.name, glances, hint=taken_hint(record.name))
            with map_os_errors(place.root):
                make_marked(place.root)
            lock = None
            try:
                place.put_elsewhere(record.config.places, record.id)
                with map_os_errors(place.lock):
                    lock = lock_within(place.lock, LOCK_WAIT_S)
                assert lock is not None, "nobody knows this directory yet"
                if not unlisted:
                    write_json(place.record, record.to_json(), read=Record.from_json)
            except BaseException:
                with contextlib.suppress(OSError):  # the next reaping takes it
                    remove_elsewhere(place.root)
                    remove(place.root)
                if lock is not None:
                    os.close(lock)
                raise
        return lock

    @contextlib.contextmanager
    def giving_name(self, name: str, *, hint: Words) -> Iterator[None]:
        """Reserve a name within the block. Raises NameTakenError, with ``hint``, if a sandbox has
        it, StateError if the lock on names is held for too long."""
        with self._names_locked():
            self._require_free(name, self._glances(), hint=hint)
            yield

    def _require_free(self, name: str, glances: Iterable[Glance], *, hint: Words) -> None:
        """Raise if a name is taken. Names that differ only in capitals are one: they are host names
        for ssh, which does not tell them apart when it looks for a connection to reuse."""
        wanted = name.casefold()
        for glance in glances:
            # Only the sandbox with the name is inspected: with hundreds of them that takes a while.
            if wanted in (glance.id, glance.name.casefold()):
                other = self.inspect(glance.id)
                if other is None or wanted not in (other.name.casefold(), other.id):
                    continue
                if name in (other.name, other.id):
                    raise NameTakenError(
                        f"the name {name!r} is taken by a sandbox that is {other.status}", hint=hint
                    )
                raise NameTakenError(
                    f"the name {name!r} differs in capitals alone from that of the sandbox "
                    f"{other.name!r}, and ssh does not tell them apart",
                    hint="choose another name",
                )

    def lock(self, id_: str) -> int:
        """Lock a stopped sandbox to start it or to work on it; returns the lock's descriptor.

        Raises StateError if it is running or starting, SandboxNotFoundError if it is gone,
        PathError.
        """
        place = sandbox_dir(self.paths, id_)
        lock = None
        if place.root.exists():
            with map_os_errors(place.lock):
                # It would be created, which must never happen in a stranger's directory.
                if not os.path.lexists(place.lock):
                    require_ours(place.root)
                lock = self._take(place)
        if not place.root.exists():
            if lock is not None:
                os.close(lock)
            raise SandboxNotFoundError(f"the sandbox {id_} does not exist any more")
        if lock is None:
            raise StateError("the sandbox is running, or somebody is working on it")
        if place.record.exists():  # without one it is a leftover, which only an empty lock may have
            say_held(lock, Held.WORK)
        return lock

    def _take(self, place: SandboxDir) -> int | None:
        try:
            return lock_within(place.lock, 0.5)
        except NotAFileError as error:
            name = place.root.name
            with contextlib.suppress(OSError, ValueError):
                name = str(read_json(place.record)["name"])
            raise LockUnusableError(
                f"{place.lock} cannot be locked: {error.strerror}",
                hint=Words(
                    "move it away, and a new one is made; or remove the sandbox: ",
                    Remedy("end_and_trash", name=name),
                ),
            ) from error

    def save(self, record: Record) -> None:
        """Write a record to disk. Raises DiskSpaceError, PathError."""
        place = sandbox_dir(self.paths, record.id)
        write_json(place.record, record.to_json(), read=Record.from_json)

    @contextlib.contextmanager
    def holding(self, id_: str, *, stuck: bool = False) -> Iterator[None]:
        """Lock a stopped sandbox within the block. With ``stuck`` a sandbox is accepted even
        without its lock if another program still holds that but none of its processes is left.
        Raises as `lock`."""
        lock = None
        try:
            lock = self.lock(id_)
        except (StateError, LockUnusableError):
            if not stuck or processes_of(sandbox_dir(self.paths, id_).root):
                raise
        try:
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def remove(self, id_: str, *, stuck: bool = False) -> None:
        """Remove a stopped sandbox and its disk for good; ``stuck`` as for `holding`. Raises as
        `lock`, and PathError if the directory lacks quicksand's mark."""
        with self.holding(id_, stuck=stuck):
            self._remove_locked(id_)

    def tidy(self, id_: str) -> None:
        """Clean up after a sandbox that was stopped, in place of a keeper that was killed: record
        that it was asked to end, and remove its runtime directory. Does nothing if it runs or
        another process holds its lock."""
        place, runtime = sandbox_dir(self.paths, id_), runtime_dir(self.paths, id_)
        if place.exit.exists() and not runtime.root.exists():
            return
        with best_effort("clean up after its end", place.engine_log, QuicksandError):
            lock = self.lock(id_)
            try:
                if not place.exit.exists() and place.qemu_log.exists():
                    name = runtime.current().name if runtime.current().root.exists() else ""
                    ended = {"code": None, "asked": True, "machine": name, "unix_time": time.time()}
                    write_end(place, ended)
                self.clear_runtime(id_)
            finally:
                os.close(lock)

    def clear_runtime(self, id_: str) -> None:
        """Remove the runtime directory that an earlier run has left. The caller holds the sandbox's
        lock. Raises PathError, also if a sandbox in another data directory uses it."""
        runtime = runtime_dir(self.paths, id_)
        with map_os_errors(runtime.root), contextlib.suppress(FileNotFoundError):
            of = belongs_to(runtime.root)
            if of and not is_same_place(of, runtime.of):
                raise PathError(
                    f"{runtime.root} is in use for the sandbox in {of}",
                    hint="a copy of a data directory needs a QUICKSAND_RUNTIME_DIR of its own",
                )
            remove(runtime.root)

    def _remove_locked(self, id_: str) -> None:
        with best_effort(f"remove what {id_} had while it ran", self.paths.engine_log, PathError):
            self.clear_runtime(id_)
        remove_for_good(self.paths, sandbox_dir(self.paths, id_).root)

    def reap(self) -> builtins.list[str]:
        """Remove the remains of dead processes: unfinished sandboxes, ephemeral sandboxes that have
        stopped, and runtime directories without a machine. Returns their ids. Live sandboxes and
        directories without quicksand's mark (see `strangers`) are never touched. If one cannot be
        removed, the others still are."""
        reaped = self._reap(self._glances())
        self._expire()
        return reaped

    def _reap(self, glances: Iterable[Glance]) -> builtins.list[str]:
        """As `reap`, but without the trash. Most sandboxes have stopped as they should, and are not
        examined further."""
        suspects = {glance.id for glance in glances if glance.may_be_left}
        reaped = []
        for id_ in suspects.union(ids_in(self.paths.runtime)):
            with best_effort(f"remove what {id_} has left", self.paths.engine_log):
                if self._reap_one(id_):
                    reaped.append(id_)
        for name in names_in(self.paths.sandboxes):
            if name.startswith(REMOVED):
                with contextlib.suppress(OSError):
                    require_ours(self.paths.sandboxes / name)
                    remove_elsewhere(self.paths.sandboxes / name)
                    remove(self.paths.sandboxes / name)
        with best_effort("remove unfinished imports", self.paths.engine_log):
            sweep_staging(self.paths.sandboxes, forget=remove_elsewhere)
        return reaped

    def _expire(self) -> None:
        with best_effort("empty the trash of what is due", self.paths.engine_log):
            self.expired += tuple(gone.name for gone in Trash(self.paths).expire())

    def _reap_one(self, id_: str) -> bool:
        place, runtime = sandbox_dir(self.paths, id_), runtime_dir(self.paths, id_)
        of = belongs_to(runtime.root) if runtime.root.exists() else ""
        if not place.root.exists() or (of and not is_same_place(of, place.root)):
            # It belongs to another data directory, unless that is gone.
            return self._reap_orphan(runtime.root, of)
        if is_locked(place.lock):
            return False
        if not self._is_leftover(place, patience=LOCK_WAIT_S) and not runtime.root.exists():
            return False
        lock = self.lock(id_)
        try:
            self.clear_runtime(id_)
            # Checked again: it may have been started just before this process got the lock.
            if self._is_leftover(place, patience=0):
                self._remove_locked(id_)
        finally:
            os.close(lock)
        return True

    @staticmethod
    def _reap_orphan(root: Path, of: str) -> bool:
        """Remove the runtime directory of a sandbox that is gone, unless a process of it runs."""
        if of and (Path(of).exists() or processes_of(of)):
            return False
        if time.time() - root.stat().st_mtime < LOCK_WAIT_S:
            return False
        remove_tree(root)
        return True

    def strangers(self) -> dict[Path, str]:
        """Return directories among the sandboxes' that lack quicksand's mark: path -> the fault.
        They are never touched."""
        found = {}
        beside = ours_beside_sandboxes(self.paths.runtime)
        roots = [self.paths.runtime, self.paths.sandboxes, trash_dir(self.paths)]
        roots += [self.paths.memory] if self.paths.memory is not None else []
        for root in roots:
            for name in names_in(root):
                path = root / name
                ours = name.startswith(".") and root == self.paths.sandboxes
                ours = ours or (root == self.paths.runtime and name in beside)
                ours = ours or (name == NOTE and root == trash_dir(self.paths))
                if not ours and (why := why_not_ours(path)):
                    found[path] = why
        return found

    @staticmethod
    def _is_leftover(place: SandboxDir, *, patience: float) -> bool:
        try:
            record = Record.from_json(read_json(place.record))
        except FileNotFoundError:
            # Without a record it was never finished; but it may be in the making at this moment.
            with contextlib.suppress(OSError):
                return time.time() - place.root.stat().st_mtime >= patience
            return False
        except (OSError, ValueError):
            return False  # user data that cannot be read: shown as broken, never removed
        return record.discard or not record.committed

    def _ids(self) -> builtins.list[str]:
        return ids_in(self.paths.sandboxes)

    def _glances(self) -> Iterator[Glance]:
        return glance_at_all(self.paths.sandboxes)

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


def taken_hint(name: str) -> Words:
    """Return the hint for a name that another sandbox already has."""
    return Words("choose another, or ", Remedy("trash", name=name), " first")


def publish_state(machine: MachineDir, run: RunState) -> None:
    """Write state.json, which clients need to attach; from here on the sandbox is RUNNING. Raises
    DiskSpaceError, PathError."""
    write_json(machine.state, run.to_json(), read=RunState.from_json, durable=False)

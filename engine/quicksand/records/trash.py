"""The trash: sandboxes that were removed but can be brought back, with disks and checkpoints.

::

    <data>/sandboxes/.trash/<id>/    the directory of a sandbox as it was, and trash.json: the name
                                     that it had, when and why it was removed

One rename under the sandbox's lock moves it here, and one moves it back, so it is always in exactly
one of the two places. Memory files elsewhere (QUICKSAND_MEMORY_DIR) stay where they are, and the
link to them stays with the sandbox. The names of sandboxes in the trash are free for others.
"""

from __future__ import annotations

import builtins
import contextlib
import difflib
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from quicksand.base.ageing import confirm, youngest
from quicksand.base.errors import ConfigError, QuicksandError, SandboxNotFoundError, StateError
from quicksand.base.files import lock_within, map_os_errors, read_json
from quicksand.base.footprint import Footprint
from quicksand.base.paths import Paths
from quicksand.base.regular import NotAFileError
from quicksand.base.remedies import Remedy, Words
from quicksand.base.removal import remove, require_ours
from quicksand.records.config import check_name
from quicksand.records.inspection import Held, say_held
from quicksand.records.layout import SandboxDir, elsewhere, remove_elsewhere
from quicksand.records.sandboxes import LOCK_WAIT_S, Record, is_id
from quicksand.things.frozen import frozen
from quicksand.things.save import TrashFacts

TRASH = ".trash"
REMOVED = ".removed-"
"""Prefix of directories that are being removed for good."""

TRASH_KEPT_S = 7 * 86400
"""Seconds for which removed sandboxes and saves are kept."""


@frozen
class TrashedSandbox:
    """A sandbox in the trash."""

    id: str
    name: str
    """The name that it had."""
    removed: float
    """Unix time."""
    why: str
    instant: str
    """The id of the last checkpoint that was taken when it was removed, or ""."""
    record: Record | None
    """The record; None if it cannot be read."""
    is_dated: bool
    """Whether ``removed`` was recorded; if not, it is a guess, and the entry never expires."""
    root: Path = field(repr=False)

    @property
    def until(self) -> float:
        """Unix time after which it may go for good."""
        return self.removed + TRASH_KEPT_S

    def is_overdue(self, now: float) -> bool:
        """Whether it may go at that time (Unix). Blocks for I/O."""
        if now <= self.until:
            return False
        try:
            inside = [*self.root.iterdir()]
        except OSError:  # its age is unknown
            return False
        return now - youngest(self.removed, inside, now) > TRASH_KEPT_S

    @property
    def footprint(self) -> Footprint:
        """The space it occupies, with memory files elsewhere. Blocks for I/O."""
        return Footprint(*self.places)

    @property
    def facts(self) -> TrashFacts:
        """Its facts, with its sizes. Blocks for I/O."""
        footprint = self.footprint
        return TrashFacts(
            kind="sandbox",
            id=self.id,
            name=self.name,
            path=str(self.root),
            root=str(self.root),
            removed=self.removed,
            until=self.until,
            own=footprint.own,
            shared=footprint.shared,
            shared_files=footprint.shared_files,
            note=self.why,
            instant=self.instant,
            error="" if self.record is not None else "its record cannot be read",
        )

    @property
    def places(self) -> tuple[Path, ...]:
        """The directories of this entry."""
        return (self.root, *elsewhere(self.root))


@frozen
class RemovedSandbox:
    """The result of removing a sandbox."""

    id: str
    name: str
    trashed: TrashedSandbox | None
    """Its entry in the trash; None if it is deleted for good."""
    ran: bool = False
    not_kept: str = ""
    """The reason why no last checkpoint of a running sandbox could be taken, so that only its disk
    is kept; "" if one was taken."""


class Trash:
    """The sandboxes in the trash: listing them, removing them for good."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.root = trash_dir(paths)

    def list(self) -> builtins.list[TrashedSandbox]:
        """The sandboxes in the trash, the most recently removed last; damaged ones too."""
        found = []
        for id_ in self._ids():
            with contextlib.suppress(OSError):  # another process may just be removing it
                found.append(self._look_at(id_))
        return sorted(found, key=lambda trashed: (trashed.removed, trashed.id))

    def _ids(self) -> builtins.list[str]:
        if self.root.is_symlink():
            return []  # quicksand never makes it a link
        try:
            with os.scandir(self.root) as entries:
                return [
                    e.name for e in entries if is_id(e.name) and e.is_dir(follow_symlinks=False)
                ]
        except OSError:
            return []

    def _look_at(self, id_: str) -> TrashedSandbox:
        place = SandboxDir(self.root / id_)
        record: Record | None = None
        with contextlib.suppress(OSError, ValueError):
            record = Record.from_json(read_json(place.record))
        name, why, instant = record.name if record is not None else id_, "", ""
        # The time of the rename, in case trash.json cannot be read.
        removed, is_dated = place.root.stat().st_ctime, False
        with contextlib.suppress(
            OSError, ValueError, KeyError, TypeError, OverflowError, ConfigError
        ):
            about = read_json(place.trashed)
            when = when_removed(about)
            if about["id"] == id_:
                removed, is_dated = when, True
            why, instant = str(about["why"]), str(about["instant"])
            name = check_name(about["name"])
        return TrashedSandbox(
            id=id_,
            name=name,
            removed=removed,
            why=why,
            instant=instant,
            record=record,
            is_dated=is_dated,
            root=place.root,
        )

    def find(self, id_or_name: str) -> TrashedSandbox:
        """The sandbox with that id, or the most recently removed one with that name. Raises
        SandboxNotFoundError, whose hint suggests a similar name."""
        found = self.list()
        wanted = [t for t in found if id_or_name == t.id] or [
            t for t in found if id_or_name == t.name
        ]
        if wanted:
            return wanted[-1]
        raise self._not_found(id_or_name, [t.name for t in found])

    @staticmethod
    def _not_found(asked: str, names: builtins.list[str]) -> SandboxNotFoundError:
        hint: str | Words = "it is empty"
        if close := difflib.get_close_matches(asked, names, n=1):
            hint = f"did you mean {close[0]!r}?"
        elif names:
            there = ", ".join(map(repr, sorted({*names})))
            hint = Words(Remedy("list_trash"), " lists what is in it", python=f"there are {there}")
        return SandboxNotFoundError(f"there is no sandbox {asked!r} in the trash", hint=hint)

    @contextlib.contextmanager
    def locked(self, found: TrashedSandbox) -> Iterator[None]:
        """Lock a sandbox in the trash within the block. Raises SandboxNotFoundError if it is gone,
        StateError if another program works on it, HostError."""
        lock, unusable = None, False
        if found.root.exists():
            with map_os_errors(found.root):
                require_ours(found.root)  # or else a lock would be made in it
                try:
                    lock = lock_within(SandboxDir(found.root).lock, LOCK_WAIT_S)
                except NotAFileError:
                    unusable = True  # so nobody holds it
        try:
            if not found.root.exists():
                raise SandboxNotFoundError(f"the sandbox {found.name!r} is no longer in the trash")
            if lock is None and not unusable:
                raise StateError(f"another program is working on {found.name!r} in the trash")
            if lock is not None:
                say_held(lock, Held.WORK)
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def empty(self, ids: builtins.list[str]) -> builtins.list[TrashedSandbox]:
        """Remove the sandboxes with these ids for good; returns those that were removed. It is no
        error if some are gone already. Raises HostError, StateError if one cannot be removed, after
        removing the others."""
        if not ids:
            return []
        gone: builtins.list[TrashedSandbox] = []
        failure: QuicksandError | None = None
        for found in self.list():
            if found.id in ids:
                try:
                    with self.locked(found):
                        remove_for_good(self._paths, found.root)
                        gone.append(found)
                except SandboxNotFoundError:
                    continue
                except QuicksandError as error:
                    failure = failure or error
        if failure is not None:
            raise failure
        return gone

    def expire(self, now: float | None = None) -> builtins.list[TrashedSandbox]:
        """Remove for good the sandboxes that have been here for longer than TRASH_KEPT_S, and were
        found so a day ago, too (base/ageing.py). Raises as `empty`."""
        now = time.time() if now is None else now
        overdue = [t.id for t in self._long_there(now) if t.is_dated and t.is_overdue(now)]
        return self.empty(confirm(self.root, overdue, now))

    def _long_there(self, now: float) -> Iterator[TrashedSandbox]:
        """Yield those that have been here for long by their trash.json alone, or whose trash.json
        cannot be read. Each start calls this, so the others are not examined further."""
        for id_ in self._ids():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, OverflowError):
                about = read_json(SandboxDir(self.root / id_).trashed)
                if now - when_removed(about) <= TRASH_KEPT_S:
                    continue
            with contextlib.suppress(OSError):  # another process may just be removing it
                yield self._look_at(id_)


def when_removed(about: Mapping[str, Any]) -> float:
    """Return the Unix time in a `trash.json`. Raises KeyError, TypeError, ValueError,
    OverflowError."""
    when = float(about["removed"])
    if not math.isfinite(when):
        raise ValueError(when)
    return when


def trash_dir(paths: Paths) -> Path:
    return paths.sandboxes / TRASH


def remove_for_good(paths: Paths, root: Path) -> None:
    """Remove the directory of a sandbox, in the trash or not, whose lock the caller holds. Raises
    PathError, also if it lacks quicksand's mark."""
    # Renamed first: once its lock file is unlinked, others could lock the rest of it.
    doomed = paths.sandboxes / f"{REMOVED}{root.name}"
    with map_os_errors(root):
        require_ours(root)
        root.rename(doomed)
    remove_elsewhere(doomed)
    remove_tree(doomed)


def remove_tree(path: Path) -> None:
    """Remove a directory; it is no error if it does not exist. Raises PathError, also if it lacks
    quicksand's mark."""
    with map_os_errors(path):
        remove(path)

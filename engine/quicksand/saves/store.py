"""A store: a directory with saves, in which they are published, found and moved to the trash.

::

    <root>/<name>/manifest.json, overlays/0.qcow2 …    a save; never changed once it is there
    <house>/.lock                   flock'ed by the process that adds or removes saves
    <house>/.making-<random>/       an unfinished save; its maker holds a lock in it
    <house>/.ready-<random>/save/   a finished save that is getting its name (in ready.json)
    <house>/.trash/<random>/save/   a removed or replaced save; trash.json has its name and the time
    <house>/.trash/overdue.json     since when which of those are known to be due (base/ageing.py)
    <house>/.gone-<random>/         what is being removed for good

``root`` is the user's own saves, ``./.quicksand/sandboxes``, or any directory that was given as a
workspace. The latter may contain other things, so everything but the saves is in a subdirectory
there, the ``house``; otherwise the house is the root. At any time a name leads to the old save or
to the new one: they are exchanged by one rename (renameat2(2), RENAME_EXCHANGE) where the system
supports that.
"""

from __future__ import annotations

import builtins
import contextlib
import difflib
import os
import secrets
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quicksand.base.ageing import confirm
from quicksand.base.errors import ConfigError, HostError, PathError, SaveError, SaveNotFoundError
from quicksand.base.exchange import exchange
from quicksand.base.files import lock_within, map_os_errors, read_json, sync_dir, write_json
from quicksand.base.footprint import Footprint
from quicksand.base.paths import make_private_dir
from quicksand.base.remedies import Remedy, Words
from quicksand.base.removal import make_marked, mark, marked_id
from quicksand.base.staging import remove_abandoned, staging
from quicksand.records.trash import TRASH, TRASH_KEPT_S, when_removed
from quicksand.saves.proof import (
    GONE,
    OURS,
    is_own_dir,
    own_directories,
    refuse_precious,
    remove_tree,
    why_no_save,
)
from quicksand.saves.save_manifest import (
    MANIFEST,
    OVERLAYS,
    Save,
    check_save_name,
    load_save,
    require_file,
)
from quicksand.saves.save_places import HOUSE, READY
from quicksand.things.save import TrashFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Trashed:
    """A save in the trash."""

    id: str
    """The id of the entry in the trash."""
    save: Save
    removed: float
    """Unix time."""
    root: Path = field(repr=False)
    was_save: bool = True
    """Whether it is a save. Otherwise it was replaced by a save: nothing removes it for good, since
    the mark of the entry around it does not prove that it is ours."""

    @property
    def facts(self) -> TrashFacts:
        """Its facts, with its sizes. Blocks for I/O."""
        footprint, manifest = Footprint(self.root), self.save.manifest
        return TrashFacts(
            id=self.id,
            name=self.save.name,
            path=str(self.root),
            root=str(self.save.root),
            removed=self.removed,
            until=self.removed + TRASH_KEPT_S if self.was_save else None,
            own=footprint.own,
            shared=footprint.shared,
            shared_files=footprint.shared_files,
            note="" if manifest is None else manifest.note,
            error=self.save.error,
        )


class SaveTrash:
    """The trash of one store. Whoever changes it holds the store's lock."""

    def __init__(self, house: Path, *, is_kept: bool) -> None:
        """``house``: the store's directory for its own work. Unless ``is_kept``, because this user
        has saved there, its trash counts as empty."""
        self.path = house / TRASH
        self._house = house
        self._is_kept = is_kept

    def add(self, root: Path, name: str) -> Trashed:
        """Move the directory at ``root`` to the trash under that name. Raises HostError."""
        entry = make_private_dir(self.path) / secrets.token_hex(6)
        about = {
            "id": entry.name,
            "name": name,
            "removed": time.time(),
            "save": not why_no_save(root),
        }
        try:
            with map_os_errors(entry):
                make_marked(entry)
                write_json(entry / "trash.json", about)
                root.rename(entry / "save")
        except HostError:
            remove_tree(entry)
            raise
        sync_dir(entry)
        return _read(entry)

    def list(self) -> builtins.list[Trashed]:
        """The contents of the trash, the most recently removed last."""
        found = []
        for entry in self.entries():
            # Another process may just be removing it.
            with contextlib.suppress(OSError):
                if os.path.lexists(entry / "save"):
                    found.append(_read(entry))
        return sorted(found, key=lambda trashed: trashed.removed)

    def entries(self) -> builtins.list[Path]:
        """Return the directories in the trash; only those of this user that were made by a
        store."""
        is_ours = self._is_kept and is_own_dir(self._house) and is_own_dir(self.path)
        return own_directories(self.path) if is_ours else []


def _read(entry: Path) -> Trashed:
    # Its contents decide, too: earlier versions may have moved other things there.
    was_save = not why_no_save(entry / "save")
    try:
        about = read_json(require_file(entry / "trash.json"))
        was_save = was_save and about.get("save") is not False
        name, removed = check_save_name(about["name"]), when_removed(about)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        # The process that removed it was killed between two writes; the save is complete.
        name, removed = entry.name, entry.stat().st_mtime
    return Trashed(
        id=entry.name,
        save=load_save(entry / "save", name),
        removed=removed,
        root=entry,
        was_save=was_save,
    )


LOCK_WAIT_S = 10.0
"""Seconds to wait for the store's lock, which is held only for renames."""

LOCK = ".lock"

MAKING = ".making-"


class SaveStore:
    """The saves under one directory, which need not exist."""

    def __init__(self, root: Path, *, is_shared: bool = False, is_kept: bool = True) -> None:
        """``is_shared``: ``root`` may contain other things too. ``is_kept``: this user has saved
        there; if not, reading the store changes nothing in it."""
        self.root = root.absolute()
        self.is_shared = is_shared
        self.is_kept = is_kept
        self.house = self.root / HOUSE if is_shared else self.root
        self._trash = SaveTrash(self.house, is_kept=is_kept)

    def list(self) -> builtins.list[Save]:
        """All saves, sorted by name; the ``error`` of one that cannot be used says why."""
        with contextlib.suppress(HostError, SaveError):  # the next change of the store reports it
            self._finish_others()
        found = [load_save(self.root / name) for name in self._names()]
        return [save for save in found if save.identity is not None]

    def roots(self) -> builtins.list[Path]:
        """The directories of all saves."""
        return [self.root / name for name in self._names()]

    def left_behind(self) -> builtins.list[Path]:
        """Paths in the house that are neither saves nor trash: unfinished work."""
        if not is_own_dir(self.house):
            return []
        hidden = sorted(path for path in self.house.iterdir() if path.name.startswith("."))
        return [path for path in hidden if path.name not in (TRASH, LOCK, HOUSE)]

    def _names(self) -> builtins.list[str]:
        try:
            with os.scandir(self.root) as entries:
                found = [Path(entry.path) for entry in entries if entry.is_dir()]
        except OSError:
            return []
        return sorted(path.name for path in found if self._holds(path))

    def _holds(self, path: Path) -> bool:
        """Whether ``path`` counts as a save."""
        marks = (MANIFEST, OVERLAYS) if self.is_shared else ()
        try:
            is_there = path.is_dir() and all((path / mark).exists() for mark in marks)
        except OSError:  # it cannot be entered
            return False
        return is_there and not path.name.startswith(".")

    def get(self, name: str) -> Save | None:
        """The save ``name``, with sizes and headers checked; None if there is none."""
        try:
            root = self.root / check_save_name(name)
        except ConfigError:
            return None
        if not self._holds(root):
            self._finish_others()
        if not self._holds(root):
            return None
        save = load_save(root)
        return save if save.identity is not None else None

    def _finish_others(self) -> None:
        """Give finished saves their names, whether their makers are dead or alive."""
        if self._in_house(READY):
            self.recover()

    def find(self, name: str) -> Save:
        """Like `get`, but raises SaveNotFoundError, whose hint suggests a similar name."""
        save = self.get(name)
        if save is None:
            raise self._not_found(name)
        return save

    def _not_found(self, name: str) -> SaveNotFoundError:
        close = difflib.get_close_matches(name, self._names(), n=1)
        lists = Words(Remedy("list_saves"), " lists them")
        hint = f"did you mean {close[0]!r}?" if close else lists
        return SaveNotFoundError(f"there is no save {name!r} in {self.root}", hint=hint)

    @contextlib.contextmanager
    def making(self) -> Iterator[Path]:
        """A directory for an unfinished save, on the store's file system. It is removed at the end
        of the block unless `publish` has taken it; if this process dies, the next one removes it.
        Raises HostError, SaveError if another program holds the store's lock for too long."""
        with self._locked():
            self._recover_all()
        with staging(self.house, prefix=MAKING, gate=self._locked) as made:
            with map_os_errors(made):
                (made / OVERLAYS).mkdir(mode=0o700)
            yield made

    def publish(self, made: Path, name: str, *, replace: bool) -> Save:
        """Give the finished save in ``made`` (from `making`), with its manifest and synced files,
        its name. An older thing with the name goes to the trash.

        Raises ConfigError for a bad name; SaveError if the name is taken and ``replace`` is false,
        or taken by something precious (precious.py); PathError, DiskSpaceError. The name then still
        leads to the old thing or, if only the last sync failed, to the new save.
        """
        with self._locked():
            self.check_target(name, replace=replace)
            target = self.root / name
            ready = self.house / f"{READY}{secrets.token_hex(6)}"
            is_first, inode = not os.path.lexists(target), _inode(made)
            try:
                with map_os_errors(target):
                    make_marked(ready)
                    # A rename keeps the inode, so `recover` can tell the new save from the old.
                    write_json(ready / "ready.json", {"name": name, "inode": inode})
                    mark(made, as_=secrets.token_hex(6))
                    made.rename(ready / "save")
                    sync_dir(ready)
                    sync_dir(self.house)
                self._finish(ready, name)
            except HostError:
                now = _inode(target)
                # If the name leads to neither the old save nor the new one, `recover` must finish.
                if now != inode and (is_first or now is not None):
                    remove_tree(ready)
                raise
        return load_save(target)

    def check_target(self, name: str, *, replace: bool) -> None:
        """Check that a save may get this name. Raises ConfigError, SaveError as `publish`."""
        target = self.root / check_save_name(name)
        if os.path.lexists(target):
            if not replace:
                raise taken(name, self.root)
            refuse_precious(target, name)

    def _finish(self, ready: Path, name: str) -> None:
        """Give the save in ``ready`` its name. An older thing with the name goes to the trash; if
        that fails now, the next `recover` does it."""
        target, new = self.root / name, ready / "save"
        with map_os_errors(target):
            exchanged = os.path.lexists(target) and exchange(new, target)
            if not exchanged:
                if os.path.lexists(target):
                    self._trash.add(target, name)
                new.rename(target)
            sync_dir(self.root)
        with contextlib.suppress(HostError):
            if exchanged:
                self._trash.add(new, name)
            remove_tree(ready)

    def remove(self, name: str) -> Trashed:
        """Move a save to the trash. Raises SaveNotFoundError, SaveError if it is not proven to be
        one or another program holds the store's lock for too long, HostError."""
        with self._locked_and_whole():
            return self._trash.add(self._require(name), name)

    def delete(self, name: str) -> None:
        """Remove a save for good; works on a full disk. Raises as `remove`."""
        with self._locked_and_whole():
            self._remove_for_good(self._require(name))

    def _require(self, name: str) -> Path:
        """The directory of a save that is to go. The caller holds the lock."""
        if name not in self._names():
            raise self._not_found(name)
        root = self.root / name
        if why := why_no_save(root):
            raise SaveError(
                f"{root} is left alone, since {why}",
                hint="look at what is in it; if nobody needs it, remove it yourself",
            )
        return root

    def _remove_for_good(self, root: Path) -> None:
        # Renamed first, so that nobody sees a part of it: to its mark's id, which takes no space on
        # disk. A save that was copied from elsewhere has no mark.
        doomed = self.house / f"{GONE}{marked_id(root)}"
        with map_os_errors(root):
            if OURS.fullmatch(doomed.name) and not os.path.lexists(doomed):
                root.rename(doomed)
            else:
                doomed = make_marked(self.house / f"{GONE}{secrets.token_hex(6)}")
                root.rename(doomed / "save")
            sync_dir(self.house)
        remove_tree(doomed)

    def trash(self) -> builtins.list[Trashed]:
        """The contents of the trash, the most recently removed last."""
        return self._trash.list()

    def _in_house(self, prefix: str) -> builtins.list[Path]:
        """Directories of this module in the house whose names start with ``prefix``."""
        if not is_own_dir(self.house):
            return []
        return [path for path in own_directories(self.house) if path.name.startswith(prefix)]

    def restore(self, id_: str, name: str | None = None) -> Save:
        """Bring a save back from the trash, under its old name or ``name``. Raises
        SaveNotFoundError, SaveError if the name is taken, ConfigError for a bad name, HostError."""
        with self._locked_and_whole():
            found = next((t for t in self.trash() if t.id == id_), None)
            if found is None:
                raise SaveNotFoundError(f"there is no {id_!r} in the trash of {self.root}")
            target = self.root / check_save_name(name or found.save.name)
            if os.path.lexists(target):
                hint = Words(Remedy("restore_save_as", id=id_), " gives it another name")
                raise taken(target.name, self.root, hint=hint)
            with map_os_errors(target):
                (found.root / "save").rename(target)
                sync_dir(self.root)
            remove_tree(found.root)
        return load_save(target)

    def confirm(self, overdue: Collection[str], now: float) -> builtins.list[str]:
        """Return those ``overdue`` entries of the trash that were already found overdue a day
        before ``now`` (base/ageing.py)."""
        return confirm(self._trash.path, overdue, now)

    def empty_trash(self, ids: builtins.list[str]) -> None:
        """Remove the entries with these ids for good. Raises HostError, and SaveError if one of
        them is not a save; the others are then removed."""
        with self._locked_and_whole():
            doomed = [found for found in self.trash() if found.id in ids]
            for found in doomed:
                if found.was_save:
                    self._remove_for_good(found.root)
        if left := [found for found in doomed if not found.was_save]:
            raise SaveError(
                f"{left[0].save.root} is left in the trash: it is no save, but had the name "
                f"{left[0].save.name!r} before one",
                hint="if nobody needs it, remove it yourself",
            )

    def recover(self) -> None:
        """Finish the work of dead processes: a finished save gets its name, an unfinished one is
        removed. Does nothing in a store where this user has not saved. Raises HostError if one
        cannot be finished, SaveError."""
        if self.is_kept and is_own_dir(self.house):
            with self._locked():
                self._recover_all()

    def _recover_all(self) -> None:
        failure: HostError | None = None
        for path in self._in_house(READY):
            try:
                self._recover_ready(path)
            except HostError as error:  # the others are still recovered
                failure = error
        remove_abandoned(self.house, MAKING)
        for path in self._trash.entries():
            if not os.path.lexists(path / "save"):
                remove_tree(path)
        for path in self._in_house(GONE):
            remove_tree(path)
        if failure is not None:
            raise failure

    def _recover_ready(self, ready: Path) -> None:
        """Finish one replacement, whose maker died before or after the two saves were exchanged, or
        before the new one was moved to ``ready``."""
        name, is_new = f"recovered-{ready.name.removeprefix(READY)}", False
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            about = read_json(require_file(ready / "ready.json"))
            inode = int(about["inode"])
            name = check_save_name(about["name"])
            is_new = (ready / "save").lstat().st_ino == inode
        if is_new:
            try:
                self.check_target(name, replace=True)
            except SaveError:  # something precious has got the name meanwhile
                name = f"recovered-{ready.name.removeprefix(READY)}"
            self._finish(ready, name)
            return
        if os.path.lexists(ready / "save"):
            # It is the old save, or unknown; from the trash it can still be brought back.
            self._trash.add(ready / "save", name)
        remove_tree(ready)

    @contextlib.contextmanager
    def _locked_and_whole(self) -> Iterator[None]:
        """Hold the lock after recovering what others have left. If that fails, for lack of space
        for instance, go on: removing needs no space."""
        with self._locked():
            if self.is_kept:
                with contextlib.suppress(HostError):
                    self._recover_all()
            yield

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        path = make_private_dir(self.house) / LOCK
        if path.is_symlink():  # opening it would create the file to which it leads
            raise PathError(f"{path} is a link", hint="remove it, or choose another workspace")
        with map_os_errors(self.root):
            lock = lock_within(path, LOCK_WAIT_S)
        if lock is None:
            raise SaveError(f"another program is changing the saves in {self.root}")
        try:
            yield
        finally:
            os.close(lock)


def _inode(path: Path) -> int | None:
    """Return the inode at ``path`` (of a link itself); None if there is none."""
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def taken(
    name: str, root: Path, *, hint: str | Words = "choose another name, or replace it"
) -> SaveError:
    return SaveError(f"there is a save {name!r} in {root} already", hint=hint)

"""Saves in a directory: publishing, finding, and the trash.

::

    <root>/<name>/manifest.json, overlays/0.qcow2 …    a save; never changed once it is there
    <root>/.lock                    flock'ed by whoever adds or takes away
    <root>/.making-<random>/        one in the making; its lock is flock'ed by the maker
    <root>/.ready-<random>/save/    a whole one on its way to its name, which is in ready.json
    <root>/.trash/<random>/save/    what was removed or replaced; its name and when: trash.json
    <root>/.gone-<random>/          what is being removed for good

``root`` is ``<workspace>/sandboxes`` or the user's own saves. At every instant the save of a name
is the old one or the new one: they change places by one rename where the system can do that.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quicksand.errors import ConfigError, HostError, SaveError, SaveNotFoundError
from quicksand.host.files import (
    exchange,
    lock_within,
    map_os_errors,
    read_json,
    sync_dir,
    write_json,
)
from quicksand.host.paths import make_private_dir
from quicksand.host.staging import remove_abandoned, staging
from quicksand.saves.looking import Save, check_save, load_save, overlay_paths
from quicksand.saves.manifest import OVERLAYS, check_save_name

__all__ = ["Save", "SaveStore", "Trashed", "check_save", "load_save", "overlay_paths", "taken"]

LOCK_WAIT_S = 10.0
"""Whoever holds the store's lock only renames."""

TRASH = ".trash"
MAKING = ".making-"
READY = ".ready-"
GONE = ".gone-"

TRASH_KEPT_S = 7 * 86400
"""How long what was removed can be brought back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trashed:
    """A save in the trash."""

    id: str
    """Of the entry in the trash."""
    save: Save
    removed: float
    """Unix time."""
    root: Path = field(repr=False)


class SaveStore:
    """The saves under one directory, which need not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def list(self) -> builtins.list[Save]:
        """All saves by name; those that cannot be used say why. Never raises for one of them."""
        with contextlib.suppress(HostError, SaveError):
            self._finish_others()
        found = [load_save(self.root / name) for name in self._names()]
        return [save for save in found if save.identity is not None]

    def _names(self) -> builtins.list[str]:
        try:
            return sorted(p.name for p in self.root.iterdir() if p.name[0] != "." and p.is_dir())
        except OSError:
            return []

    def get(self, name: str) -> Save | None:
        """The save ``name``, looked at from outside (sizes, headers); None if there is none."""
        try:
            root = self.root / check_save_name(name)
        except ConfigError:
            return None
        if not root.is_dir():
            self._finish_others()
        if not root.is_dir():
            return None
        save = load_save(root)
        return save if save.identity is not None else None

    def _finish_others(self) -> None:
        """A save that is on its way to its name, its maker dead or alive, gets there."""
        if any(self.root.glob(f"{READY}*")):
            self.recover()

    def find(self, name: str) -> Save:
        """As `get`. Raises SaveNotFoundError, with a near name if there is one."""
        save = self.get(name)
        if save is None:
            raise self._not_found(name)
        return save

    def _not_found(self, name: str) -> SaveNotFoundError:
        import difflib

        close = difflib.get_close_matches(name, self._names(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "`quicksand-tui saves` lists them"
        return SaveNotFoundError(f"there is no save {name!r} in {self.root}", hint=hint)

    @contextlib.contextmanager
    def making(self) -> Iterator[Path]:
        """A directory for a save in the making, on the store's file system. It is gone afterwards,
        unless `publish` has taken it; also when this process dies, at the next one's turn."""
        self.recover()
        with staging(self.root, prefix=MAKING, gate=self._locked) as made:
            with map_os_errors(made):
                (made / OVERLAYS).mkdir()
            yield made

    def publish(self, made: Path, name: str, *, replace: bool) -> Save:
        """Give the whole save in ``made`` (of `making`) its name; its files are synced already, its
        manifest is there. One that has the name goes to the trash.

        Raises SaveError if the name is taken and not to be replaced; PathError, DiskSpaceError:
        then the name leads to what it led to before, or, where only the last sync failed, to the
        new one.
        """
        check_save_name(name)
        with self._locked():
            target = self.root / name
            if os.path.lexists(target) and not replace:
                raise taken(name, self.root)
            ready = self.root / f"{READY}{secrets.token_hex(6)}"
            is_first, inode = not os.path.lexists(target), _inode(made)
            try:
                with map_os_errors(target):
                    ready.mkdir(mode=0o700)
                    # A rename keeps the inode: by it `recover` knows the new one from the old one.
                    write_json(ready / "ready.json", {"name": name, "inode": inode})
                    made.rename(ready / "save")
                    sync_dir(ready)
                    sync_dir(self.root)
                self._finish(ready, name)
            except HostError:
                now = _inode(target)
                # While there is neither the old one nor the new one `recover` has to go on.
                if now != inode and (is_first or now is not None):
                    _remove_tree(ready)
                raise
        return load_save(target)

    def _finish(self, ready: Path, name: str) -> None:
        """Bring the save in ``ready`` to its name. What has the name already goes to the trash, if
        need be the next time."""
        target, new = self.root / name, ready / "save"
        with map_os_errors(target):
            exchanged = os.path.lexists(target) and exchange(new, target)
            if not exchanged:
                if os.path.lexists(target):
                    self._to_trash(target, name)
                new.rename(target)
            sync_dir(self.root)
        with contextlib.suppress(HostError):
            if exchanged:
                self._to_trash(new, name)
            _remove_tree(ready)

    def remove(self, name: str) -> Trashed:
        """Move a save to the trash. Raises SaveNotFoundError, HostError."""
        with self._locked_and_whole():
            return self._to_trash(self._require(name), name)

    def delete(self, name: str) -> None:
        """Remove a save for good; needs no space on the disk. Raises as `remove`."""
        with self._locked_and_whole():
            self._remove_for_good(self._require(name))

    def _require(self, name: str) -> Path:
        """The directory of a save. The caller holds the lock."""
        if name not in self._names():
            raise self._not_found(name)
        return self.root / name

    def _remove_for_good(self, root: Path) -> None:
        # Out of sight first, so that nobody sees half of it.
        doomed = self.root / f"{GONE}{secrets.token_hex(6)}"
        with map_os_errors(root):
            root.rename(doomed)
            sync_dir(self.root)
        _remove_tree(doomed)

    def _to_trash(self, root: Path, name: str) -> Trashed:
        entry = make_private_dir(self.root / TRASH) / secrets.token_hex(6)
        try:
            with map_os_errors(entry):
                entry.mkdir(mode=0o700)
                write_json(entry / "trash.json", {"name": name, "removed": time.time()})
                root.rename(entry / "save")
        except HostError:
            _remove_tree(entry)
            raise
        sync_dir(entry)
        return self._trashed(entry)

    def trash(self) -> builtins.list[Trashed]:
        """What is in the trash, the latest last."""
        found = []
        for entry in self._entries():
            # Another process may empty it now.
            with contextlib.suppress(OSError):
                if os.path.lexists(entry / "save"):
                    found.append(self._trashed(entry))
        return sorted(found, key=lambda trashed: trashed.removed)

    def _entries(self) -> builtins.list[Path]:
        try:
            return builtins.list((self.root / TRASH).iterdir())
        except OSError:
            return []

    @staticmethod
    def _trashed(entry: Path) -> Trashed:
        try:
            about = read_json(entry / "trash.json")
            name, removed = check_save_name(about["name"]), float(about["removed"])
            if not math.isfinite(removed):
                raise ValueError(removed)
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            # Its maker was killed between two writes; the save is whole all the same.
            name, removed = entry.name, entry.stat().st_mtime
        return Trashed(
            id=entry.name, save=load_save(entry / "save", name), removed=removed, root=entry
        )

    def restore(self, id_: str, name: str | None = None) -> Save:
        """Bring a save back from the trash, under its old name or another one. Raises
        SaveNotFoundError, SaveError if the name is taken."""
        with self._locked_and_whole():
            found = next((t for t in self.trash() if t.id == id_), None)
            if found is None:
                raise SaveNotFoundError(f"there is no {id_!r} in the trash of {self.root}")
            target = self.root / check_save_name(name or found.save.name)
            if os.path.lexists(target):
                again = f"quicksand-tui saves restore {id_} --as NEW"
                raise taken(target.name, self.root, hint=f"`{again}` gives it another name")
            with map_os_errors(target):
                (found.root / "save").rename(target)
                sync_dir(self.root)
            _remove_tree(found.root)
        return load_save(target)

    def empty_trash(self, ids: builtins.list[str]) -> None:
        """Remove these for good. Raises HostError."""
        with self._locked_and_whole():
            for found in self.trash():
                if found.id in ids:
                    self._remove_for_good(found.root)

    def recover(self) -> None:
        """Finish what processes that died have begun: a whole save gets its name, a half-made one
        goes. Raises HostError if one cannot be finished."""
        with self._locked():
            self._recover_all()

    def _recover_all(self) -> None:
        failure: HostError | None = None
        for path in self.root.glob(f"{READY}*"):
            try:
                self._recover_ready(path)
            except HostError as error:  # the others all the same
                failure = error
        remove_abandoned(self.root, MAKING)
        for path in self._entries():
            if not os.path.lexists(path / "save"):
                _remove_tree(path)
        for path in self.root.glob(f"{GONE}*"):
            _remove_tree(path)
        if failure is not None:
            raise failure

    def _recover_ready(self, ready: Path) -> None:
        """Its maker has died before or after the new save and the old one changed places, or
        before there was one."""
        name, is_new = f"recovered-{ready.name.removeprefix(READY)}", False
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            about = read_json(ready / "ready.json")
            inode = int(about["inode"])
            name = check_save_name(about["name"])
            is_new = (ready / "save").stat().st_ino == inode
        if is_new:
            self._finish(ready, name)
            return
        if os.path.lexists(ready / "save"):
            # The old one; or, where nobody can tell what it is, it can still be brought back.
            self._to_trash(ready / "save", name)
        _remove_tree(ready)

    @contextlib.contextmanager
    def _locked_and_whole(self) -> Iterator[None]:
        """What others have left is recovered first; where that fails, for lack of space, what takes
        none goes on."""
        with self._locked():
            with contextlib.suppress(HostError):
                self._recover_all()
            yield

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        make_private_dir(self.root)
        with map_os_errors(self.root):
            lock = lock_within(self.root / ".lock", LOCK_WAIT_S)
        if lock is None:
            raise SaveError(f"another program is changing the saves in {self.root}")
        try:
            yield
        finally:
            os.close(lock)


def _inode(path: Path) -> int | None:
    """Of what is there, a link itself."""
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def _remove_tree(path: Path) -> None:
    """What stays of it goes the next time."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def taken(name: str, root: Path, *, hint: str = "choose another name, or replace it") -> SaveError:
    return SaveError(f"there is a save {name!r} in {root} already", hint=hint)

"""Saves in a directory: publishing, finding, and the trash.

::

    <root>/<name>/manifest.json, overlays/0.qcow2 …    a save; never changed once it is there
    <root>/.lock                    flock'ed by whoever adds or takes away
    <root>/.making-<random>/        one in the making; its lock is flock'ed by the maker
    <root>/.ready-<random>/save/    a whole one on its way to its name, which is in ready.json
    <root>/.trash/<random>/save/    what was removed or replaced; its name and when: trash.json

``root`` is ``<workspace>/sandboxes`` or the user's own saves. At every instant the save of a name
is the old one or the new one: they change places by one rename where the system can do that.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quicksand.errors import ConfigError, SaveError, SaveNotFoundError
from quicksand.host.files import (
    is_locked,
    lock_within,
    map_os_errors,
    read_json,
    sync_dir,
    try_lock,
    write_json,
)
from quicksand.host.paths import make_private_dir
from quicksand.images.qcow2 import check_qcow2
from quicksand.saves.manifest import (
    OVERLAYS,
    SaveManifest,
    check_save_name,
    read_manifest,
)

LOCK_WAIT_S = 10.0
"""Whoever holds the store's lock only renames."""

TRASH = ".trash"
MAKING = ".making-"
READY = ".ready-"

_EXCHANGE = 2  # RENAME_EXCHANGE (linux/fs.h)
_AT_FDCWD = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A save as it lies on the disk."""

    name: str
    root: Path
    manifest: SaveManifest | None
    """None if it cannot be used."""
    error: str = ""
    """Why not."""

    def require(self) -> SaveManifest:
        """Its manifest. Raises SaveError if it cannot be used."""
        if self.manifest is None:
            raise SaveError(f"the save {self.name!r} cannot be used: {self.error}")
        return self.manifest


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
        try:
            names = sorted(p.name for p in self.root.iterdir() if p.name[0] != ".")
        except OSError:
            return []
        found = [self.get(name) for name in names]
        return [save for save in found if save is not None]

    def get(self, name: str) -> Save | None:
        """The save ``name``, looked at from outside (sizes, headers); None if there is none."""
        try:
            root = self.root / check_save_name(name)
        except ConfigError:
            return None
        if not root.is_dir() and any(self.root.glob(f"{READY}*")):
            self.recover()
        return load_save(root) if root.is_dir() else None

    def find(self, name: str) -> Save:
        """As `get`. Raises SaveNotFoundError, with a near name if there is one."""
        save = self.get(name)
        if save is None:
            import difflib

            close = difflib.get_close_matches(name, [s.name for s in self.list()], n=1)
            hint = f"did you mean {close[0]!r}?" if close else "`quicksand-tui saves` lists them"
            raise SaveNotFoundError(f"there is no save {name!r} in {self.root}", hint=hint)
        return save

    @contextlib.contextmanager
    def making(self) -> Iterator[Path]:
        """A directory for a save in the making, on the store's file system. It is gone afterwards,
        unless `publish` has taken it; also when this process dies, at the next one's turn."""
        make_private_dir(self.root)
        self.recover()
        place = self.root / f"{MAKING}{secrets.token_hex(6)}"
        with map_os_errors(place):
            place.mkdir(mode=0o700)
            lock = try_lock(place / "lock")
            (place / "save" / OVERLAYS).mkdir(parents=True)
        try:
            yield place / "save"
        finally:
            shutil.rmtree(place, ignore_errors=True)
            if lock is not None:
                os.close(lock)

    def publish(self, made: Path, name: str, *, replace: bool) -> Save:
        """Give the whole save in ``made`` (of `making`) its name; its files are synced already, its
        manifest is there. One that has the name goes to the trash.

        Raises SaveError if the name is taken and not to be replaced; PathError, DiskSpaceError.
        """
        check_save_name(name)
        with self._locked():
            target = self.root / name
            if target.exists() and not replace:
                raise taken(name, self.root)
            ready = self.root / f"{READY}{secrets.token_hex(6)}"
            with map_os_errors(target):
                ready.mkdir(mode=0o700)
                # A rename keeps the inode: by it `recover` knows the new one from the old one.
                write_json(ready / "ready.json", {"name": name, "inode": made.stat().st_ino})
                made.rename(ready / "save")
                sync_dir(ready)
                sync_dir(self.root)
            self._finish(ready, name)
        return load_save(target)

    def _finish(self, ready: Path, name: str) -> None:
        """Bring the save in ``ready`` to its name. What has the name already goes to the trash."""
        target, new = self.root / name, ready / "save"
        with map_os_errors(target):
            if target.exists() and not _exchange(new, target):
                self._to_trash(target, name)
            if target.exists():
                # They have changed places.
                self._to_trash(new, name)
            else:
                new.rename(target)
            sync_dir(self.root)
        shutil.rmtree(ready, ignore_errors=True)

    def remove(self, name: str) -> Trashed:
        """Move a save to the trash. Raises SaveNotFoundError, PathError."""
        with self._locked():
            save = self.find(name)
            return self._to_trash(save.root, name)

    def _to_trash(self, root: Path, name: str) -> Trashed:
        entry = make_private_dir(self.root / TRASH) / secrets.token_hex(6)
        with map_os_errors(entry):
            entry.mkdir(mode=0o700)
            write_json(entry / "trash.json", {"name": name, "removed": time.time()})
            root.rename(entry / "save")
            sync_dir(entry)
        return self._trashed(entry)

    def trash(self) -> builtins.list[Trashed]:
        """What is in the trash, the latest last."""
        with contextlib.suppress(FileNotFoundError):
            entries = [p for p in (self.root / TRASH).iterdir() if (p / "save").is_dir()]
            return sorted((self._trashed(entry) for entry in entries), key=lambda t: t.removed)
        return []

    @staticmethod
    def _trashed(entry: Path) -> Trashed:
        try:
            about = read_json(entry / "trash.json")
            name, removed = str(about["name"]), float(about["removed"])
        except (OSError, ValueError, KeyError, TypeError):
            # Its maker was killed between two writes; the save is whole all the same.
            name, removed = entry.name, entry.stat().st_mtime
        return Trashed(
            id=entry.name, save=load_save(entry / "save", name), removed=removed, root=entry
        )

    def restore(self, id_: str, name: str | None = None) -> Save:
        """Bring a save back from the trash, under its old name or another one. Raises
        SaveNotFoundError, SaveError if the name is taken."""
        with self._locked():
            found = next((t for t in self.trash() if t.id == id_), None)
            if found is None:
                raise SaveNotFoundError(f"there is no {id_!r} in the trash of {self.root}")
            target = self.root / check_save_name(name or found.save.name)
            if target.exists():
                raise taken(target.name, self.root)
            with map_os_errors(target):
                (found.root / "save").rename(target)
                sync_dir(self.root)
            shutil.rmtree(found.root, ignore_errors=True)
        return load_save(target)

    def empty_trash(self, ids: builtins.list[str]) -> None:
        """Remove these for good."""
        with self._locked():
            for found in self.trash():
                if found.id in ids:
                    shutil.rmtree(found.root, ignore_errors=True)

    def recover(self) -> None:
        """Finish what processes that died have begun: a whole save gets its name, a half-made one
        goes."""
        with self._locked():
            for path in self.root.glob(f"{READY}*"):
                self._recover_ready(path)
            for path in self.root.glob(f"{MAKING}*"):
                if not is_locked(path / "lock"):
                    shutil.rmtree(path, ignore_errors=True)

    def _recover_ready(self, ready: Path) -> None:
        """Its maker has died before or after the new save and the old one changed places, or
        before there was one."""
        try:
            about = read_json(ready / "ready.json")
            name, inode = check_save_name(about["name"]), int(about["inode"])
            is_new = (ready / "save").stat().st_ino == inode
        except (OSError, ValueError, KeyError, TypeError):
            shutil.rmtree(ready, ignore_errors=True)
            return
        if is_new:
            self._finish(ready, name)
        else:
            self._to_trash(ready / "save", name)
            shutil.rmtree(ready, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        make_private_dir(self.root)
        lock = lock_within(self.root / ".lock", LOCK_WAIT_S)
        if lock is None:
            raise SaveError(f"another program is changing the saves in {self.root}")
        try:
            yield
        finally:
            os.close(lock)


def taken(name: str, root: Path) -> SaveError:
    return SaveError(
        f"there is a save {name!r} in {root} already", hint="choose another name, or replace it"
    )


def load_save(root: Path, name: str | None = None) -> Save:
    """The save in the directory ``root``. Never raises for one that cannot be used."""
    name = name or root.name
    try:
        return Save(name=name, root=root, manifest=check_save(root))
    except SaveError as error:
        return Save(name=name, root=root, manifest=None, error=str(error))


def check_save(root: Path) -> SaveManifest:
    """Look at a save from outside: manifest, files, their sizes and headers. Reads no data.

    Raises SaveNotFoundError without a manifest, SaveError naming what is wrong.
    """
    from quicksand.errors import ImageError

    manifest = read_manifest(root)
    paths = overlay_paths(root, manifest)
    for number, path in enumerate(paths):
        if path.is_symlink() or not path.is_file():
            raise SaveError(f"the save at {root} is incomplete: {path.name} is no file")
        if manifest.layers is not None:
            size, known = path.stat().st_size, manifest.layers[number].size
            if size != known:
                raise SaveError(f"{path} has {size} bytes instead of {known}")
        try:
            check_qcow2(path, allow_backing=True)
        except ImageError as error:
            raise SaveError(str(error)) from error
    return manifest


def overlay_paths(root: Path, manifest: SaveManifest) -> tuple[Path, ...]:
    """The files of a save's disk, bottom to top. Raises SaveError if one is missing between
    others."""
    directory = root / OVERLAYS
    if manifest.layers is not None:
        return tuple(directory / f"{n}.qcow2" for n in range(len(manifest.layers)))
    try:
        found = {p.stem for p in directory.iterdir() if p.suffix == ".qcow2"}
    except OSError as error:
        raise SaveError(f"the save at {root} has no {OVERLAYS}: {error.strerror}") from error
    if not found or found != {str(n) for n in range(len(found))}:
        raise SaveError(f"the overlays of the save at {root} are not 0.qcow2 to N.qcow2")
    return tuple(directory / f"{n}.qcow2" for n in range(len(found)))


def _exchange(one: Path, other: Path) -> bool:
    """Have two directories change places in one instant; False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    result = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE)
    if result == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(number, os.strerror(number))

"""Reading a save's manifest and checking its files, sizes and qcow2 headers, but no data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import ImageError, SaveError
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.saves.save_manifest import OVERLAYS, SaveManifest, read_manifest

_LOOKS = 4
"""Attempts to read a save before it counts as damaged."""
_LOOKS_AT_OTHERS = 100
"""Attempts to read a save while each finds that another save has replaced it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A save on disk, usable or not."""

    name: str
    root: Path
    manifest: SaveManifest | None
    """None if it cannot be used."""
    error: str = ""
    """Why it cannot be used."""
    identity: tuple[int, int] | None = None
    """Device and inode of its directory when it was read."""

    def require(self) -> SaveManifest:
        """Its manifest. Raises SaveError if it cannot be used."""
        if self.manifest is None:
            raise SaveError(f"the save {self.name!r} cannot be used: {self.error}")
        return self.manifest


def load_save(root: Path, name: str | None = None) -> Save:
    """The save in the directory ``root``; if it cannot be used, its ``error`` says why."""
    for look in range(_LOOKS_AT_OTHERS):
        save = _load(root, name or root.name)
        # While a save is replaced or removed, its manifest and files do not match.
        is_same = identity_of(root) == save.identity
        if is_same and (save.error == "" or look >= _LOOKS - 1):
            break
    return save


def _load(root: Path, name: str) -> Save:
    identity = identity_of(root)
    try:
        return Save(name=name, root=root, manifest=check_save(root), identity=identity)
    except SaveError as error:
        return Save(name=name, root=root, manifest=None, error=str(error), identity=identity)


def identity_of(path: Path) -> tuple[int, int] | None:
    """Device and inode of what is at ``path``; None if nothing is."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check_save(root: Path) -> SaveManifest:
    """Check a save's manifest, files, sizes and qcow2 headers; reads no data.

    Raises SaveNotFoundError if there is no manifest, SaveError naming what is wrong.
    """
    manifest = read_manifest(root)
    for number, path in enumerate(overlay_paths(root, manifest)):
        try:
            if path.is_symlink() or not path.is_file():
                raise SaveError(f"the save at {root} is incomplete: {path.name} is no file")
            if manifest.layers is not None:
                size, known = path.stat().st_size, manifest.layers[number].size
                if size != known:
                    raise SaveError(f"{path} has {size} bytes instead of {known}")
            check_qcow2(path, allow_backing=True)
        except ImageError as error:
            raise SaveError(str(error)) from error
        except OSError as error:
            raise SaveError(f"{path} cannot be read: {error.strerror}") from error
    return manifest


def overlay_paths(root: Path, manifest: SaveManifest) -> tuple[Path, ...]:
    """The files of a save's disk, the lowest first. Raises SaveError if one is missing."""
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

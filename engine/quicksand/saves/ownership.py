"""Knows which saves this user has made on this host.

Only from these are options that reach beyond the guest (network, ports) accepted, since a directory
that was copied or cloned may contain saves by anybody.

Saves in the user's own store count as made here, unless they contain the file `IMPORTED`. A save
elsewhere has a mark in the user's data directory, ``<data>/made/<place>-<manifest>.json``, named by
digests of the save's path and manifest. It holds inodes, sizes and times that identify the save's
files. A save that was moved or changed is therefore no longer recognised; one that was restored
from the trash is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from quicksand.base.errors import ImageError
from quicksand.base.files import JSON_MAX, map_os_errors, read_json, write_json
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.regular import open_file
from quicksand.saves.portable import read_metadata
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS

IMPORTED = "imported.json"
"""The file that marks a save which came in a bundle."""

DIGITS = 32
"""The number of hexadecimal digits of each digest in a mark's name."""

MARKS_KEPT = 16
"""The number of marks kept per path: that of the present save, and those of replaced saves, which
may be restored from the trash."""


def is_own(root: Path, places: Paths) -> bool:
    """Returns whether this user has made the save or snapshot file at ``root`` and nobody has
    changed it since."""
    try:
        if root.parent == places.saves and not root.is_symlink():
            return not os.path.lexists(root / IMPORTED)
        real = root.resolve()
        if real.parent == places.saves.resolve():
            return not os.path.lexists(real / IMPORTED)
        return fits(real, real, places)
    except (OSError, RuntimeError):
        return False


def was_made_at(place: Path, places: Paths) -> bool:
    """Returns whether this user has ever made a save at ``place``."""
    return any(_marks_of(place, places))


def fits(files: Path, place: Path, places: Paths) -> bool:
    """Returns whether the save in ``files`` is one that this user made at ``place``."""
    try:
        mark = read_json(_mark(files, place, places))
        return bool(mark.get("files") == _identity(files))
    except (OSError, ValueError, ImageError):
        return False


def mark_made(files: Path, place: Path, places: Paths) -> None:
    """Writes the mark of a save that this user makes; its files are in ``files`` now and will be at
    ``place``. Raises HostError."""
    if place.parent == places.saves:
        return
    make_private_dir(_marks_dir(places))
    with map_os_errors(files):
        mark, identity = _mark(files, place, places), _identity(files)
    write_json(mark, {"path": str(place), "made": time.time(), "files": identity})
    with contextlib.suppress(OSError):
        for old in sorted(_marks_of(place, places), key=_age)[MARKS_KEPT:]:
            old.unlink()


def mark_imported(made: Path) -> None:
    """Marks an unfinished save as imported, so not made by this user. Raises HostError."""
    write_json(made / IMPORTED, {"imported": time.time()})


def _marks_dir(places: Paths) -> Path:
    return places.data / "made"


def _place_digest(place: Path) -> str:
    real = place.parent.resolve() / place.name
    return hashlib.sha256(os.fsencode(real)).hexdigest()[:DIGITS]


def _marks_of(place: Path, places: Paths) -> list[Path]:
    return list(_marks_dir(places).glob(f"{_place_digest(place)}-*.json"))


def _mark(files: Path, place: Path, places: Paths) -> Path:
    name = f"{_place_digest(place)}-{_manifest_digest(files)}.json"
    return _marks_dir(places) / name


def _manifest_digest(files: Path) -> str:
    if files.is_dir():
        with open_file(files / MANIFEST, os.O_NOFOLLOW) as file:
            text = file.read(JSON_MAX + 1)
    else:
        text = json.dumps(read_metadata(files), sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:DIGITS]


def _identity(files: Path) -> list[list[Any]]:
    """Returns the values that change when one of the files is replaced or written to."""
    layers = sorted((files / OVERLAYS).iterdir()) if files.is_dir() else [files]
    found = [(layer.name, layer.lstat()) for layer in layers]
    return [[name, was.st_ino, was.st_size, was.st_mtime_ns] for name, was in found]


def _age(mark: Path) -> float:
    return -mark.stat().st_mtime

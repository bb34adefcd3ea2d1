"""Which workspaces have saves: whoever removes an image must know of those elsewhere too.

``<data>/workspaces/<digest>`` are symbolic links to directories of saves. A workspace that is moved
or copied is known again when the next save is put into it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from quicksand.errors import QuicksandError
from quicksand.host.paths import Paths, make_private_dir
from quicksand.saves.finding import all_stores
from quicksand.saves.store import SaveStore


def workspaces_dir(places: Paths) -> Path:
    return places.data / "workspaces"


def remember(root: Path, places: Paths) -> None:
    """Note that there are saves in ``root``. That it fails is no reason not to save."""
    if root == places.saves:
        return
    directory = workspaces_dir(places)
    link = directory / hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    with contextlib.suppress(OSError, QuicksandError):
        if link.is_symlink():
            return
        make_private_dir(directory)
        for other in directory.iterdir():
            if other.is_symlink() and not other.exists():
                other.unlink()
        link.symlink_to(root)


def known_stores(places: Paths, cwd: Path | None = None) -> tuple[SaveStore, ...]:
    """All directories of saves that are known, first those that `all_stores` looks in."""
    found = {store.root: store for store in all_stores(places, cwd)}
    with contextlib.suppress(OSError):
        for link in sorted(workspaces_dir(places).iterdir()):
            with contextlib.suppress(OSError):
                root = link.readlink()
                if root.is_dir():
                    found.setdefault(root, SaveStore(root))
    return tuple(found.values())

"""Directories of things in the making. Each has a lock that its maker holds: what is left of one
who died is found out by that, and removed by the next one."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from quicksand.errors import StateError
from quicksand.host.files import is_locked, lock_within, map_os_errors, try_lock
from quicksand.host.paths import make_private_dir

PREFIX = ".importing-"
LOCK_WAIT_S = 10.0


@contextlib.contextmanager
def staging(root: Path) -> Iterator[Path]:
    """A directory in ``root`` for something in the making, gone afterwards; what others have left
    who died goes before."""
    place = root / f"{PREFIX}{secrets.token_hex(6)}"
    with _gate(root):
        _sweep(root)
        with map_os_errors(place):
            place.mkdir(mode=0o700)
            lock = try_lock(place / "lock")
    try:
        with map_os_errors(place):
            (place / "made").mkdir(mode=0o700)
        yield place / "made"
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def sweep_staging(root: Path) -> None:
    """Remove what others have left there who died."""
    if any(path.is_dir() for path in root.glob(f"{PREFIX}*")):
        with _gate(root):
            _sweep(root)


def _sweep(root: Path) -> None:
    for path in root.glob(f"{PREFIX}*"):
        if path.is_dir() and not is_locked(path / "lock"):
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _gate(root: Path) -> Iterator[None]:
    """A directory of which nobody holds the lock is anybody's to remove: so it gets both in one
    go."""
    make_private_dir(root)
    with map_os_errors(root):
        gate = lock_within(root / f"{PREFIX}lock", LOCK_WAIT_S)
    if gate is None:
        raise StateError(f"another program is preparing something in {root} for too long")
    try:
        yield
    finally:
        os.close(gate)

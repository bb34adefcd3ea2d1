"""Directories of things in the making. Each has a lock that its maker holds: what is left of one
who died is found out by that, and removed by the next one."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from quicksand.errors import StateError
from quicksand.host.files import is_locked, lock_within, map_os_errors, try_lock
from quicksand.host.paths import make_private_dir

PREFIX = ".importing-"
LOCK_WAIT_S = 10.0


Gate = Callable[[], contextlib.AbstractContextManager[None]]
"""Lets one process in at a time."""


@contextlib.contextmanager
def staging(root: Path, *, prefix: str = PREFIX, gate: Gate | None = None) -> Iterator[Path]:
    """A directory in ``root`` for something in the making, gone afterwards; what others have left
    who died goes before. ``gate``: what keeps those apart who make or sweep such directories, if
    ``root`` has a lock of its own."""
    place, lock = root / f"{prefix}{secrets.token_hex(6)}", None
    try:
        with gate() if gate is not None else _gate(root), map_os_errors(place):
            remove_abandoned(root, prefix)
            place.mkdir(mode=0o700)
            lock = try_lock(place / "lock")
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
            remove_abandoned(root)


def remove_abandoned(root: Path, prefix: str = PREFIX) -> None:
    """As `sweep_staging`, for those who hold the gate."""
    for path in root.glob(f"{prefix}*"):
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

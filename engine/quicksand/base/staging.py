"""Directories for unfinished work. The maker holds a lock in each, so the next one to make such a
directory recognizes and removes what a killed process left behind."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from quicksand.base.errors import StateError
from quicksand.base.files import is_locked, lock_within, map_os_errors, try_lock
from quicksand.base.listing import ANY_ID, own_directories
from quicksand.base.paths import make_private_dir
from quicksand.base.removal import make_marked, remove

PREFIX = ".importing-"
LOCK_WAIT_S = 10.0
"""Seconds to wait for another process that makes or sweeps such directories."""

Gate = Callable[[], contextlib.AbstractContextManager[None]]
"""A lock that one process holds at a time."""


Forget = Callable[[Path], None]
"""Removes the parts of a directory for unfinished work that are in another place."""


def _nothing(made: Path) -> None:
    pass


@contextlib.contextmanager
def staging(
    root: Path, *, prefix: str = PREFIX, gate: Gate | None = None, forget: Forget = _nothing
) -> Iterator[Path]:
    """Make a directory in ``root`` for unfinished work and remove it afterwards; first remove the
    remains of killed processes there. ``gate`` is the lock of ``root``, if that has its own;
    ``forget`` is called with every such directory before it is removed.

    Raises StateError if the lock stays held, DiskSpaceError, PathError.
    """
    place, lock = root / f"{prefix}{os.urandom(6).hex()}", None
    try:
        with gate() if gate is not None else _gate(root), map_os_errors(place):
            remove_abandoned(root, prefix, forget=forget)
            make_marked(place)
            lock = try_lock(place / "lock")
        with map_os_errors(place):
            (place / "made").mkdir(mode=0o700)
        yield place / "made"
    finally:
        with contextlib.suppress(OSError):  # the next sweep removes the rest
            forget(place / "made")
            remove(place)
        if lock is not None:
            os.close(lock)


def sweep_staging(root: Path, *, forget: Forget = _nothing) -> None:
    """Remove the remains of killed processes in ``root``; ``forget`` as in `staging`. Raises
    StateError, HostError."""
    if any(path.is_dir() for path in root.glob(f"{PREFIX}*")):
        with _gate(root):
            remove_abandoned(root, forget=forget)


def list_abandoned(root: Path, prefix: str = PREFIX) -> list[Path]:
    """Return the remains of killed processes in ``root``; a directory that is just being made may
    be among them, unless the caller holds the gate."""
    found = []
    for path in own_directories(root, re.compile(re.escape(prefix) + ANY_ID.pattern)):
        with contextlib.suppress(OSError):
            if not is_locked(path / "lock"):
                found.append(path)
    return found


def remove_abandoned(root: Path, prefix: str = PREFIX, *, forget: Forget = _nothing) -> None:
    """As `sweep_staging`; the caller holds the gate."""
    for path in list_abandoned(root, prefix):
        with contextlib.suppress(OSError):
            forget(path / "made")
            remove(path)


@contextlib.contextmanager
def _gate(root: Path) -> Iterator[None]:
    """Hold the lock of ``root``. Others remove a directory whose own lock is free, so making one
    and locking it must not be interrupted by a sweep."""
    make_private_dir(root)
    with map_os_errors(root):
        gate = lock_within(root / f"{PREFIX}lock", LOCK_WAIT_S)
    if gate is None:
        raise StateError(f"another program is preparing something in {root} for too long")
    try:
        yield
    finally:
        os.close(gate)

"""Walks from names to descriptors, without leaving the share's root and without following symlinks.

Two functions do the same: `by_kernel` uses openat2 with RESOLVE_BENEATH, and `by_steps` opens each
directory with O_NOFOLLOW from the one before. Both start from a descriptor of the root, so it does
not matter what happens to the root's own path.
"""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock
from stat import S_ISLNK

from quicksand_smb import kernel
from quicksand_smb.store_errors import Reason, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Walk = Callable[[int, list[bytes], int, int], int]
    """A walk takes root, names, flags and mode, and returns a descriptor. It raises OSError, with
    ELOOP for a symlink on the way."""

_STEP = kernel.O_LOOK | kernel.O_DIRECTORY


def by_kernel(root: int, names: list[bytes], flags: int, mode: int = 0) -> int:
    """Walk with one system call. Raises ENOSYS before Linux 5.6."""
    return kernel.openat2(root, b"/".join(names) or b".", flags | os.O_CLOEXEC, mode)


def by_steps(root: int, names: list[bytes], flags: int, mode: int = 0) -> int:
    """Walk with one system call for each name."""
    if not names:
        return os.open(b".", flags, mode, dir_fd=root)
    at = root
    try:
        for name in names[:-1]:
            step = _step(at, name)
            if at != root:
                os.close(at)
            at = step
        return os.open(names[-1], flags, mode, dir_fd=at)
    finally:
        if at != root:
            os.close(at)


def _step(at: int, name: bytes) -> int:
    try:
        return os.open(name, _STEP, dir_fd=at)
    except NotADirectoryError:
        # Linux also raises it for a symlink opened with O_PATH.
        if _is_link(at, name):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


def _is_link(at: int, name: bytes) -> bool:
    try:
        return S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return False


def best_walk(root: int) -> Walk:
    """Return `by_kernel` if the kernel supports it for this process, and otherwise `by_steps`."""
    try:
        os.close(by_kernel(root, [], kernel.O_LOOK))
    except OSError:
        return by_steps
    return by_kernel


def link_depth(root: int, names: list[bytes]) -> int:
    """Return the number of names up to and including the first symlink, or 0 if there is none."""
    at = root
    try:
        for depth, name in enumerate(names, 1):
            if _is_link(at, name):
                return depth
            step = os.open(name, _STEP, dir_fd=at)
            if at != root:
                os.close(at)
            at = step
    except OSError:
        return 0
    finally:
        if at != root:
            os.close(at)
    return 0


class SharedDescriptor:
    """A descriptor that several threads use and one thread closes.

    It is closed only when nobody uses it. So its number never means another file to a thread that
    still works with it.
    """

    __slots__ = ("_closed", "_descriptor", "_lock", "_users")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = allocate_lock()
        self._users = 0
        self._closed = False

    def take(self) -> int:
        """Return the descriptor for use until `give`. Raises StoreError(GONE) after `close`."""
        with self._lock:
            if self._closed:
                raise StoreError(Reason.GONE)
            self._users += 1
            return self._descriptor

    def give(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._closed and not self._users
        if last:
            os.close(self._descriptor)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Make `take` fail from now on. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            last = not self._users
        if last:
            os.close(self._descriptor)

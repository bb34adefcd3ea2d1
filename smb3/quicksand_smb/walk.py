"""From names to descriptors, never leaving the share's root and following no symlink.

There are two ways with one behaviour: `by_kernel` (openat2 with RESOLVE_BENEATH, where the kernel
has it) and `by_steps` (each directory by O_NOFOLLOW from the one before). Both start from a
descriptor of the root, so that it does not matter what becomes of the root's own path.
"""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock

from quicksand_smb import kernel
from quicksand_smb.store_errors import Reason, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Walk = Callable[[int, list[bytes], int, int], int]
    """root, names, flags, mode -> descriptor; raises OSError. ELOOP: a symlink on the way."""

_STEP = kernel.O_LOOK | kernel.O_DIRECTORY


def by_kernel(root: int, names: list[bytes], flags: int, mode: int = 0) -> int:
    """One system call; raises ENOSYS before Linux 5.6."""
    return kernel.openat2(root, b"/".join(names) or b".", flags | os.O_CLOEXEC, mode)


def by_steps(root: int, names: list[bytes], flags: int, mode: int = 0) -> int:
    """One system call for each name."""
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
        # With O_PATH Linux says so of a symlink, too.
        if _is_link(at, name):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


def _is_link(at: int, name: bytes) -> bool:
    from stat import S_ISLNK

    try:
        return S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return False


def best_walk(root: int) -> Walk:
    """The kernel's way if it has one and this process may use it."""
    try:
        os.close(by_kernel(root, [], kernel.O_LOOK))
    except OSError:
        return by_steps
    return by_kernel


def link_depth(root: int, names: list[bytes]) -> int:
    """How many names lead to the first symlink, itself included; 0 if there is none by now."""
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
    """A descriptor that several threads use, and one closes.

    It is really closed when nobody is using it, so that its number never means another file to
    somebody who still works with it.
    """

    __slots__ = ("_closed", "_descriptor", "_lock", "_users")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = allocate_lock()
        self._users = 0
        self._closed = False

    def take(self) -> int:
        """The descriptor until `give`. Raises StoreError(GONE) once it was closed."""
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
        """From now on `take` fails; idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            last = not self._users
        if last:
            os.close(self._descriptor)

"""Borrows files that another process of this user has open, by pidfd_getfd(2). Linux only."""

from __future__ import annotations

import ctypes
import functools
import os

PIDFD_GETFD = 438
"""The system call's number, the same on all architectures (pidfd_getfd(2), Linux 5.6)."""


def borrow(pidfd: int, number: int) -> int:
    """Duplicate the descriptor ``number`` of the process of ``pidfd`` (os.pidfd_open): both share
    the open file, with its state and its flags. The duplicate is not inherited by programs.

    Raises OSError: EBADF if the process has no such descriptor, ESRCH if it has ended, EPERM if the
    kernel refuses, as it does for processes that may not be traced.
    """
    found = int(_library().syscall(PIDFD_GETFD, pidfd, number, 0))
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"pidfd_getfd: {os.strerror(code)}")
    return found


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the system's library; looking for it takes ten times as long as the call."""
    return ctypes.CDLL(None, use_errno=True)

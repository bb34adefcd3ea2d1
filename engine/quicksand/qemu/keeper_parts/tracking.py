"""Giving a QEMU that is executed its userfaultfd (userfaultfd(2)), by which clients track the
memory that it writes. Only the process itself can make one, and QEMU has no use for it: so it is
made for it before its first instruction (host/injection.py).

Without one the first checkpoint tries the same with the running QEMU (snapshots/userfault.py).
"""

import os
import signal
from typing import Any

USERFAULTFD = 323
"""The system call's number on x86_64."""
FLAGS = 0o2004001
"""O_CLOEXEC, O_NONBLOCK and UFFD_USER_MODE_ONLY (1), with which any user may have one."""

TRACED = b"t"
"""What the process that becomes QEMU writes if it is traced."""


def find_injection() -> Any:
    """The module for it; None where it is not possible."""
    try:
        # From the engine's host directory, as `removal` is (files.py).
        import injection  # type: ignore[import-not-found]
    except ImportError:
        return None
    return injection if injection.is_possible() else None


def give_userfaultfd(injection: Any, pid: int) -> bool:
    """Give the traced child ``pid``, which is executing a program, a userfaultfd, and let it run.
    False if a filter of system calls has killed it for that."""
    try:
        injection.call_at_exec(pid, USERFAULTFD, FLAGS)
    except OSError:
        return True  # it runs, but is not traced
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None or ended.si_code == os.CLD_EXITED:
        return True
    return ended.si_status != signal.SIGSYS

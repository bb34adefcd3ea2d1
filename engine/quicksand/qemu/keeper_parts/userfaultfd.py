"""Giving a QEMU its userfaultfd (userfaultfd(2)), by which clients track the memory that it writes.
Only the process itself can make one, and QEMU has no use for it: so the process is made to do so
before QEMU's first instruction (base/injection.py).

Without one the first checkpoint tries the same with the running QEMU (snapshots/userfault.py).
"""

import os
import signal
from typing import Any

from quicksand.base import injection

VARIABLE = "QUICKSAND_TRACKING"
"""Environment variable, which clients pass on: if it asks for another way of tracking, no
userfaultfd is given (snapshots/tracking.py)."""
WRITE_PROTECT = "write-protect"

USERFAULTFD = 323
"""The system call's number on x86_64."""
FLAGS = 0o2004001
"""O_CLOEXEC, O_NONBLOCK and UFFD_USER_MODE_ONLY (1), with which any user may have a userfaultfd."""

ASKING, TRACED, REFUSED = b"a", b"t", b"r"
"""Words of the process that becomes QEMU: it writes the first one before it asks to be traced, and
then one of the others. If it does not, a filter of system calls has killed it for asking."""


def find_injection() -> Any:
    """Return the module for it; None where it is not possible, or not wanted."""
    if (os.environ.get(VARIABLE) or WRITE_PROTECT) != WRITE_PROTECT:
        return None
    return injection if injection.is_possible() else None


def give_userfaultfd(injection: Any, pid: int) -> bool:
    """Give the traced child ``pid``, which is executing a program, a userfaultfd if the kernel does
    not refuse one, and let it run. Returns False if the child ends instead: a filter of system
    calls has killed it, or it is killed here because it may be half changed."""
    try:
        injection.call_at_exec(pid, USERFAULTFD, FLAGS)
    except OSError:
        os.kill(pid, signal.SIGKILL)  # nobody has waited for it, so the id is still its own
        return False
    return True

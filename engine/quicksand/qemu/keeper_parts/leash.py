"""The leash: a pipe through which the kernel kills QEMU when its owner ends.

QEMU has the read end; only the owner has the write end, and nothing is ever written to it. Before
it becomes QEMU, the process asks the kernel for a signal on any event of the pipe (fcntl(2),
O_ASYNC and F_SETSIG). The only possible event is that the last writer is gone, and the signal is
SIGKILL. All QEMUs of a sandbox are one process group and share the open pipe, so any process that
has the read end can take them off the leash. Linux only; elsewhere only the keeper ends QEMU.
"""

import fcntl
import os
import select
import signal
import sys


def put_on(leash: int | None, group: int | None) -> None:
    """Put this process, which is about to become a QEMU, on the leash, and into the process group
    ``group`` of the QEMUs that are on it already. Kills it if the owner is gone by now."""
    os.setpgid(0, group or 0)
    if leash is None:
        return
    os.set_inheritable(leash, True)
    if group is not None or not sys.platform.startswith("linux"):
        return
    fcntl.fcntl(leash, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(leash, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(leash, fcntl.F_SETFL, fcntl.fcntl(leash, fcntl.F_GETFL) | os.O_ASYNC)
    if _is_let_go(leash):
        os.kill(os.getpid(), signal.SIGKILL)


def is_on(leash: int) -> bool:
    """Whether QEMU is still on the leash."""
    return bool(fcntl.fcntl(leash, fcntl.F_GETFL) & os.O_ASYNC)


def is_pulled(leash: int) -> bool:
    """Whether the owner is gone without having taken QEMU off the leash."""
    return _is_let_go(leash) and is_on(leash)


def _is_let_go(leash: int) -> bool:
    watched = select.poll()
    watched.register(leash, 0)
    return bool(watched.poll(0))


def let_off(leash: int) -> None:
    """Take QEMU off the leash: it outlives its owner from now on."""
    if sys.platform.startswith("linux"):
        fcntl.fcntl(leash, fcntl.F_SETFL, fcntl.fcntl(leash, fcntl.F_GETFL) & ~os.O_ASYNC)

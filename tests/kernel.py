"""What this host's kernel promises for the tracking of written memory, found out by other means
than the engine's own: tests of those fail where they should work and do not."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest
from quicksand.snapshots.tracking import ANONYMOUS, SOFT_DIRTY, WRITE_PROTECT

IS_RIGHT = (
    sys.platform == "linux"
    and os.uname().machine == "x86_64"
    and tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 7)
)
"""Whether the kernel has what write protection takes."""

IS_FILTERED = IS_RIGHT and "Seccomp:\t0" not in Path("/proc/self/status").read_text()
"""Whether this process is under a filter of system calls, such as a container's."""

needs_write_protection = pytest.mark.skipif(
    not IS_RIGHT or IS_FILTERED, reason="it takes Linux 6.7 on x86_64, and no filter"
)

CALLS = """
import ctypes, os
call = ctypes.CDLL(None).syscall
raise SystemExit(
    call(323, 0o2004001) < 0  # userfaultfd
    or call(438, os.pidfd_open(os.getpid()), 0, 0) < 0  # pidfd_getfd
    or call(101, 0, 0, 0, 0) < 0  # ptrace: PTRACE_TRACEME
)
"""


def promised_level() -> str:
    """The best level that this host must have."""
    if IS_RIGHT and not (IS_FILTERED and _is_refused()):
        return WRITE_PROTECT
    return SOFT_DIRTY if has_soft_dirty_bits() else ANONYMOUS


def _is_refused() -> bool:
    """Whether the filter refuses one of the system calls for it, or kills for it."""
    return subprocess.run([sys.executable, "-c", CALLS], check=False).returncode != 0


def has_soft_dirty_bits() -> bool:
    """A page of new memory has bit 55 where there is such a bit."""
    memory = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[0] = 1
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    with Path("/proc/self/pagemap").open("rb") as file:
        file.seek(address // 4096 * 8)
        entry = int.from_bytes(file.read(8), "little")
    return bool(entry >> 55 & 1)

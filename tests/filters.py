"""Real filters of system calls (seccomp(2)), as container runtimes and service managers install
them. A process keeps its filter until it ends, so tests put it on a child."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from pathlib import Path

USERFAULTFD, PTRACE, PIDFD_GETFD = 323, 101, 438
"""Numbers of system calls on x86_64."""

# linux/seccomp.h
KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, ALLOW = 0x80000000, 0, 0x30000, 0x50000, 0x7FFF0000
REFUSE = ERRNO | 1
"""The call fails with EPERM."""

_SET_SECCOMP, _NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2
# linux/bpf_common.h: load the call's number, jump if equal, return.
_LOAD, _JUMP, _RETURN = 0x20, 0x15, 0x06


def install(number: int, action: int) -> None:
    """Have the kernel take ``action`` when this process, or one that descends from it, makes the
    system call ``number``."""
    program = b"".join(
        struct.pack("<HBBI", *line)
        for line in [
            (_LOAD, 0, 0, 0),
            (_JUMP, 0, 1, number),
            (_RETURN, 0, 0, action),
            (_RETURN, 0, 0, ALLOW),
        ]
    )
    lines = ctypes.create_string_buffer(program)
    header = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(lines))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert prctl(_SET_SECCOMP, _MODE_FILTER, header, 0, 0) == 0, ctypes.get_errno()


def run_filtered(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a Python script that may import the engine and these tests, and calls `install`."""
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )

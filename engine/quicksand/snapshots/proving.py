"""Trying out how a QEMU gets its userfaultfd and a checkpoint its use, with a program that does
nothing. Run as a script, because it forks, and a filter of system calls may kill it:

    python -m quicksand.snapshots.proving

It prints why tracking by write protection is not possible, or nothing if it is.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys

from quicksand.base import injection
from quicksand.qemu.keeper_parts.bounds import no_core_files
from quicksand.qemu.keeper_parts.launch import launch
from quicksand.snapshots import userfault

KILLED = "a filter of system calls kills for userfaultfd, ptrace or pidfd_getfd"


@functools.cache
def find_refusal() -> str:
    """The reason why programs that are launched in the keeper's way cannot be tracked; "" if they
    can. The first call takes as long as starting Python; its result stays true for this process."""
    argv = [sys.executable, "-P", "-m", __name__]
    tried = subprocess.run(argv, capture_output=True, text=True, check=False)
    if tried.returncode < 0:
        return KILLED
    if tried.returncode:
        last = tried.stderr.strip().rpartition("\n")[2]
        return f"the attempt failed: {last}"
    return tried.stdout.strip()


def _try() -> str:
    try:
        userfault.prove()
        _try_with_program()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _try_with_program() -> None:
    # The keeper, which is a script, finds the module under this name.
    sys.modules["injection"] = injection
    # A program that exists whatever PATH says: this process keeps the result.
    idle = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
    pid, *pipes = launch(idle, dict(os.environ), {}, "/", None, None)
    try:
        os.close(userfault.fetch(pid))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for pipe in pipes:
            os.close(pipe)


if __name__ == "__main__":
    no_core_files()
    print(_try())  # noqa: T201 - its parent reads it

"""The work of the holder of a sandbox's lock, as written in the lock's file.

A held lock alone only shows that somebody works on the sandbox. The word is written by the holder,
and counts only while the lock is held. Processes of the machine hold the lock, too, as long as one
of them lives.
"""

from __future__ import annotations

import contextlib
import os
from enum import StrEnum
from pathlib import Path

from quicksand.base.regular import open_file

WORD_MAX = 16


class Held(StrEnum):
    """The work for which a lock is held."""

    START = "starting"
    """Somebody starts the sandbox."""
    RUN = "running"
    """The sandbox was started."""
    WORK = "working"
    """Somebody works on a sandbox that does not run, and goes on not running."""


def say_held(lock: int, held: Held) -> None:
    """Write the work into the file of the lock with the descriptor ``lock``, which the caller
    holds. Does nothing on a full disk."""
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, held.value.encode(), 0)


def why_held(lock: Path) -> Held | None:
    """Return the work for which a held lock is held; None if its file names none. Blocks for
    I/O."""
    with contextlib.suppress(OSError, ValueError), open_file(lock) as file:
        return Held(file.read(WORD_MAX).decode("ascii"))
    return None

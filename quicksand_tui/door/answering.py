"""Decides which client answers the queries of a guest's terminal (DA, DSR and the like).

Several clients (apps, panes, commands) may show one terminal. Each gets a program's query and would
answer it, so they share a file lock beside the machine's sockets: the first client holds it, and
another takes it when that one exits or dies. A revert makes a new machine with new locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand.records.layout import MachineDir


class AnswerRight:
    """The right to answer, for one client. Never raises; without the lock file there is no
    right."""

    def __init__(self, machine: MachineDir, session: str) -> None:
        # The guest chooses the session's name, so it is not used in a path.
        name = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        path = machine.root / f"answers-{name}.lock"
        self._descriptor: int | None = None
        self._is_held = False
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with contextlib.suppress(OSError):  # the machine has just ended
            self._descriptor = os.open(path, flags, 0o600)

    def take(self) -> bool:
        """Takes the right if nobody holds it; returns whether this client holds it."""
        if self._descriptor is not None and not self._is_held:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._is_held = True
        return self._is_held

    def takes_over(self) -> bool:
        """Takes the right if nobody holds it; returns whether this client held it before. Queries
        that arrive at the moment of taking it over were still the former client's to answer."""
        had = self._is_held
        return self.take() and had

    def close(self) -> None:
        """Gives the right back; idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._is_held = False

"""Leases: which client owns which socket of a sandbox. A lease is a flock, so it ends with its
owner."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import StateError
from quicksand.base.files import is_locked, try_lock

POLL_S = 0.05


@dataclass(slots=True)
class Lease:
    """The right to connect to ``socket``. Release it after closing the connection."""

    socket: Path
    _descriptor: int | None

    def release(self) -> None:
        """Give the socket back. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_leased(socket: Path) -> bool:
    """Whether a client owns ``socket`` now. Raises OSError."""
    return is_locked(socket.with_suffix(".lock"))


def take_at_once(socket: Path) -> Lease | None:
    """Take the lease of ``socket``; None if another client has it. Raises OSError."""
    descriptor = try_lock(socket.with_suffix(".lock"))
    return None if descriptor is None else Lease(socket, descriptor)


async def take_lease(sockets: Sequence[Path], *, what: str, timeout: float) -> Lease:
    """Take the lease of a free socket, waiting up to ``timeout`` seconds for one.

    Raises StateError, naming ``what``, if all stay taken or the sandbox is not running.
    """
    deadline = asyncio.get_running_loop().time() + timeout
    # The guest may still have to reset a port that was just released, so begin anywhere.
    first = int.from_bytes(os.urandom(2)) % len(sockets)
    order = [*sockets[first:], *sockets[:first]]
    while True:
        for socket in order:
            if not socket.parent.is_dir():
                raise StateError("the sandbox is not running")
            if (lease := take_at_once(socket)) is not None:
                return lease
        if asyncio.get_running_loop().time() >= deadline:
            raise StateError(
                f"all {len(sockets)} {what} of the sandbox are in use",
                hint="close a client (a shell, a running exec, the app) and try again",
            )
        await asyncio.sleep(POLL_S)

"""Peers that reset a connection from which nobody reads, because the other side takes nothing:
asyncio does not look at it then, so it would stay as long as the other side waits."""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Callable


class Resets:
    """Tells of resets of the connections that it watches. Linux only: elsewhere it never does."""

    def __init__(self) -> None:
        self._told: dict[int, Callable[[], object]] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll is not None:
            asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._look)

    def watch(self, descriptor: int, told: Callable[[], object]) -> None:
        """Call ``told`` once if the peer of this socket resets it, until `forget`. Raises
        OSError."""
        if self._epoll is not None:
            self._epoll.register(descriptor, 0)  # errors are told of in any case (epoll_ctl(2))
            self._told[descriptor] = told

    def forget(self, descriptor: int, told: Callable[[], object]) -> None:
        """Do not call ``told`` any more. The socket may be closed by now, and its number that of
        another one. Idempotent."""
        if self._epoll is not None and self._told.get(descriptor) == told:
            del self._told[descriptor]
            with contextlib.suppress(OSError):  # the kernel forgets what is closed
                self._epoll.unregister(descriptor)

    def _look(self) -> None:
        assert self._epoll is not None
        for descriptor, events in self._epoll.poll(0):
            if (told := self._told.get(descriptor)) is None:
                continue
            self.forget(descriptor, told)
            # A hang-up alone: both sides have sent their last, which may not be read yet.
            if events & select.EPOLLERR:
                told()

    def close(self) -> None:
        """Watch none any more."""
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
        self._told.clear()

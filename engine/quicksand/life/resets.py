"""Resets by peers of connections from which nobody reads because the other side takes nothing.
asyncio does not notice these, so the connection would stay as long as the other side waits."""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Callable


class Resets:
    """Reports resets of the connections that it watches. Linux only: elsewhere it reports none."""

    def __init__(self) -> None:
        self._told: dict[int, Callable[[], object]] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll is not None:
            asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._look)

    def watch(self, descriptor: int, told: Callable[[], object]) -> None:
        """Call ``told`` once if the peer of this socket resets it, until `forget`. Raises
        OSError."""
        if self._epoll is not None:
            self._epoll.register(descriptor, 0)  # errors are reported in any case (epoll_ctl(2))
            self._told[descriptor] = told

    def forget(self, descriptor: int, told: Callable[[], object]) -> None:
        """Stop calling ``told``. The socket may be closed by now, and its number reused.
        Idempotent."""
        if self._epoll is not None and self._told.get(descriptor) == told:
            del self._told[descriptor]
            with contextlib.suppress(OSError):  # the kernel forgets closed sockets
                self._epoll.unregister(descriptor)

    def _look(self) -> None:
        assert self._epoll is not None
        for descriptor, events in self._epoll.poll(0):
            if (told := self._told.get(descriptor)) is None:
                continue
            self.forget(descriptor, told)
            # Only a hang-up: both sides have sent their last bytes, which may not be read yet.
            if events & select.EPOLLERR:
                told()

    def close(self) -> None:
        """Watch no connection any more."""
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
        self._told.clear()

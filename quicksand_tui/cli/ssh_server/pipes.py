"""The near end of an SSH channel: reads and writes at the pace of the other side."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import asyncssh

QUEUE_MAX = 128 * 1024
"""Bytes that wait to be read before the channel is paused. The channel itself then holds as much as
its window allows."""

LOOK_S = 1.0
"""Seconds between looks whether a channel that is not read from has been closed."""

KEYS_S = 0.02
"""Seconds between looks whether an exchange of keys has ended; there is one each hour or GiB."""

_FLOW = "quicksand_flow"


class Flow:
    """Whether a connection takes more bytes. A channel has a window of its own, which the client
    chooses: with a huge one all output would wait here, in the transport's buffer."""

    def __init__(self, connection: asyncssh.SSHServerConnection) -> None:
        self._connection = connection
        self._is_over = False
        self._is_open = asyncio.Event()
        self._is_open.set()
        # The transport tells its protocol, and that of asyncssh does nothing with it.
        connection.pause_writing = self._is_open.clear  # type: ignore[method-assign]
        connection.resume_writing = self._is_open.set  # type: ignore[method-assign]
        connection.set_extra_info(**{_FLOW: self})

    async def wait(self) -> None:
        """Waits until the connection takes more, or is over."""
        await self._is_open.wait()
        # While keys are exchanged asyncssh keeps all output, without a bound; and a client can
        # begin that and never go on.
        while not (self._is_over or self._connection._kex_complete):
            await asyncio.sleep(KEYS_S)
            await self._is_open.wait()

    def end(self) -> None:
        """Wakes all that wait: the transport is gone."""
        self._is_over = True
        self._is_open.set()


class Pipe:
    """The methods of a session that asyncssh calls, as coroutines. A session is a class of
    asyncssh's, too."""

    def __init__(self) -> None:
        self._chan: Any = None
        self._queue: list[bytes] = []
        self._queued = 0
        self._paused = False
        self._at_end = False
        self._has_ended = False
        self._flow: Flow | None = None
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.lost = asyncio.Event()
        """Set once the channel is closed, by either side."""
        self.when_lost: Callable[[], None] = lambda: None

    # Called by asyncssh.

    def connection_made(self, chan: Any) -> None:
        self._chan = chan
        self._flow = chan.get_extra_info(_FLOW)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._queue.append(data)
        self._queued += len(data)
        if self._queued > QUEUE_MAX and not self._paused:
            self._paused = True
            self._chan.pause_reading()
        self._changed.set()

    def eof_received(self) -> bool:
        self._at_end = True
        self._changed.set()
        return True  # this side may still send

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._changed.set()
        self._writable.set()
        self.when_lost()

    # Called by the server of the channel.

    async def read(self) -> bytes:
        """Returns bytes of the client; b"" once it sends nothing more, or the channel is closed."""
        while not self._queue:
            if self._at_end or self.lost.is_set():
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = b"".join(self._queue)  # the fewer pieces, the less work for the guest's agent
        self._queue.clear()
        self._queued = 0
        if self._paused:
            self._paused = False
            self._chan.resume_reading()
        return data

    async def write(self, data: bytes, datatype: int | None = None) -> bool:
        """Sends to the client; waits while it takes nothing. Returns whether the channel is
        open."""
        await self._writable.wait()
        if self._flow is not None:
            await self._flow.wait()
        if self.lost.is_set() or self._chan.is_closing():
            return False
        self._chan.write(data, datatype)
        return True

    def write_eof(self) -> None:
        """Tells the client that nothing more comes."""
        if not self._chan.is_closing():
            self._has_ended = True
            self._chan.write_eof()

    async def until_lost(self, work: Coroutine[Any, Any, None]) -> bool:
        """Does work until it is done or the channel is closed, which cancels it. Returns whether it
        is done. Raises the work's errors."""
        working = asyncio.create_task(work, name="quicksand-ssh-work")
        losing = asyncio.create_task(self._wait_lost(), name="quicksand-ssh-lost")
        try:
            await asyncio.wait((working, losing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, losing):
                task.cancel()
            await asyncio.wait((working, losing))
        if working.cancelled():
            return False
        working.result()
        return True

    async def _wait_lost(self) -> None:
        """Waits until the channel is closed. While it is paused, asyncssh tells of a close only
        after all earlier data, which may never be read; so the close is looked for."""
        while not self.lost.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self.lost.wait()
            # After an end of this side's own, every channel looks as if it were closing.
            if self._paused and not self._has_ended and self._chan.is_closing():
                self._chan.close()  # drops the waiting data, and then the channel is lost

"""QMP through the qemu.qmp library, with what it lacks: leases, bounded events, our errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from qemu.qmp import EventListener, Message, QMPClient, QMPError, Runstate

from quicksand.errors import MachineError, QemuDiedError, StateError
from quicksand.host.lease import Lease, take_lease
from quicksand.layout import QMP_MONITORS, MachineDir

CONNECT_TIMEOUT_S = 20.0
EVENTS_MAX = 1000
"""Events kept for a slow reader; the oldest go first. The guest can cause them at will."""


class _BoundedListener(EventListener):
    """Keeps the latest events only: the library's own listener keeps all of them for ever."""

    def __init__(self) -> None:
        super().__init__()
        self._latest: deque[Message] = deque(maxlen=EVENTS_MAX)
        self._arrived = asyncio.Event()

    async def put(self, event: Message) -> None:
        self._latest.append(event)
        self._arrived.set()

    async def get(self) -> Message:
        while not self._latest:
            self._arrived.clear()
            await self._arrived.wait()
        return self._latest.popleft()


class Monitor:
    """A QMP connection. Make one with `connect`; close it when done."""

    def __init__(self, client: QMPClient, lease: Lease, listener: _BoundedListener) -> None:
        self._client = client
        self._lease = lease
        self._listener = listener
        self._ended: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, machine: MachineDir, *, timeout: float = CONNECT_TIMEOUT_S) -> Monitor:
        """Connect to a free monitor of the sandbox.

        Raises StateError when none is free or the sandbox is not running, QemuDiedError when QEMU
        closes the connection, MachineError when it does not answer within ``timeout`` seconds.
        """
        sockets = [machine.qmp_socket(n) for n in range(QMP_MONITORS)]
        lease = await take_lease(sockets, what="QMP monitors", timeout=timeout)
        client = QMPClient("quicksand")
        # A QEMU that dies is no news for the log of the caller's program; we raise instead.
        client.logger = _quiet_logger()
        # The library's own listener cannot be removed: let it refuse every event instead.
        client.events.event_filter = lambda _: False
        listener = _BoundedListener()
        client.register_listener(listener)
        try:
            async with asyncio.timeout(timeout):
                await client.connect(str(lease.socket))
        except BaseException as error:
            lease.release()
            if isinstance(error, TimeoutError):
                raise MachineError(f"QEMU did not answer on QMP within {timeout:g} s") from None
            if isinstance(error, QMPError):
                raise QemuDiedError("QEMU ended before it answered on QMP") from error
            raise
        return cls(client, lease, listener)

    async def execute(self, command: str, **arguments: Any) -> Any:
        """Run one QMP command and return its result.

        Raises StateError with QEMU's words when it refuses, QemuDiedError when it is gone.
        """
        from qemu.qmp import ExecuteError

        message = {"execute": command}
        try:
            return await self._client.execute(command, arguments or None)
        except ExecuteError as error:
            raise StateError(f"QEMU refused {message['execute']}: {error}") from error
        except (QMPError, EOFError, OSError) as error:
            raise QemuDiedError(f"QEMU ended during {command}") from error

    async def pass_descriptor(self, descriptor: int, name: str) -> None:
        """Give QEMU a copy of a file descriptor, under ``name``. Raises as `execute` does."""
        try:
            self._client.send_fd_scm(descriptor)
        except (QMPError, OSError) as error:
            raise QemuDiedError("QEMU ended while a file was passed to it") from error
        await self.execute("getfd", fdname=name)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """QMP events as they come. Ends with the connection."""
        ended = asyncio.ensure_future(self._until_ended())
        arrived: asyncio.Future[Message] | None = None
        try:
            while True:
                arrived = asyncio.ensure_future(self._listener.get())
                done, _ = await asyncio.wait((arrived, ended), return_when=asyncio.FIRST_COMPLETED)
                if arrived not in done:
                    return
                yield dict(arrived.result())
        finally:
            ended.cancel()
            if arrived is not None:
                arrived.cancel()

    async def _until_ended(self) -> None:
        """Return when the connection has ended, also if it has long since."""
        if self._client.runstate is Runstate.RUNNING:
            await self._client.runstate_changed()

    async def close(self) -> None:
        """Disconnect and give the monitor back. Idempotent."""
        try:
            with contextlib.suppress(QMPError, EOFError, OSError):
                await self._client.disconnect()
        finally:
            self._lease.release()


def _quiet_logger() -> logging.Logger:
    logger = logging.getLogger("quicksand.qmp")
    logger.setLevel(logging.CRITICAL + 1)
    return logger

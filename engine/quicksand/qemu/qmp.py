"""QMP through the qemu.qmp library, with additions: leases, bounded events, our errors, jobs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from qemu.qmp import (
    ConnectError,
    EventListener,
    ExecuteError,
    Message,
    QMPClient,
    QMPError,
    Runstate,
)
from qemu.qmp.qmp_client import NegotiationError

from quicksand.base.errors import MachineError, QemuDiedError, StateError
from quicksand.base.lease import Lease, take_lease
from quicksand.records.layout import QMP_MONITORS, MachineDir

CONNECT_TIMEOUT_S = 20.0
NEGOTIATIONS = 3

EVENTS_MAX = 1000
"""Events that are kept for a slow reader; the guest can cause any number of them."""


class _BoundedListener(EventListener):
    """Keeps only the latest events, where the library's own listener keeps all of them."""

    def __init__(self, *names: str) -> None:
        """Hear the events ``names``, or all."""
        super().__init__(names)
        self._latest: deque[Message] = deque(maxlen=EVENTS_MAX)
        self._arrived = asyncio.Event()

    async def put(self, event: Message) -> None:
        if self.accept(event):
            self._latest.append(event)
            self._arrived.set()

    async def get(self) -> Message:
        while not self._latest:
            self._arrived.clear()
            await self._arrived.wait()
        return self._latest.popleft()


class _EventFirstError(QMPError):
    """An event came before the answer to ``qmp_capabilities``, which the library does not expect:
    QEMU sends events as soon as it has read the command."""


async def _connect(lease: Lease) -> tuple[QMPClient, _BoundedListener]:
    """Connect to a monitor. Raises QMPError, AssertionError."""
    client = QMPClient("quicksand")
    # We raise an error when QEMU dies, so the library need not log it.
    client.logger = _quiet_logger()
    # The library's own listener cannot be removed: let it refuse every event instead.
    client.events.event_filter = lambda _: False
    listener = _BoundedListener()
    client.register_listener(listener)
    try:
        await client.connect(str(lease.socket))
    except ConnectError as error:
        found = error.exc
        if isinstance(found, NegotiationError) and isinstance(found.exc, AssertionError):
            raise _EventFirstError from error
        raise
    except AssertionError:
        # The library's own error: the session was there, and has ended since.
        with contextlib.suppress(QMPError, EOFError, OSError):
            await client.disconnect()
        raise
    return client, listener


class Monitor:
    """A QMP connection, made by `connect`. The user has to close it."""

    def __init__(self, client: QMPClient, listener: _BoundedListener, lease: Lease) -> None:
        self._client = client
        self._listener = listener
        self._lease = lease
        self._ended: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, machine: MachineDir, *, timeout: float = CONNECT_TIMEOUT_S) -> Monitor:
        """Connect to a free monitor of the sandbox.

        Raises StateError if none is free or the sandbox is not running, QemuDiedError if QEMU
        closes the connection, MachineError if it does not answer within ``timeout`` seconds.
        """
        sockets = [machine.qmp_socket(n) for n in range(QMP_MONITORS)]
        lease = await take_lease(sockets, what="QMP monitors", timeout=timeout)
        try:
            async with asyncio.timeout(timeout):
                for _ in range(NEGOTIATIONS - 1):
                    with contextlib.suppress(_EventFirstError):
                        return cls(*await _connect(lease), lease)
                return cls(*await _connect(lease), lease)
        except BaseException as error:
            lease.release()
            if isinstance(error, TimeoutError):
                raise MachineError(f"QEMU did not answer on QMP within {timeout:g} s") from None
            if isinstance(error, QMPError | AssertionError):
                raise QemuDiedError("QEMU ended before it answered on QMP") from error
            raise

    async def execute(self, command: str, **arguments: Any) -> Any:
        """Run one QMP command and return its result.

        Raises StateError with QEMU's words if it refuses, QemuDiedError if it is gone.
        """
        message = {"execute": command}
        try:
            return await self._client.execute(command, arguments or None)
        except ExecuteError as error:
            raise StateError(f"QEMU refused {message['execute']}: {error}") from error
        except (QMPError, EOFError, OSError) as error:
            raise QemuDiedError(f"QEMU ended during {command}") from error

    async def pass_descriptor(self, descriptor: int, name: str) -> None:
        """Give QEMU a copy of a file descriptor under ``name`` (QMP getfd). Raises as `execute`."""
        self._send(descriptor)
        await self.execute("getfd", fdname=name)

    async def execute_with_file(
        self, descriptor: int, argument: str, command: str, **arguments: Any
    ) -> Any:
        """Run a QMP command that opens a file, given as a descriptor: QEMU gets a copy of it as the
        ``argument`` that names the file. Raises as `execute`."""
        fdset = {"fdset-id": secrets.randbits(30)}
        self._send(descriptor)
        # QEMU dies if it reads another message at the moment when it takes the descriptor
        # (chardev/char-socket.c: tcp_get_msgfds in its main thread, tcp_chr_recv in the monitor's).
        await self.execute("add-fd", **fdset)
        name = f"/dev/fdset/{fdset['fdset-id']}"
        # QEMU runs them in this order; nobody needs to wait for each.
        replies: tuple[Any, ...] = await asyncio.gather(
            self.execute(command, **{argument: name}, **arguments),
            self.execute("remove-fd", **fdset),
            return_exceptions=True,
        )
        if isinstance(replies[0], BaseException):
            raise replies[0]
        return replies[0]

    def _send(self, descriptor: int) -> None:
        """Pass a file descriptor, with the space that QEMU skips. The library's `send_fd_scm` needs
        a private part of asyncio's own event loop. Raises QemuDiedError."""
        writer = self._client._writer
        if writer is None:
            raise QemuDiedError("QEMU ended before a file was passed to it")
        try:
            ours = writer.get_extra_info("socket")
            with socket.socket(fileno=os.dup(ours.fileno())) as same:
                socket.send_fds(same, [b" "], [descriptor])
        except OSError as error:
            raise QemuDiedError("QEMU ended while a file was passed to it") from error

    def events(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield QMP events as they come, until the connection ends."""
        return self._hear(self._listener)

    @contextlib.contextmanager
    def listen(self, *names: str) -> Iterator[AsyncGenerator[dict[str, Any], None]]:
        """Yield the QMP events ``names`` that come from now on, until the connection ends. To miss
        none, begin before the command that causes them."""
        listener = _BoundedListener(*names)
        with self._client.listen(listener):
            yield self._hear(listener)

    async def _hear(self, listener: _BoundedListener) -> AsyncGenerator[dict[str, Any], None]:
        ended = asyncio.ensure_future(self._until_ended())
        arrived: asyncio.Future[Message] | None = None
        try:
            while True:
                arrived = asyncio.ensure_future(listener.get())
                done, _ = await asyncio.wait((arrived, ended), return_when=asyncio.FIRST_COMPLETED)
                if arrived not in done:
                    return
                yield dict(arrived.result())
        finally:
            ended.cancel()
            if arrived is not None:
                arrived.cancel()

    async def _until_ended(self) -> None:
        """Wait until the connection has ended."""
        if self._client.runstate is Runstate.RUNNING:
            await self._client.runstate_changed()

    async def close(self) -> None:
        """Disconnect and release the monitor. Idempotent."""
        try:
            with contextlib.suppress(QMPError, EOFError, OSError):
                await self._client.disconnect()
        finally:
            self._lease.release()


async def wait_for_event(
    events: AsyncGenerator[dict[str, Any], None],
    is_it: Callable[[dict[str, Any]], bool],
    *,
    doing: str,
) -> dict[str, Any]:
    """Return the data of the first of ``events`` (see `Monitor.listen`) whose data ``is_it``
    accepts. Raises QemuDiedError if QEMU ends before, while ``doing`` something."""
    async with contextlib.aclosing(events) as heard:
        async for event in heard:
            data = dict(event.get("data") or {})
            if is_it(data):
                return data
    raise QemuDiedError(f"QEMU ended during {doing}")


async def run_job(monitor: Monitor, command: str, **arguments: Any) -> None:
    """Run a QMP command that starts a background job (QMP query-jobs) and wait for its end.

    Raises MachineError with QEMU's words if the job failed, StateError if QEMU did not start it,
    QemuDiedError. After a cancellation the job still ends, but it is not dismissed.
    """
    name = f"quicksand-{secrets.token_hex(4)}"
    # QEMU reports each step of a job. The event has no room for an error, the list of jobs has.
    with monitor.listen("JOB_STATUS_CHANGE") as events:
        await monitor.execute(command, **{"job-id": name}, **arguments)
        await wait_for_event(
            events, lambda job: job == {"id": name, "status": "concluded"}, doing=command
        )
    job = await _find_job(monitor, name)
    await monitor.execute("job-dismiss", id=name)
    if job.get("error") is not None:
        raise MachineError(f"QEMU failed at {command}: {job['error']}")


async def _find_job(monitor: Monitor, name: str) -> dict[str, Any]:
    for job in await monitor.execute("query-jobs"):
        if job["id"] == name:
            return dict(job)
    raise MachineError(f"QEMU has forgotten its job {name}: nobody knows how it ended")


def _quiet_logger() -> logging.Logger:
    logger = logging.getLogger("quicksand.qmp")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


async def human(monitor: Monitor, line: str) -> None:
    """Run an HMP command that QMP lacks. HMP reports errors as text in a successful reply. Raises
    MachineError."""
    said = str(await monitor.execute("human-monitor-command", **{"command-line": line})).strip()
    if said and "removed" not in said:
        raise MachineError(f"QEMU did not {line!r}: {said}")

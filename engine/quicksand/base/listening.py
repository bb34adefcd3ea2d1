"""Listening at this host's loopback: for connections, and for datagrams."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

from quicksand.base.errors import HostError, PortInUseError

BACKLOG = 1024
"""Connections that wait until they are taken; the kernel's own limit is 4096 (listen(2))."""

TRIES = 50
"""Attempts to find a port that is free on both addresses."""

NOT_OURS = (errno.EADDRINUSE, errno.EACCES, errno.EPERM)
"""Errors of a port that others use, or that this user may not use."""

FULL = (errno.EMFILE, errno.ENFILE)


def listen(port: int) -> list[socket.socket]:
    """Listen at a port of 127.0.0.1 and of ::1, or of 127.0.0.1 only where there is no IPv6; port 0
    is any that is free. Raises PortInUseError, naming the port."""
    for _ in range(TRIES):
        first = _listen("127.0.0.1", port, socket.AF_INET)
        try:
            return [first, _listen("::1", first.getsockname()[1], socket.AF_INET6)]
        except PortInUseError as error:
            number = getattr(error.__cause__, "errno", None)
            if number not in (*NOT_OURS, *FULL):
                return [first]
            first.close()
            if port or number in FULL:
                raise
        except BaseException:
            first.close()
            raise
    raise PortInUseError("no port is free on both 127.0.0.1 and ::1")


def _listen(host: str, port: int, family: socket.AddressFamily) -> socket.socket:
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise PortInUseError(
            f"host port {port} cannot be used: {reason} ({shown}:{port})",
            hint="choose another host port, or 0 for any free one",
        ) from error


def bind(port: int) -> list[socket.socket]:
    """Sockets for UDP at both loopback addresses, or only at that of IPv4 where there is no IPv6;
    port 0 is any that is free. Raises PortInUseError, HostError."""
    for _ in range(TRIES):
        first = _bind("127.0.0.1", port, socket.AF_INET)
        try:
            return [first, _bind("::1", first.getsockname()[1], socket.AF_INET6)]
        except PortInUseError:
            first.close()
            if port:
                raise
        except HostError:
            return [first]
    raise PortInUseError("no UDP port is free on both 127.0.0.1 and ::1")


def _bind(host: str, port: int, family: socket.AddressFamily) -> socket.socket:
    shown = f"[{host}]:{port}/udp" if family == socket.AF_INET6 else f"{host}:{port}/udp"
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            made.setblocking(False)
            made.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUseError(
                    f"{shown} is in use", hint="choose another port, or 0 for any that is free"
                ) from error
            why = os.strerror(error.errno or 0)
            raise HostError(f"cannot receive at {shown}: {why}") from error
        stack.pop_all()
        return made


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
"""Serves a connection, which it closes or hands on, also when it is cancelled."""

LIMIT = 64 * 1024
"""The most bytes of a line that a reader takes, and about half of its unread bytes."""

SHORT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Transient errors of accept(2); connections wait until they have passed."""

SHORT_S = 1.0
"""Seconds before the next attempt."""

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: a socket that is closed is reset (socket(7))."""


class Acceptor:
    """Serves the connections to some listening sockets, which it owns, each in a task. It begins
    when it is made, in a running event loop."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        serve: Serve,
        *,
        name: str,
        most: int | None = None,
        limit: int = LIMIT,
        resets: bool = False,
    ) -> None:
        """``name`` is the name of the tasks; at most ``most`` connections are served at the same
        time, and further ones closed. With ``resets``, an unserved connection is reset instead."""
        self._sockets = list(sockets)
        self._serve = serve
        self._name = name
        self._most = most
        self._limit = limit
        self._resets = resets
        self._tasks: set[asyncio.Task[None]] = set()
        self._unbegun: dict[asyncio.Task[None], socket.socket] = {}
        """Connections whose task has not yet begun."""
        self._loop = asyncio.get_running_loop()
        for one in self._sockets:
            one.setblocking(False)
            one.listen(BACKLOG)
            self._watch(one)

    def stop(self) -> None:
        """Accept no more; clients that have already connected are served. Idempotent."""
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            self._loop.remove_reader(one)
            self._take_all(one)
            one.close()

    async def close(self, *, grace_s: float = 0.0) -> None:
        """Accept no more, and end all connections: those that have not ended by themselves after
        ``grace_s`` are cancelled. All have ended when this returns or, if it is cancelled, raises.
        Idempotent."""
        self.stop()
        try:
            if self._tasks and grace_s:
                await asyncio.wait(self._tasks, timeout=grace_s)
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _watch(self, listening: socket.socket) -> None:
        if listening in self._sockets:  # it is not watched while one waited for lack of resources
            self._loop.add_reader(listening, self._take_all, listening)

    def _take_all(self, listening: socket.socket) -> None:
        """Accept all clients that have connected."""
        for _ in range(BACKLOG):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # the client has left
            except OSError as error:
                if error.errno not in SHORT_OF:
                    raise
                if self._sockets:
                    self._loop.remove_reader(listening)
                    self._loop.call_later(SHORT_S, self._watch, listening)
                return
            self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        if self._most is not None and len(self._tasks) >= self._most:
            self._refuse(connection)
            return
        task = self._loop.create_task(self._carry(connection), name=self._name)
        self._tasks.add(task)
        self._unbegun[task] = connection
        task.add_done_callback(self._forget)

    async def _carry(self, connection: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        del self._unbegun[task]  # from here on, asyncio closes it if this is cancelled
        try:
            ends = await asyncio.open_connection(sock=connection, limit=self._limit)
        except OSError:
            return  # the client has left
        await self._serve(*ends)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if (connection := self._unbegun.pop(task, None)) is not None:
            self._refuse(connection)

    def _refuse(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._resets:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.close()


class Closing(Protocol):
    """An `asyncio.Server`, or what stands for one."""

    @property
    def sockets(self) -> Sequence[Any]: ...

    def close(self) -> None: ...


async def close_server(server: Closing) -> None:
    """Close a server of asyncio so that each connection that it has accepted gets to its protocol,
    which may learn of the end afterwards. Idempotent."""
    loop = asyncio.get_running_loop()
    for one in server.sockets:
        loop.remove_reader(one)
    try:
        await asyncio.sleep(0)
    finally:
        server.close()


def bind_private(path: Path) -> socket.socket:
    """Return a Unix socket at ``path`` for this user only. The path is in a private directory and
    used only by the caller, so an existing socket was left by a killed process, and is replaced;
    anything else is not. Raises OSError."""
    if path.is_socket():
        path.unlink()
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(path))
        path.chmod(0o600)
        return listening
    except BaseException:
        listening.close()
        raise

"""The process that carries a sandbox's forwarded ports (forwarding.py): it listens on this host's
loopback, and has the guest's agent dial for each connection."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import resource
import socket
import struct
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from quicksand.base.effort import best_effort
from quicksand.base.errors import HostError, PortInUseError, QuicksandError, StateError
from quicksand.base.files import lock_within, try_named_lock
from quicksand.base.paths import paths
from quicksand.guest.connections import GuestConnection
from quicksand.guest.datagrams import GuestDatagrams
from quicksand.life.guest import InGuest
from quicksand.life.sandbox_life import Life
from quicksand.life.udp_relay import UdpRelay
from quicksand.qemu.keeper_parts.bounds import no_core_files
from quicksand.records.dialled import ForwarderFiles, write_dialled
from quicksand.records.layout import runtime_dir
from quicksand.records.port_forwards import FORWARDS_MAX, PortForward, Protocol
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import LOCK_WAIT_S

CHUNK = 64 * 1024
BACKLOG = 1024
REQUEST_MAX = 4096
"""Bytes of a request."""

PLACES = 240
"""Connections that are open at a time; an agent has 256 channels for each of its clients."""

PLACE_S = 10.0
"""Seconds that a connection waits for a place. A guest's own backlog would be as patient."""

FREE_TRIES = 50
"""Attempts to find a port that is free on both loopback addresses."""

ALIVE_S = 0.25
"""Seconds between looks whether the sandbox is there, while its agent is not."""

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: a socket that is closed is reset (socket(7))."""


@dataclass
class Listening:
    """A forward, and what belongs to it."""

    forward: PortForward
    servers: list[asyncio.Server]
    connections: set[asyncio.Task[None]] = field(default_factory=set)


class Forwarder:
    """The forwards of one sandbox."""

    def __init__(self, life: Life, files: ForwarderFiles, lock: int) -> None:
        """``lock`` is held open as long as this runs."""
        self._lock = lock
        self._guest = InGuest(life)
        self._life = life
        self._files = files
        self._forwards: dict[int, Listening] = {}
        self._changing = asyncio.Lock()
        self._places = asyncio.Semaphore(PLACES)
        self._datagrams = UdpRelay(self._dial_udp)
        self._has_ended = asyncio.Event()
        """The last forward was removed."""

    async def run(self) -> None:
        """Serve until the last forward is removed, or the sandbox ends. Raises what keeps it from
        seeing that end: it is not to outlive the sandbox."""
        server = await asyncio.start_unix_server(
            self._control, str(self._files.socket), limit=REQUEST_MAX
        )
        watching = asyncio.create_task(self._watch(), name="quicksand-forwarder-watch")
        removed = asyncio.create_task(self._has_ended.wait(), name="quicksand-forwarder-end")
        try:
            done, _ = await asyncio.wait({watching, removed}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            watching.cancel()
            removed.cancel()
            server.close()
            for listening in list(self._forwards.values()):
                await self._end(listening)
            await self._datagrams.close()

    async def _watch(self) -> None:
        """Return at the end of the sandbox: its runtime directory, in which our lock is, is gone
        then."""
        while True:
            with contextlib.suppress(QuicksandError):
                await self._guest.wait_disconnected()
            # A revert: the next machine is, or will be, there.
            entry = self._life.registry.inspect(self._life.id)
            if entry is None or not entry.is_live or not _is_at(self._files, self._lock):
                return
            await asyncio.sleep(ALIVE_S)

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry out one request of a client."""
        answer: dict[str, Any]
        try:
            request = json.loads(await reader.readline())
            async with self._changing:
                answer = await self._do(request)
        except QuicksandError as error:
            told = {"kind": type(error).__name__, "message": str(error), "hint": str(error.hint)}
            answer = {"error": told}
        except (ValueError, KeyError, TypeError) as error:
            answer = {"error": {"kind": "HostError", "message": f"no request: {error}"}}
        with contextlib.suppress(ConnectionError):
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
            writer.close()
        if not self._forwards and not self._datagrams.forwards:
            self._has_ended.set()

    async def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "add":
                return await self._add(PortForward(host=request["host"], guest=request["guest"]))
            case "remove":
                if (found := self._forwards.get(request["host"])) is None:
                    raise StateError(f"port {request['host']} is not forwarded")
                await self._end(found)
                return {}
            case "add_udp":
                wanted = PortForward(request["host"], request["guest"], Protocol.UDP)
                made = await self._datagrams.add(wanted)
                self._tell()
                return {"host": made.host}
            case "remove_udp":
                await self._datagrams.remove(request["host"])
                self._tell()
                return {}
            case other:
                raise ValueError(f"{other!r:.80} is not known")

    async def _add(self, wanted: PortForward) -> dict[str, Any]:
        if (found := self._forwards.get(wanted.host)) is not None:
            if found.forward == wanted:
                return {"host": wanted.host}
            raise StateError(
                f"port {wanted.host} is forwarded to port {found.forward.guest} already"
            )
        if len(self._forwards) >= FORWARDS_MAX:
            raise StateError(f"{FORWARDS_MAX} forwards are the most")
        sockets = listen(wanted.host)
        port = sockets[0].getsockname()[1]
        listening = Listening(PortForward(host=port, guest=wanted.guest), [])

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            listening.connections.add(task)
            try:
                await self._serve(reader, writer, wanted.guest)
            except asyncio.CancelledError:
                reset(writer)  # asyncio would report a task of its own that was cancelled
            finally:
                listening.connections.discard(task)

        for one in sockets:
            server = await asyncio.start_server(accept, sock=one, backlog=BACKLOG)
            listening.servers.append(server)
        self._forwards[port] = listening
        self._tell()
        return {"host": port}

    async def _end(self, listening: Listening) -> None:
        for server in listening.servers:
            server.close()
        for task in listening.connections:
            task.cancel()
        if listening.connections:
            await asyncio.wait(listening.connections)
        del self._forwards[listening.forward.host]
        self._tell()

    def _tell(self) -> None:
        """Write what there is, for those who list sandboxes."""
        if not _is_at(self._files, self._lock):
            return  # the directory is that of the sandbox's next run
        made = [one.forward for one in self._forwards.values()]
        with best_effort("tell of the forwarded ports", self._life.log):
            write_dialled(self._files, [*made, *self._datagrams.forwards])

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        """Carry one connection until both directions have ended. One that cannot be made, or that
        breaks, is reset, as if the client had asked the guest itself."""
        try:
            async with self._place(), await self._guest.dial(port) as connection:
                await carry(connection, reader, writer)
        except* (QuicksandError, OSError):
            reset(writer)
        finally:
            writer.close()

    @contextlib.asynccontextmanager
    async def _dial_udp(self, port: int) -> AsyncIterator[GuestDatagrams]:
        """Connect a socket of the guest, which takes a place, too. Raises QuicksandError."""
        async with self._place(), await self._guest.dial_udp(port) as datagrams:
            yield datagrams

    @contextlib.asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Hold one of the places, in the order of coming. Raises StateError if none gets free."""
        try:
            async with asyncio.timeout(PLACE_S):
                await self._places.acquire()
        except TimeoutError:
            raise StateError(f"{PLACES} connections are open") from None
        try:
            yield
        finally:
            self._places.release()


async def carry(
    connection: GuestConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carry bytes in both directions. Raises ExceptionGroup of what breaks one: also once a service
    that has sent its last takes nothing more, else the client would send for ever."""

    async def to_guest() -> None:
        while data := await reader.read(CHUNK):
            await connection.write(data)
        connection.write_eof()

    async def to_client() -> None:
        while data := await connection.read():
            writer.write(data)
            await writer.drain()
        writer.write_eof()
        await connection.finish()
        feeding.cancel()

    async with asyncio.TaskGroup() as both:
        feeding = both.create_task(to_guest())
        both.create_task(to_client())


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that its other side does not take it for the end of all."""
    found = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


def listen(port: int) -> list[socket.socket]:
    """Listen on both loopback addresses, or only on that of IPv4 where there is no IPv6; port 0 is
    any that is free. Raises PortInUseError, HostError."""
    for _ in range(FREE_TRIES):
        first = _listen(("127.0.0.1", port), socket.AF_INET)
        try:
            return [first, _listen(("::1", first.getsockname()[1]), socket.AF_INET6)]
        except PortInUseError:
            first.close()
            if port:
                raise
        except HostError:
            return [first]
    raise PortInUseError("no port is free on both 127.0.0.1 and ::1")


def _listen(place: tuple[str, int], family: socket.AddressFamily) -> socket.socket:
    try:
        return socket.create_server(place, family=family, backlog=BACKLOG)
    except OSError as error:
        host, port = place
        shown = f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"{shown} is in use", hint="choose another port, or 0 for any that is free"
            ) from error
        raise HostError(f"cannot listen at {shown}: {os.strerror(error.errno or 0)}") from error


def _is_at(files: ForwarderFiles, lock: int) -> bool:
    """Whether our lock is still in the sandbox's runtime directory, which may be a new one."""
    try:
        there, ours = files.lock.stat(), os.fstat(lock)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


async def _serve(id_: str) -> None:
    registry = Registry(paths())
    entry = registry.inspect(id_)
    if entry is None or entry.run is None:
        return
    files = ForwarderFiles(runtime_dir(registry.paths, id_).root)
    # Whoever checks whether the lock is held takes it for an instant; one that ends removes it.
    lock = await asyncio.to_thread(lock_within, files.lock, LOCK_WAIT_S, take=try_named_lock)
    if lock is None:
        return  # another one serves already
    life = Life.of_entry(registry, entry)
    try:
        with contextlib.suppress(FileNotFoundError):
            files.socket.unlink()  # of one that was killed
        await Forwarder(life, files, lock).run()
    finally:
        life.close()
        with contextlib.suppress(OSError):
            for path in (files.socket, files.forwards, files.lock):
                if _is_at(files, lock):
                    path.unlink(missing_ok=True)
        os.close(lock)


def main() -> int:
    """Carry the forwards of the sandbox whose id stands on stdin; returns the exit code."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        asyncio.run(_serve(str(json.loads(sys.stdin.buffer.read())["id"])))
    except (QuicksandError, OSError, ValueError):
        return 1
    return 0


if __name__ == "__main__":
    no_core_files()
    sys.exit(main())

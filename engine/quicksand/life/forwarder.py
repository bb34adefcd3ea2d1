"""The process that carries a sandbox's forwarded ports (forwarding.py): it listens on this host's
loopback, and has the guest's agent dial for each connection.

An agent has 256 channels for each of its clients, so another client connects when all others are
full (`Lines`). asyncio does not notice that a peer has reset a connection from which nobody reads
because the other side takes nothing: it would stay as long as the other side waits. `Resets` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import select
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from quicksand.base.background import receive
from quicksand.base.effort import best_effort
from quicksand.base.error_text import reason_of
from quicksand.base.errors import AgentRefusedError, QuicksandError, StateError
from quicksand.base.faults import noting_faults
from quicksand.base.listening import RESET, Acceptor, bind_private, listen
from quicksand.base.paths import paths
from quicksand.guest.agent.refusals import LinuxErrno
from quicksand.guest.connections import GuestConnection, GuestDatagrams
from quicksand.life.guest import InGuest
from quicksand.life.sandbox_life import Life
from quicksand.life.udp_relay import UdpRelay
from quicksand.qemu.keeper_parts.bounds import no_core_files
from quicksand.records.config import GUEST_IP, NetworkMode
from quicksand.records.dialled import ForwarderFiles, write_dialled
from quicksand.records.layout import runtime_dir
from quicksand.records.port_forwards import FORWARDS_MAX, PortForward, Protocol
from quicksand.records.registry import Registry

PLACES = 240
"""The most forwarded connections of one client of the agent."""

LINES_MAX = 5
"""The most clients of the agent, which has ports for 24 (`AGENT_PORTS`)."""

PLACE_S = 10.0
"""Seconds that a connection waits for a place, about as long as in a guest's own backlog."""


@dataclass(slots=True, eq=False)
class Line:
    """One client of the agent."""

    life: Life
    guest: InGuest
    used: int = 0
    """The number of places that are taken."""


class Lines:
    """The clients of one guest's agent. The first one lasts as long as this object."""

    def __init__(self, open_: Callable[[], Life]) -> None:
        """``open_`` makes a client, which connects when it is used."""
        self._open = open_
        self._places = asyncio.Semaphore(LINES_MAX * PLACES)
        self._lines = [self._make()]

    @property
    def first(self) -> Line:
        return self._lines[0]

    def _make(self) -> Line:
        life = self._open()
        return Line(life, InGuest(life))

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[InGuest]:
        """Hold a place, in the order of arrival. Raises StateError if none becomes free."""
        try:
            async with asyncio.timeout(PLACE_S):
                await self._places.acquire()
        except TimeoutError:
            raise StateError(f"{LINES_MAX * PLACES} connections are open") from None
        try:
            line = self._find()
            line.used += 1
            try:
                yield line.guest
            finally:
                line.used -= 1
                self._drop_unused(line)
        finally:
            self._places.release()

    def _find(self) -> Line:
        """Return the first client with a free place: so later ones become empty."""
        found = next((line for line in self._lines if line.used < PLACES), None)
        if found is None:
            found = self._make()
            self._lines.append(found)
        return found

    def _drop_unused(self, line: Line) -> None:
        if not line.used and line is not self.first:
            self._lines.remove(line)
            line.life.close()

    def close(self) -> None:
        for line in self._lines:
            line.life.close()


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


CHUNK = 64 * 1024
REQUEST_MAX = 4096
"""Bytes of a request."""

LOOPBACK = "localhost"
"""The guest's 127.0.0.1 and then its ::1, where programs that serve only the guest may listen."""

ALIVE_S = 0.25
"""Seconds between looks whether the sandbox exists while its agent does not answer."""

SOON = 10
"""Looks in that time after a connection has ended: whoever ends a sandbox waits for its ports."""


@dataclass(frozen=True, slots=True)
class Listening:
    """A forward, with the acceptor of its connections."""

    forward: PortForward
    acceptor: Acceptor


class Forwarder:
    """The forwards of one sandbox."""

    def __init__(self, open_: Callable[[], Life], files: ForwarderFiles, lock: int) -> None:
        """``open_`` opens the sandbox. ``lock`` is held open as long as this runs."""
        self._lock = lock
        self._lines = Lines(open_)
        self._life = self._lines.first.life
        self._guest = self._lines.first.guest
        self._files = files
        self._forwards: dict[int, Listening] = {}
        self._changing = asyncio.Lock()
        self._datagrams = UdpRelay(self._dial_udp)
        self._published: frozenset[PortForward] = frozenset()
        """The forwards with which the sandbox was started, which are in its record."""
        self._has_ended = asyncio.Event()
        """Set when the last forward was removed."""

    async def run(self, published: Sequence[tuple[PortForward, Sequence[socket.socket]]]) -> None:
        """Serve the ports with which the sandbox was started, which already listen, and those added
        later, until the last one is removed or the sandbox ends. Raises the error that keeps it
        from noticing that end: it must not outlive the sandbox."""
        self._resets = Resets()
        self._published = frozenset(forward for forward, _ in published)
        for forward, sockets in published:
            if forward.protocol is Protocol.UDP:
                await self._datagrams.serve_at(forward, sockets)
            else:
                self._serve_at(forward, sockets)
        control = Acceptor(
            [bind_private(self._files.socket)],
            self._control,
            name="quicksand-forwarder-control",
            limit=REQUEST_MAX,
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
            for listening in self._forwards.values():
                listening.acceptor.stop()  # first of all: the next start may need these ports
            await control.close()
            for listening in list(self._forwards.values()):
                await self._end(listening)
            await self._datagrams.close()
            self._resets.close()
            self._lines.close()

    async def _watch(self) -> None:
        """Return at the end of the sandbox, when its runtime directory, which has our lock, is
        gone."""
        while self._is_there():
            connection = asyncio.create_task(self._guest.wait_disconnected())
            try:
                await self._until_done(connection)
            finally:
                connection.cancel()
            # A revert: the next machine is there, or will be.
            for _ in range(SOON):
                if not self._is_there():
                    return
                await asyncio.sleep(ALIVE_S / SOON)

    async def _until_done(self, connection: asyncio.Task[Any]) -> None:
        """Wait for the end of the agent's connection or, while there is none, of the sandbox."""
        while not connection.done():
            link = self._life.link
            is_made = link is not None and link.connected is not None
            await asyncio.wait({connection}, timeout=None if is_made else ALIVE_S)
            if not self._is_there():
                return
        with contextlib.suppress(QuicksandError):
            connection.result()

    def _is_there(self) -> bool:
        """Whether the sandbox lives, according to its files, and is ours."""
        if not _is_at(self._files, self._lock):
            return False
        entry = self._life.registry.inspect(self._life.id)
        return entry is not None and entry.is_live

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry out one request of a client."""
        answer: dict[str, Any]
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            try:
                request = json.loads(await reader.readline())
                async with self._changing:
                    answer = await self._do(request)
            except QuicksandError as error:
                kind, hint = type(error).__name__, str(error.hint)
                answer = {"error": {"kind": kind, "message": str(error), "hint": hint}}
            except (ValueError, KeyError, TypeError) as error:
                answer = {
                    "error": {"kind": "HostError", "message": f"no request: {reason_of(error)}"}
                }
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
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
        made = PortForward(host=sockets[0].getsockname()[1], guest=wanted.guest)
        self._serve_at(made, sockets)
        return {"host": made.host}

    def _serve_at(self, forward: PortForward, sockets: Sequence[socket.socket]) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            number = writer.get_extra_info("socket").fileno()
            try:
                self._resets.watch(number, task.cancel)
                await self._serve(reader, writer, forward.guest)
            except asyncio.CancelledError:
                reset(writer)
                raise
            finally:
                self._resets.forget(number, task.cancel)

        acceptor = Acceptor(sockets, accept, name="quicksand-forwarded", resets=True)
        self._forwards[forward.host] = Listening(forward, acceptor)
        self._tell()

    async def _end(self, listening: Listening) -> None:
        await listening.acceptor.close()
        del self._forwards[listening.forward.host]
        self._tell()

    def _tell(self) -> None:
        """Write the present forwards, for those who list sandboxes."""
        if not _is_at(self._files, self._lock):
            return  # the directory is that of the sandbox's next run
        all_ = [*(one.forward for one in self._forwards.values()), *self._datagrams.forwards]
        with best_effort("tell of the forwarded ports", self._life.log):
            write_dialled(self._files, [one for one in all_ if one not in self._published])

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        """Carry one connection until both directions have ended. A connection that cannot be made,
        or that breaks, is reset, as if the client had reached the guest itself."""
        try:
            async with (
                self._lines.place() as guest,
                await self._dial(guest, port) as connection,
            ):
                await carry(connection, reader, writer)
        except* (QuicksandError, OSError):
            reset(writer)
        finally:
            writer.close()

    @contextlib.asynccontextmanager
    async def _dial_udp(self, port: int) -> AsyncIterator[GuestDatagrams]:
        """Connect a socket of the guest, which also takes a place. Raises QuicksandError."""
        async with self._lines.place() as guest, await guest.dial_udp(port) as datagrams:
            yield datagrams

    async def _dial(self, guest: InGuest, port: int) -> GuestConnection:
        """Connect to the guest's loopback or, if nobody listens there, to its address."""
        try:
            return await guest.dial(port, host=LOOPBACK)
        except AgentRefusedError as error:
            has_card = self._life.config.network_mode is not NetworkMode.NONE
            if error.errno != LinuxErrno.ECONNREFUSED or not has_card:
                raise
        return await guest.dial(port, host=GUEST_IP)


async def carry(
    connection: GuestConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carry bytes in both directions. Raises ExceptionGroup of what breaks one, such as a service
    that has sent its last and takes nothing more: else the client would send for ever."""

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
    """Close a connection by a reset, so that the other side sees no regular end."""
    found = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


def _is_at(files: ForwarderFiles, lock: int) -> bool:
    """Whether our lock is still in the sandbox's runtime directory, which may be a new one."""
    try:
        there, ours = files.lock.stat(), os.fstat(lock)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def match_sockets(
    told: Sequence[tuple[int, int, str]], descriptors: Sequence[int]
) -> list[tuple[PortForward, list[socket.socket]]]:
    """Return each forward with the sockets that listen for it. Raises OSError, ValueError."""
    sockets: dict[tuple[int, Protocol], list[socket.socket]] = {}
    for number in descriptors:
        found = socket.socket(fileno=number)
        found.setblocking(False)
        protocol = Protocol.UDP if found.type == socket.SOCK_DGRAM else Protocol.TCP
        sockets.setdefault((found.getsockname()[1], protocol), []).append(found)
    forwards = [PortForward(host, guest, Protocol(protocol)) for host, guest, protocol in told]
    return [(forward, sockets[forward.host, forward.protocol]) for forward in forwards]


async def _serve(given: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Serve a sandbox, as `publishing.give` says. Whoever started this process has taken the
    lock."""
    lock, *rest = descriptors
    registry = Registry(paths())
    published = match_sockets(given["forwards"], rest)
    entry = registry.inspect(str(given["id"]))
    if entry is None or entry.run is None:
        return
    files = ForwarderFiles(runtime_dir(registry.paths, entry.id).root)
    try:
        with contextlib.suppress(FileNotFoundError):
            files.socket.unlink()  # of one that was killed
        await Forwarder(lambda: Life.of_entry(registry, entry), files, lock).run(published)
    finally:
        with contextlib.suppress(OSError):
            for path in (files.socket, files.forwards, files.lock):
                if _is_at(files, lock):
                    path.unlink(missing_ok=True)
        os.close(lock)


def main() -> int:
    """Carry the forwards that this process is given; returns the exit code."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        asyncio.run(_serve(*receive()))
    except (QuicksandError, OSError, ValueError):
        return 1
    return 0


if __name__ == "__main__":
    no_core_files()
    with noting_faults():
        sys.exit(main())

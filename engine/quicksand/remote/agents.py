"""The agent of a guest at another machine: its bytes are passed on unread, so that a session with
it is the same as with a guest here."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

from quicksand.base.errors import (
    AgentError,
    AgentUnreachableError,
    RemoteProtocolError,
    RemoteRefusedError,
    RevertedError,
    StateError,
)
from quicksand.base.files import read_json
from quicksand.base.lease import take_lease
from quicksand.base.paths import paths
from quicksand.base.remedies import Remedy, Words
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.values import bounded
from quicksand.guest.agent.wire import Stream
from quicksand.records.layout import AGENT_PORTS, MachineDir, RuntimeDir, runtime_dir
from quicksand.records.registry import Registry
from quicksand.remote.channel import Channel
from quicksand.remote.link import Link, Request
from quicksand.remote.passing import pass_on

LEASE_TIMEOUT_S = 10.0
HANDSHAKE_S = 15.0


async def relay(request: Request) -> None:
    """At the far end: answer the request ``agent`` with the guest's token, and pass on what both
    say until one of them ends. Raises SandboxNotFoundError, StateError, AgentError."""
    name = request.params.get("sandbox")
    if not isinstance(name, str):
        raise RemoteRefusedError("sandbox is no text", code="bad_request")
    entry = Registry(paths()).find(name)
    if entry.run is None or entry.run.paused:
        raise StateError(
            f"the sandbox {entry.name!r} is {entry.status.value}",
            hint=Words(Remedy("start", name=entry.name), " starts it"),
        )
    runtime = runtime_dir(paths(), entry.id)
    machine = runtime.current()

    def tell_why() -> None:
        if (origin := _origin(runtime, machine)) is not None:
            request.channel.tell("reverted", origin=origin)

    sockets = [machine.agent_socket(number) for number in range(AGENT_PORTS)]
    lease = await take_lease(sockets, what="agent ports", timeout=LEASE_TIMEOUT_S)
    try:
        try:
            # A revert removes the directory of the machine before it.
            token = str(read_json(machine.state)["token"])
            reader, writer = await asyncio.open_unix_connection(lease.socket)
        except (OSError, ValueError, LookupError) as error:
            raise AgentUnreachableError(f"the guest cannot be reached: {error}") from error
        try:
            request.answer(token=token)
            await pass_on(request.channel, Stream.STDOUT, reader, writer, tell_why)
        finally:
            writer.close()
    finally:
        lease.release()


def _origin(runtime: RuntimeDir, machine: MachineDir) -> str | None:
    """The checkpoint to which a sandbox was reverted since ``machine`` ran it; None if it was
    not."""
    current = runtime.current()
    if current != machine:
        with contextlib.suppress(OSError, ValueError, LookupError):
            return str(read_json(current.state)["origin"])
    return None


class RelayedAgent:
    """At the near end: a session with the agent of a running sandbox."""

    def __init__(self, channel: Channel, passing: asyncio.Task[None], session: Session) -> None:
        self.session = session
        self._channel = channel
        self._passing = passing

    @classmethod
    async def open(cls, link: Link, sandbox: str) -> RelayedAgent:
        """Connect. Raises RemoteError, AgentError."""
        channel = link.open("agent", sandbox=sandbox)
        try:
            match await channel.reply:
                case {"token": str(token)}:
                    pass
                case _:
                    raise RemoteProtocolError(f"{link.peer.name} does not say the guest's token")
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=theirs)
        except BaseException:
            channel.abandon(Stream.INPUT)
            raise
        passing = asyncio.create_task(
            pass_on(channel, Stream.INPUT, reader, writer), name="quicksand-agent"
        )
        passing.add_done_callback(lambda _: channel.close())
        loop = asyncio.get_running_loop()
        try:
            _, session = await loop.create_connection(lambda: Session(_why(channel)), sock=ours)
        except BaseException:
            passing.cancel()
            ours.close()
            raise
        made = cls(channel, passing, session)
        try:
            # The other machine keeps its guests' clocks; ours may be another one.
            await session.handshake(token, timeout=HANDSHAKE_S, set_clock=False)
        except BaseException:
            made.close()
            raise
        return made

    def close(self) -> None:
        """End it. Idempotent."""
        self.session.close()
        self._passing.cancel()

    async def ended(self) -> None:
        """Wait until nothing of it is left, after `close`."""
        await asyncio.wait([self._passing])


def _why(channel: Channel) -> Callable[[], AgentError | None]:
    def find() -> AgentError | None:
        for event in channel.take_events():
            match event:
                case {"event": "reverted", "origin": str(origin)}:
                    return RevertedError(f"the sandbox was reverted to {bounded(origin)!r}")
        return None

    return find


@contextlib.asynccontextmanager
async def agent_session(link: Link, sandbox: str) -> AsyncIterator[Session]:
    """At the near end: a session with the agent of a running sandbox. Raises RemoteError,
    AgentError."""
    agent = await RelayedAgent.open(link, sandbox)
    try:
        yield agent.session
    finally:
        agent.close()
        await agent.ended()

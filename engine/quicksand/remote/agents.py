"""The agent of a guest at another machine: its bytes are passed on unread, so that a session with
it is the same as with a guest here."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from quicksand.base.errors import (
    AgentError,
    AgentUnreachableError,
    RemoteError,
    RemoteProtocolError,
    RemoteRefusedError,
    RevertedError,
    StateError,
)
from quicksand.base.files import read_json
from quicksand.base.lease import take_lease
from quicksand.base.paths import paths
from quicksand.base.remedies import Remedy, Words
from quicksand.guest.agent.channel import LOOK_S
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.values import bounded
from quicksand.guest.agent.wire import Stream
from quicksand.records.layout import AGENT_PORTS, MachineDir, RuntimeDir, runtime_dir
from quicksand.records.paused import find_pause, refuse_paused
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.remote.peer_link import Channel, Link, Request, pass_on, read_hint

LEASE_TIMEOUT_S = 10.0
HANDSHAKE_S = 15.0
ANSWER_S = 3.0
"""Seconds for the other machine to tell whether a guest is paused."""


Finish = Callable[[Registry, Record], Awaitable[None]]
"""Has the last, interrupted revert of a running sandbox finished. Raises MachineError, and
StateError if it is not finished afterwards."""


async def relay(request: Request, finish: Finish) -> None:
    """At the far end: answer the request ``agent`` with the guest's token, and pass bytes on until
    one side ends. First ``finish`` has the guest's last revert finished, if that is still due:
    until then its guest says nothing. Raises SandboxNotFoundError, StateError, AgentError, and as
    ``finish``."""
    name = request.params.get("sandbox")
    if not isinstance(name, str):
        raise RemoteRefusedError("sandbox is no text", code="bad_request")
    registry = Registry(paths())
    entry = registry.find(name)
    refuse_paused(entry.name, runtime_dir(paths(), entry.id).current())
    if entry.run is None:
        raise StateError(
            f"the sandbox {entry.name!r} is {entry.status.value}",
            hint=Words(Remedy("start", name=entry.name), " starts it"),
        )
    runtime = runtime_dir(paths(), entry.id)
    if runtime.current().unfinished.exists() and entry.record is not None:
        await finish(registry, entry.record)
    machine = runtime.current()

    def tell_why() -> None:
        if (origin := _origin(runtime, machine)) is not None:
            request.channel.tell("reverted", origin=origin)

    sockets = [machine.agent_socket(number) for number in range(AGENT_PORTS)]
    lease = await take_lease(sockets, what="agent ports", timeout=LEASE_TIMEOUT_S)
    try:
        try:
            # A revert removes the directory of the earlier machine.
            token = str(read_json(machine.state)["token"])
            reader, writer = await asyncio.open_unix_connection(lease.socket)
        except (OSError, ValueError, LookupError) as error:
            raise AgentUnreachableError(f"the guest cannot be reached: {error}") from error
        looks = asyncio.create_task(
            _answer_looks(request.channel, entry.name, runtime), name="quicksand-looks"
        )
        try:
            request.answer(token=token)
            await pass_on(request.channel, Stream.STDOUT, reader, writer, tell_why)
        finally:
            looks.cancel()
            writer.close()
    finally:
        lease.release()


def _origin(runtime: RuntimeDir, machine: MachineDir) -> str | None:
    """Return the checkpoint to which a sandbox was reverted after ``machine`` ran it; None if there
    is none."""
    current = runtime.current()
    if current != machine:
        with contextlib.suppress(OSError, ValueError, LookupError):
            return str(read_json(current.state)["origin"])
    return None


async def _answer_looks(channel: Channel, name: str, runtime: RuntimeDir) -> None:
    """Report to the client, on each request, whether the guest is paused, and why."""
    with contextlib.suppress(RemoteError):  # it is gone
        while True:
            if (await channel.event()).get("event") != "look":
                continue
            pause = await asyncio.to_thread(lambda: find_pause(runtime.current()))
            if pause is None:
                channel.tell("runs")
            else:
                channel.tell("paused", said=pause.said(name), hint=pause.remedy(name).to_json())


class _Told:
    """At the near end: the other machine's reports on a guest, beside the guest's own bytes."""

    def __init__(self, link: Link, channel: Channel) -> None:
        self._link = link
        self._channel = channel
        self._reverted: RevertedError | None = None
        self._paused: StateError | None = None
        self._is_asked = False
        """Whether a request has not been answered yet."""
        self._is_mute = False
        """Whether the other machine does not answer, being an older version."""
        self._answered = asyncio.Event()
        self._answered.set()
        self._looked = float("-inf")

    async def hear(self) -> None:
        """Take reports until the connection ends."""
        with contextlib.suppress(RemoteError):
            while True:
                self._take(await self._channel.event())

    def _take(self, event: dict[str, Any]) -> None:
        match event:
            case {"event": "reverted", "origin": str(origin)}:
                self._reverted = RevertedError(f"the sandbox was reverted to {bounded(origin)!r}")
            case {"event": "paused", "said": str(said), "hint": hint}:
                self._answer(StateError(bounded(said), hint=read_hint(hint)))
            case {"event": "runs"}:
                self._answer(None)

    def _answer(self, paused: StateError | None) -> None:
        self._paused, self._is_asked, self._is_mute = paused, False, False
        self._looked = asyncio.get_running_loop().time()
        self._answered.set()

    def why_broken(self) -> AgentError | None:
        """Return why the connection has ended, if known."""
        for event in self._channel.take_events():
            self._take(event)
        if self._reverted is None and self._link.ended.is_set():
            return AgentUnreachableError(
                f"the connection to {self._link.peer.name} broke, and with it that to the guest",
                hint="the guest itself may well go on: do it again once that machine is there",
            )
        return self._reverted

    def _ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._answered.clear()
            self._channel.tell("look")

    def why_paused(self) -> Words | None:
        """Return the message for a guest that is paused, as far as that is known; and ask again."""
        self._ask()
        if self._paused is None:
            return None
        said = f"{self._paused.args[0]}; what waits for it goes on when it does ("
        return Words(said, self._paused.advice, ")")

    async def refuse_paused(self) -> None:
        """Raise StateError if the guest is paused. It is asked once a second at most."""
        is_fresh = asyncio.get_running_loop().time() - self._looked < LOOK_S
        if not self._is_mute and not (is_fresh and self._paused is None):
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._answered.wait()  # to what was asked before
                    self._ask()
                    await self._answered.wait()
            except TimeoutError:
                self._is_mute = True
        if self._paused is not None:
            raise StateError(self._paused.args[0], hint=self._paused.advice)

    def look_again(self) -> None:
        """Ask before the next command: the machine may have been paused or resumed."""
        self._looked = float("-inf")


class RelayedAgent:
    """At the near end: a session with the agent of a running sandbox."""

    def __init__(
        self, channel: Channel, passing: asyncio.Task[None], session: Session, told: _Told
    ) -> None:
        self.session = session
        self._channel = channel
        self._passing = passing
        self._hearing = asyncio.create_task(told.hear(), name="quicksand-told")
        self.refuse_paused = told.refuse_paused
        self.look_again = told.look_again

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
            told = _Told(link, channel)
            _, session = await loop.create_connection(lambda: Session(told.why_broken), sock=ours)
        except BaseException:
            passing.cancel()
            ours.close()
            raise
        session.guest.why_paused = told.why_paused
        made = cls(channel, passing, session, told)
        try:
            # The other machine keeps its guests' clocks; this machine's may differ.
            await session.handshake(token, timeout=HANDSHAKE_S, set_clock=False)
        except BaseException:
            made.close()
            raise
        return made

    def close(self) -> None:
        """End it. Idempotent."""
        self.session.close()
        self._passing.cancel()
        self._hearing.cancel()

    async def ended(self) -> None:
        """Wait until all its tasks have ended, after `close`."""
        await asyncio.wait([self._passing, self._hearing])


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

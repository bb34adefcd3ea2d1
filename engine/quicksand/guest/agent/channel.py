"""The streams and events of one request, between a session and the user of the channel: how much
may wait there, and how long one waits for a guest.

Every byte is reserved (`Budget`) before it can arrive: output through windows, which the agent must
not exceed, and events, which have no credit, through a share of their own. So a hostile agent
cannot fill this process's memory, and an unread channel does not hold up any other.

A paused guest does nothing, and its clock stands still. Those who wait for it (`Wait`) are told so
at once (by the logger ``quicksand``, whose warnings Python prints unless a program does something
else with them), and the wait goes on when the guest does: its limit counts only the time in which
the guest runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from quicksand.base.errors import (
    AgentError,
    AgentProtocolError,
    AgentRefusedError,
    AgentUnreachableError,
    StateError,
)
from quicksand.base.remedies import Remedy, Words
from quicksand.guest.agent import wire
from quicksand.guest.agent.wire import Stream

MIB = 1024 * 1024

CHANNEL_MAX = 4 * MIB
"""Bytes that one channel may hold unread: a window for each stream, and its events."""

SESSION_MAX = 32 * MIB
"""Bytes that all channels of one session may hold unread."""

EVENTS_MAX = 2 * MIB
"""Bytes of SESSION_MAX that are for events."""

CHANNEL_EVENTS_MAX = 256 * 1024
"""Bytes of unread events of one channel; the agent sends a few, of some hundred bytes each."""

EVENT_OVERHEAD = 128
"""Bytes that an event takes in memory in addition to its text."""

WINDOWS = ((8 * MIB, 1 * MIB), (12 * MIB, 256 * 1024), (SESSION_MAX - EVENTS_MAX, 64 * 1024))
"""(Bytes reserved at most, window of a new stream): the first few streams get large windows, many
at once get the smallest that the protocol allows. 156 commands fit."""


class Budget:
    """Counts the unread bytes that one session holds or has granted."""

    def __init__(self) -> None:
        self.reserved = 0
        """Bytes of all windows."""
        self.events = 0
        """Bytes of unread events."""

    def reserve(self, streams: int) -> int:
        """Return the window, in bytes, for each of a new channel's ``streams``; the caller must
        `release` them. Raises StateError if too many are open."""
        for most, window in WINDOWS:
            if self.reserved + streams * window <= most:
                self.reserved += streams * window
                return window
        raise StateError(
            "too many commands, terminals and files of this sandbox are open at once",
            hint="end some, or read them to their end, before more are opened",
        )

    def release(self, count: int) -> None:
        """Give back ``count`` reserved bytes."""
        self.reserved -= count

    def take_event(self, size: int) -> None:
        """Count an event of ``size`` bytes. Raises AgentProtocolError if there is no room."""
        if self.events + size > EVENTS_MAX:
            raise AgentProtocolError("the agent floods the session with events")
        self.events += size

    def drop_events(self, size: int) -> None:
        """Count ``size`` bytes of events as read or dropped."""
        self.events -= size


T = TypeVar("T")

LOOK_S = 1.0
"""Seconds between looks of a wait whether the guest runs."""

logger = logging.getLogger("quicksand")


class GuestState:
    """The knowledge of one connection's waits about the guest's machine."""

    def __init__(self) -> None:
        self.why_paused: Callable[[], Words | None] = lambda: None
        """Returns the message for a paused guest, and None while it runs."""
        self._looked = float("-inf")
        self._is_paused = False

    def is_paused(self) -> bool:
        """Whether the guest is paused, which is reported once for each pause. All waits of a
        connection share a look."""
        now = asyncio.get_running_loop().time()
        if now - self._looked < LOOK_S / 2:
            return self._is_paused
        self._looked = now
        said = self.why_paused()
        if said is not None and not self._is_paused:
            logger.warning(said)
        self._is_paused = said is not None
        return self._is_paused


class Wait:
    """A wait of at most ``seconds`` in which the guest runs, perhaps in several pieces; None has no
    end."""

    def __init__(self, guest: GuestState, seconds: float | None) -> None:
        self._guest = guest
        self._left = seconds

    async def until(self, ready: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``ready``, which is cancelled and repeated. Raises TimeoutError."""
        loop = asyncio.get_running_loop()
        is_paused = False
        while True:
            started = loop.time()
            piece = LOOK_S if is_paused or self._left is None else min(LOOK_S, self._left)
            limit = asyncio.timeout(piece)
            try:
                async with limit:
                    return await ready()
            except TimeoutError:
                if not limit.expired():
                    raise
            finally:
                is_paused = limit.expired() and self._guest.is_paused()
                if self._left is not None and not is_paused:
                    self._left = max(0.0, self._left - (loop.time() - started))
            if self._left == 0.0 and not is_paused:
                raise TimeoutError


INPUT_WINDOW = 256 * 1024
"""Bytes of input that may be unacknowledged (docs/internals/agent-protocol.md)."""

INPUT_CHUNK = 64 * 1024

OPEN_TIMEOUT_S = 30.0
"""Seconds for a guest to start a command: milliseconds usually, seconds if it swaps."""

CRUMB_MAX = 4096
"""Unread pieces of output are joined up to this many bytes."""

LAST_EVENTS = ("exit", "end")
"""After one of these nothing more comes on a channel, and its request takes no more input."""

ALL_OUTPUT = (Stream.STDOUT, Stream.STDERR)


class Carrier(Protocol):
    """The part of a session that its channels use."""

    budget: Budget

    def send(self, frame: bytes) -> None: ...

    async def drain(self) -> None: ...

    def wait(self, seconds: float | None) -> Wait: ...

    def forget(self, channel: Channel) -> None: ...

    def refusal(self, error: object, otherwise: str = "") -> AgentRefusedError: ...


class Channel:
    """The streams of one request, made by `Session.open`. Read it to its end or `close` it."""

    def __init__(self, session: Carrier, number: int, streams: tuple[Stream, ...]) -> None:
        """``streams`` are those that the agent may write to. Raises StateError if the session has
        no room for them."""
        self._session = session
        self.number = number
        self.window = session.budget.reserve(len(streams)) if streams else wire.WINDOW_MIN
        """Bytes of each stream that may be in transit or unread."""
        self._reserved = self.window * len(streams)
        self._chunks: dict[int, deque[bytes]] = {stream: deque() for stream in streams}
        self._buffered = dict.fromkeys(streams, 0)
        self._uncredited = dict.fromkeys(streams, 0)
        self._input_credit = INPUT_WINDOW
        self._events: deque[bytes] = deque()
        self._event_bytes = 0
        self._failure: AgentError | None = None
        self.has_ended = False
        """Whether its last event has arrived, perhaps unread."""
        self._changed = asyncio.Event()
        self.reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    @property
    def unread(self) -> int:
        """Return the bytes that have arrived and are unread."""
        return sum(self._buffered.values()) + self._event_bytes

    # Called by the session.

    def receive(self, stream: int, payload: bytes) -> None:
        """Take a data frame. Raises AgentProtocolError if the agent must not send it."""
        if stream == wire.CREDIT | Stream.INPUT:
            if len(payload) != 4:
                raise AgentProtocolError("the agent sent a credit that is not 4 bytes long")
            self._input_credit = min(self._input_credit + int.from_bytes(payload), INPUT_WINDOW)
        elif stream in self._chunks:
            kind = Stream(stream)
            self._buffered[kind] += len(payload)
            if self._buffered[kind] + self._uncredited[kind] > self.window:
                raise AgentProtocolError("the agent sent more than its window allows")
            self._keep(self._chunks[kind], payload)
        else:
            raise AgentProtocolError(f"the agent sent a data frame of unknown stream {stream}")
        self._changed.set()

    @staticmethod
    def _keep(chunks: deque[bytes], payload: bytes) -> None:
        # Join small pieces: as objects, 1-byte writes would take fifty times their size.
        if chunks and len(chunks[-1]) + len(payload) <= CRUMB_MAX:
            chunks[-1] += payload
        elif payload:
            chunks.append(payload)

    def receive_event(self, text: bytes, kind: object) -> None:
        """Keep an event as text: parsed, it could take thirty times the memory. Raises
        AgentProtocolError if there are too many."""
        self.has_ended = self.has_ended or kind in LAST_EVENTS
        size = len(text) + EVENT_OVERHEAD
        if len(text) > wire.SMALL_MAX or self._event_bytes + size > CHANNEL_EVENTS_MAX:
            raise AgentProtocolError("the agent floods the channel with events")
        self._session.budget.take_event(size)
        self._event_bytes += size
        self._events.append(text)
        self._changed.set()

    def fail(self, error: AgentError) -> None:
        """End the channel: all who wait for it get ``error``."""
        self._failure = self._failure or error
        if not self.reply.done():
            self.reply.set_exception(error)
            self.reply.exception()  # if nobody waits, asyncio must not log the error
        self._changed.set()

    def release(self) -> None:
        """Give back its share of the budget: nothing arrives for it any more. Idempotent."""
        self._session.budget.release(self._reserved)
        self._session.budget.drop_events(self._event_bytes)
        self._reserved = self._event_bytes = 0

    # Called by the user of the channel.

    async def opened(self) -> dict[str, Any]:
        """Wait until the request has started; return its result. Raises as `Session.request`."""
        try:
            return await self._session.wait(OPEN_TIMEOUT_S).until(
                lambda: asyncio.shield(self.reply)
            )
        except TimeoutError:
            raise AgentUnreachableError(
                f"the guest's agent did not answer within {OPEN_TIMEOUT_S:g} s",
                hint=Words(
                    "the guest may be overloaded or hung; ", Remedy("logs"), " shows its console"
                ),
            ) from None

    async def read(self) -> tuple[Stream, bytes] | dict[str, Any]:
        """Return the next piece of output or, once all output before it was read, the next event.

        Reading acknowledges output; unread output blocks the command (back-pressure). Raises
        AgentRefusedError, or AgentUnreachableError if the connection broke, once everything before
        has been read.
        """
        while True:
            for stream in self._chunks:
                if self._chunks[stream]:
                    return Stream(stream), self._take(Stream(stream))
            if self._events:
                return self._take_event()
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._session.wait(None).until(self._changed.wait)

    def _take(self, stream: Stream) -> bytes:
        payload = self._chunks[stream].popleft()
        self._buffered[stream] -= len(payload)
        self._uncredited[stream] += len(payload)
        if self._uncredited[stream] >= self.window // 4:
            self._session.send(wire.encode_credit(self.number, stream, self._uncredited[stream]))
            self._uncredited[stream] = 0
        return payload

    def _take_event(self) -> dict[str, Any]:
        text = self._events.popleft()
        if self._event_bytes:  # otherwise `release` has given them back
            size = len(text) + EVENT_OVERHEAD
            self._event_bytes -= size
            self._session.budget.drop_events(size)
        return wire.parse_message(text)

    def refusal(self, error: object, otherwise: str) -> AgentRefusedError:
        """Return the error in an event as an exception; see `Session.refusal`."""
        return self._session.refusal(error, otherwise)

    async def write(self, data: bytes | memoryview) -> None:
        """Send input, waiting while the guest does not take it. Raises as `read`. Input for a
        request that has ended is dropped: `read` tells how it ended."""
        view = memoryview(data)
        while view:
            if not await self._has_room(1):
                return
            size = min(len(view), self._input_credit, INPUT_CHUNK)
            self._input_credit -= size
            self._session.send(wire.encode_data(self.number, Stream.INPUT, view[:size]))
            view = view[size:]
            await self._session.drain()

    async def write_whole(self, data: bytes) -> None:
        """Send at most 64 KiB of input in one frame, so that other writers do not come between, and
        a cancelled writer has sent all or nothing. Otherwise as `write`."""
        assert len(data) <= INPUT_CHUNK
        if not await self._has_room(len(data)):
            return
        self._input_credit -= len(data)
        self._session.send(wire.encode_data(self.number, Stream.INPUT, data))
        await self._session.drain()

    async def _has_room(self, size: int) -> bool:
        """Wait until so much input may be sent; return false if the request has ended."""
        while self._input_credit < size and self._failure is None and not self.has_ended:
            self._changed.clear()
            await self._session.wait(None).until(self._changed.wait)
        if self._failure is not None:
            raise self._failure
        return not self.has_ended

    def write_eof(self) -> None:
        """End the input."""
        if self._failure is None:
            self._session.send(wire.encode_data(self.number, Stream.INPUT, b""))

    def close(self) -> None:
        """Forget the channel. Unread output, and output that still arrives, is dropped."""
        self._session.forget(self)
        self._events.clear()
        for stream, chunks in self._chunks.items():
            chunks.clear()
            self._buffered[Stream(stream)] = 0

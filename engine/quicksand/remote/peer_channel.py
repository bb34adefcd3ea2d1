"""The streams and events of one request, at either end of a link.

Both ends are alike: each sends its own streams, as far as the other end has given credit, and reads
those of the other. So unread data is bounded at both ends, and an end that does not read holds back
only its own channel.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

from quicksand.base.errors import RemoteError, RemoteProtocolError
from quicksand.guest.agent import wire

WINDOW = 256 * 1024
"""Bytes of one stream that may be in transit or unread."""

CHUNK = 64 * 1024
"""Bytes of a data frame that we send, so that channels take turns."""

CRUMB_MAX = 4096
"""Unread pieces are joined up to this many bytes."""

EVENTS_MAX = 256
"""The most unread events of one channel, each of at most `wire.SMALL_MAX` bytes; few are sent."""

EVENT_BYTES_MAX = 256 * 1024


_OUTPUTS = frozenset(wire.Stream)


class Piece(NamedTuple):
    """A piece of a stream."""

    stream: int
    data: bytes
    """The bytes; b"" at the end of the stream."""


class Carrier(Protocol):
    """The part of a link that its channels use."""

    @property
    def peer(self) -> wire.Peer: ...

    def post(self, frame: bytes) -> None: ...

    async def drain(self) -> None: ...

    def forget(self, channel: Channel) -> None: ...


class Channel:
    """The streams of one request. It is made by a link."""

    def __init__(self, link: Carrier, number: int, incoming: Collection[int]) -> None:
        """``incoming`` are the streams that the other end may send."""
        self._link = link
        self.number = number
        self._pieces: deque[Piece] = deque()
        self._unread = dict.fromkeys(incoming, 0)
        """Bytes of each incoming stream for which credit is still to be given back."""
        self._uncredited = dict.fromkeys(incoming, 0)
        self._ended: set[int] = set()
        self._finished: set[int] = set()
        """The streams that we have ended."""
        self._credit: dict[int, int] = {}
        self._events: deque[tuple[dict[str, Any], int]] = deque()
        self._event_bytes = 0
        self._failure: RemoteError | None = None
        self._changed = asyncio.Event()
        self.reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        """The answer, at the requesting end."""

    # Called by the link.

    def receive(self, stream: int, payload: bytes) -> None:
        """Take a data frame. Raises RemoteProtocolError if it was not allowed."""
        name = self._link.peer.name
        if stream & wire.CREDIT:
            if len(payload) != 4:
                raise RemoteProtocolError(f"{name} sent a credit that is not 4 bytes long")
            sent = stream & ~wire.CREDIT
            if sent not in _OUTPUTS:
                raise RemoteProtocolError(f"{name} sent a credit for the stream {sent}")
            credit = self._credit.get(sent, WINDOW) + int.from_bytes(payload)
            self._credit[sent] = min(credit, WINDOW)
        elif stream not in self._unread or stream in self._ended:
            raise RemoteProtocolError(f"{name} sent data of the stream {stream}, which it has not")
        else:
            self._unread[stream] += len(payload)
            if self._unread[stream] > WINDOW:
                raise RemoteProtocolError(f"{name} sent more than its window allows")
            self._keep(stream, payload)
        self._changed.set()

    def _keep(self, stream: int, payload: bytes) -> None:
        if not payload:
            self._ended.add(stream)
        elif self._pieces and self._pieces[-1].stream == stream:
            # Joined, because as objects, pieces of one byte would take fifty times their size.
            last = self._pieces[-1].data
            if last and len(last) + len(payload) <= CRUMB_MAX:
                self._pieces[-1] = Piece(stream, last + payload)
                return
        self._pieces.append(Piece(stream, payload))

    def receive_event(self, event: dict[str, Any], size: int) -> None:
        """Keep an event of ``size`` bytes. Raises RemoteProtocolError if there are too many."""
        self._event_bytes += size
        if len(self._events) >= EVENTS_MAX or self._event_bytes > EVENT_BYTES_MAX:
            raise RemoteProtocolError(f"{self._link.peer.name} floods a channel with events")
        self._events.append((event, size))
        self._changed.set()

    def fail(self, error: RemoteError) -> None:
        """End the channel: all who wait for it get ``error``."""
        self._failure = self._failure or error
        if not self.reply.done():
            self.reply.set_exception(error)
            self.reply.exception()  # if nobody waits, asyncio must not log the error
        self._changed.set()

    # Called by the user of the channel.

    async def piece(self) -> Piece:
        """Return the next piece of a stream; reading lets the other end send more. Raises the
        link's error, given to `fail`, once all earlier pieces have been read."""
        while not self._pieces:
            await self._change()
        found = self._pieces.popleft()
        self._uncredited[found.stream] += len(found.data)
        if self._uncredited[found.stream] >= WINDOW // 4:
            count = self._uncredited[found.stream]
            self._unread[found.stream] -= count
            self._uncredited[found.stream] = 0
            frame = wire.encode_data(self.number, wire.CREDIT | found.stream, count.to_bytes(4))
            self._link.post(frame)
        return found

    async def event(self) -> dict[str, Any]:
        """Return the next event, which may overtake unread streams. Raises as `piece`."""
        while not self._events:
            await self._change()
        event, size = self._events.popleft()
        self._event_bytes -= size
        return event

    def take_events(self) -> list[dict[str, Any]]:
        """Return the events that are there, without waiting."""
        found = [event for event, _ in self._events]
        self._events.clear()
        self._event_bytes = 0
        return found

    async def _change(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._changed.clear()
        await self._changed.wait()

    async def send(self, stream: int, data: bytes | memoryview) -> None:
        """Send a piece of a stream, waiting while the other end does not read. Raises as
        `piece`."""
        view = memoryview(data)
        while view:
            while (credit := self._credit.get(stream, WINDOW)) <= 0:
                await self._change()
            if self._failure is not None:
                raise self._failure
            size = min(len(view), credit, CHUNK)
            self._credit[stream] = credit - size
            self._link.post(wire.encode_data(self.number, stream, view[:size]))
            view = view[size:]
            await self._link.drain()

    def finish(self, stream: int) -> None:
        """End a stream. Does nothing if the stream or the link has ended."""
        if stream not in self._finished:
            self._finished.add(stream)
            self._link.post(wire.encode_data(self.number, stream, b""))

    def tell(self, event: str, **facts: Any) -> None:
        """Send an event. Does nothing once the link has ended."""
        self._link.post(wire.encode_message({"event": event, "channel": self.number, **facts}))

    def abandon(self, stream: int) -> None:
        """End our stream, so that the other end sees that nobody is there, and forget the
        channel."""
        self.finish(stream)
        self.close()

    def close(self) -> None:
        """Forget the channel; frames that still arrive for it are dropped."""
        self._link.forget(self)

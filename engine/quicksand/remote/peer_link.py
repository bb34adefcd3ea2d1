"""A connection between the quicksand-tui of two machines, without its transport: requests, answers
and channels, in the frames of the guest's agent. Both ends use it; only one answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

from quicksand.base.errors import (
    QuicksandError,
    RemoteError,
    RemoteProtocolError,
    RemoteRefusedError,
    RemoteUnreachableError,
)
from quicksand.base.remedies import Words
from quicksand.guest.agent import wire
from quicksand.guest.agent.values import bounded
from quicksand.guest.agent.wire import Stream

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


class Channel:
    """The streams of one request. It is made by a link."""

    def __init__(self, link: Link, number: int, incoming: Collection[int]) -> None:
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


READ = 64 * 1024

REQUESTS_MAX = 256
"""The most requests of one link under way; each sandbox whose guest is in use takes one."""

BACKLOG_MAX = 4 * 1024 * 1024
"""The most bytes that may wait for the other end to read; `drain` keeps streams far below."""

ID_MAX = 2**32
OUTPUT = (Stream.STDOUT, Stream.STDERR)
INPUT = (Stream.INPUT,)

ALIVE_EVERY_S = 15.0
"""Seconds between the signs of life that each end sends."""

SILENCE_MAX_S = 60.0
"""Seconds without any, after which an end considers the other one gone: without this, TCP closes a
connection that broke silently only after hours."""

HINT_DEPTH = 12
"""The greatest depth of a hint's JSON. Words nested three deep have 9."""


class Request:
    """A request of the other end, with the channel that belongs to it."""

    def __init__(self, method: str, params: dict[str, Any], channel: Channel, link: Link) -> None:
        self.method = method
        self.params = params
        self.channel = channel
        self._link = link
        self.is_answered = False

    def answer(self, **result: Any) -> None:
        """Send the result."""
        self.is_answered = True
        self._link.post(wire.encode_message({"id": self.channel.number, "result": result}))

    def refuse(self, code: str, message: str, hint: str | Words = "") -> None:
        """Send an error, even after an answer. ``code`` is a word of the protocol
        (docs/internals/hosts.md)."""
        self.is_answered = True
        words = hint.to_json() if isinstance(hint, Words) else bounded(hint)
        error = {"code": code, "message": bounded(message), "hint": words}
        self._link.post(wire.encode_message({"id": self.channel.number, "error": error}))


Answer = Callable[[Request], Awaitable[None]]
"""Carries out a request and answers it; its channel ends when this returns."""


class Link:
    """One connection. `run` reads it until it ends; everything else may be used meanwhile."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        name: str,
        answer: Answer | None = None,
    ) -> None:
        """``name`` is the other end's name in errors. ``answer`` gets its requests; without one it
        must not send any."""
        self.peer = wire.Peer(name, RemoteProtocolError)
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._decoder = wire.FrameDecoder(self.peer)
        self._channels: dict[int, Channel] = {}
        self._last_id = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: RemoteError | None = None
        self._heard = asyncio.get_running_loop().time()
        self.is_left = False
        """Whether the other end has said goodbye."""
        self.ended = asyncio.Event()
        """Set when `run` returns: nothing more can be sent or received."""

    async def run(self) -> RemoteError:
        """Read the connection until it ends, and return how it ended. All work under way gets that
        as its error. A cancellation ends it, too."""
        reading = asyncio.create_task(self._read(), name="quicksand-link-read")
        # With pipes, the incoming stream does not end with the outgoing one.
        ending = asyncio.create_task(self.ended.wait(), name="quicksand-link-end")
        error: RemoteError = RemoteUnreachableError(
            f"the connection to {self.peer.name} was closed"
        )
        try:
            await asyncio.wait([reading, ending], return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                error = reading.result()
        finally:
            self._break(error)
            reading.cancel()
            ending.cancel()
            await asyncio.wait([reading, ending])
        assert self._failure is not None
        return self._failure

    async def _read(self) -> RemoteError:
        """Read until the connection ends; return how it ended."""
        try:
            while data := await self._reader.read(READ):
                self._heard = asyncio.get_running_loop().time()
                for frame in self._decoder.feed(data):
                    self._dispatch(frame)
        except RemoteError as error:
            return error
        except OSError as error:
            return RemoteUnreachableError(
                f"the connection to {self.peer.name} broke: {error.strerror or error}"
            )
        return RemoteUnreachableError(f"the connection to {self.peer.name} broke")

    def _break(self, error: RemoteError) -> None:
        # If this end has ended it, that is the reason, and not the end of reading that followed.
        self._failure = self._failure or error.with_traceback(None)
        for channel in list(self._channels.values()):
            channel.fail(error)
        self._channels.clear()
        if not self._writer.transport.is_closing():
            self._writer.transport.abort()
        self.ended.set()

    def end(self, error: RemoteError) -> None:
        """End the connection from this side: all work under way gets ``error``. Idempotent."""
        if self._failure is None:
            self._break(error)

    async def watch(self) -> None:
        """End the connection if the other end gives no sign of life."""
        loop = asyncio.get_running_loop()
        while not self.ended.is_set():
            left = self._heard + SILENCE_MAX_S - loop.time()
            if left <= 0:
                silent = f"{self.peer.name} gave no sign of life for {SILENCE_MAX_S:g} s"
                self.end(RemoteUnreachableError(silent))
                return
            await asyncio.sleep(left)

    @property
    def silent_s(self) -> float:
        """Return the seconds since something last came from the other end."""
        return asyncio.get_running_loop().time() - self._heard

    async def show_life(self) -> None:
        """Give signs of life until cancelled."""
        while True:
            await asyncio.sleep(ALIVE_EVERY_S)
            self.post(wire.encode_message({"event": "alive"}))

    def leave(self) -> None:
        """Say goodbye: nothing that this end has begun must be kept for it."""
        self.post(wire.encode_message({"event": "bye"}))

    async def settle(self) -> None:
        """Wait until all accepted requests have been carried out."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    # Asking

    def open(self, method: str, **params: Any) -> Channel:
        """Send a request, whose answer will be the channel's ``reply``. Raises RemoteError if the
        connection has ended, RemoteRefusedError for a request above 1 MiB."""
        if self._failure is not None:
            raise self._failure
        self._last_id += 1
        channel = Channel(self, self._last_id, OUTPUT)
        try:
            frame = wire.encode_message({"id": channel.number, "method": method, "params": params})
        except ValueError as error:
            raise RemoteRefusedError(str(error), code="too_large") from None
        self._channels[channel.number] = channel
        self.post(frame)
        return channel

    async def request(self, method: str, *, timeout: float = 30.0, **params: Any) -> dict[str, Any]:
        """Send a request without streams, and return its result. Raises RemoteRefusedError, and
        RemoteUnreachableError if there is no result within ``timeout`` seconds."""
        channel = self.open(method, **params)
        try:
            async with asyncio.timeout(timeout):
                return await channel.reply
        except TimeoutError:
            raise RemoteUnreachableError(
                f"{self.peer.name} did not answer {method!r} within {timeout:g} s"
            ) from None
        finally:
            channel.close()

    # For channels

    def post(self, frame: bytes) -> None:
        """Queue a frame. Does nothing once the connection has ended."""
        if self._failure is not None:
            return
        self._writer.write(frame)
        if self._writer.transport.get_write_buffer_size() > BACKLOG_MAX:
            self.end(RemoteProtocolError(f"{self.peer.name} does not read what it is sent"))

    async def drain(self) -> None:
        """Wait until the connection takes more. Raises the error that ended it."""
        try:
            await self._writer.drain()
        except OSError:
            await self.ended.wait()
        if self._failure is not None:
            raise self._failure

    def forget(self, channel: Channel) -> None:
        """Drop a channel; frames that still arrive for it are ignored."""
        self._channels.pop(channel.number, None)

    # Incoming

    def _dispatch(self, frame: wire.Frame) -> None:
        if isinstance(frame, wire.DataFrame):
            channel = self._find(frame.channel)
            if channel is not None:
                channel.receive(frame.stream, frame.payload)
            return
        message = frame.message
        if "method" in message:
            self._take_request(message)
        elif "event" in message:
            self._take_event(message, len(frame.text))
        else:
            self._take_reply(message, len(frame.text))

    def _find(self, number: object) -> Channel | None:
        """Return a live channel; None for one that was forgotten. Raises RemoteProtocolError for
        one that never was."""
        if isinstance(number, int) and not isinstance(number, bool):
            if (channel := self._channels.get(number)) is not None:
                return channel
            if 0 < number <= self._last_id:
                return None
        raise RemoteProtocolError(f"{self.peer.name} sent a frame of no channel: {number!r:.40}")

    def _take_event(self, message: dict[str, Any], size: int) -> None:
        if "channel" in message:
            channel = self._find(message["channel"])
            if channel is not None:
                channel.receive_event(message, size)
        elif message["event"] == "bye":
            self.is_left = True

    def _take_reply(self, message: dict[str, Any], size: int) -> None:
        channel = self._find(message.get("id"))
        if channel is None:
            return
        # An end that has given up may not have had the time to forget the channel.
        was_answered = channel.reply.done() and not channel.reply.cancelled()
        if self._answer is not None or (was_answered and "error" not in message):
            raise RemoteProtocolError(f"{self.peer.name} answers what was not asked")
        if size > wire.SMALL_MAX:
            raise RemoteProtocolError(f"{self.peer.name} sent an answer of {size} bytes")
        if channel.reply.cancelled():
            return
        if "error" not in message and isinstance(message.get("result"), dict):
            channel.reply.set_result(message["result"])
        else:
            # Even after a result: the work that had begun has failed.
            channel.fail(refusal(message.get("error"), self.peer.name))

    def _take_request(self, message: dict[str, Any]) -> None:
        number, method = message.get("id"), message.get("method")
        if self._answer is None:
            raise RemoteProtocolError(f"{self.peer.name} sent a request, which it must not")
        if isinstance(number, bool) or not isinstance(number, int):
            raise RemoteProtocolError(f"{self.peer.name} sent a request without a number")
        if not self._last_id < number < ID_MAX:
            raise RemoteProtocolError(f"{self.peer.name} sent a request out of order: {number}")
        self._last_id = number
        channel = Channel(self, number, INPUT)
        params = message.get("params", {})
        request = Request(str(method), params, channel, self)
        if not isinstance(method, str) or not isinstance(params, dict):
            request.refuse("bad_request", "method or params have a wrong type")
        elif len(self._tasks) >= REQUESTS_MAX:
            request.refuse("too_many", f"{REQUESTS_MAX} requests are under way")
        else:
            self._channels[number] = channel
            name = f"quicksand-remote-{method:.40}"
            task = asyncio.create_task(self._carry_out(request, self._answer), name=name)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, request: Request, answer: Answer) -> None:
        try:
            await answer(request)
        except RemoteUnreachableError:
            return  # nobody is left to read an answer
        except RemoteRefusedError as error:
            request.refuse(error.code, str(error), error.advice)
        except QuicksandError as error:
            request.refuse("failed", str(error), error.advice)
        except OSError as error:
            request.refuse("failed", str(error))
        finally:
            if not request.is_answered:
                request.refuse("internal", f"{request.method:.80} failed unexpectedly")
            request.channel.close()


def refusal(error: object, name: str) -> RemoteRefusedError:
    """Return the error in an answer as an exception. Raises RemoteProtocolError without one."""
    match error:
        case {"code": str(code), "message": str(message), **more}:
            return RemoteRefusedError(
                f"{name}: {bounded(message)}",
                code=bounded(code, 64),
                hint=read_hint(more.get("hint")),
            )
    raise RemoteProtocolError(f"{name} sent an answer with neither result nor error")


def read_hint(hint: Any) -> str | Words:
    """Read a hint. One that is not understood is left out: a newer version may know other
    remedies."""
    match hint:
        case str():
            return bounded(hint)
        case dict(words):
            try:
                found = Words.from_json(_bounded_words(words, HINT_DEPTH))
                str(found)  # fails for a remedy that lacks its arguments
            except (ValueError, LookupError, TypeError):
                return ""
            return found
    return ""


def _bounded_words(value: Any, depth: int) -> Any:
    """Return `Words.to_json`'s result with its texts bounded. Raises ValueError if it is deep."""
    if depth == 0:
        raise ValueError("the words are too deep")
    match value:
        case str():
            return bounded(value)
        case list():
            return [_bounded_words(one, depth - 1) for one in value]
        case dict():
            return {name: _bounded_words(one, depth - 1) for name, one in value.items()}
    return value


async def pass_on(
    channel: Channel,
    mine: Stream,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    at_end: Callable[[], None] = lambda: None,
) -> None:
    """Pass bytes on between a channel and a socket, until one of them ends. ``mine`` is the stream
    that this end sends; ``at_end`` is called before its end."""

    async def out() -> None:
        while data := await reader.read(READ):
            await channel.send(mine, data)

    async def back() -> None:
        while data := (await channel.piece()).data:
            writer.write(data)
            await writer.drain()

    ways = [
        asyncio.create_task(out(), name="quicksand-pass-out"),
        asyncio.create_task(back(), name="quicksand-pass-back"),
    ]
    try:
        with contextlib.suppress(RemoteError, OSError):
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in done:
                way.result()
    finally:
        for way in ways:
            way.cancel()
        await asyncio.wait(ways)
        at_end()
        channel.finish(mine)
        writer.close()

"""One connection to the agent: requests, channels, flow control. Knows nothing of sandboxes."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from quicksand.agent import wire
from quicksand.agent.wire import Stream
from quicksand.errors import (
    AgentError,
    AgentProtocolError,
    AgentRefusedError,
    AgentUnreachableError,
)

PROTOCOL = 1

OUTPUT_WINDOW = 1024 * 1024
"""Bytes of one output stream that may be on their way or unread in this process."""

INPUT_WINDOW = 256 * 1024
"""Bytes of input that may be unacknowledged (fixed by the protocol)."""

INPUT_CHUNK = 64 * 1024

OPEN_TIMEOUT_S = 30.0
"""A guest starts a command in milliseconds, one that swaps in seconds."""

CRUMB_MAX = 4096
"""Bytes up to which unread pieces of output are joined."""

MESSAGES_MAX = 10_000
"""Events that one channel may queue unread: more is an attack, the agent sends a handful."""


class AgentRestartedError(AgentUnreachableError):
    """The agent died and came back, the guest rebooted, or it gave the session up."""


class Channel:
    """The streams of one request. Made by `Session.open`; read it to its end or `close` it."""

    def __init__(self, session: Session, number: int) -> None:
        self._session = session
        self.number = number
        self._chunks: dict[int, deque[bytes]] = {Stream.STDOUT: deque(), Stream.STDERR: deque()}
        self._buffered = {Stream.STDOUT: 0, Stream.STDERR: 0}
        self._uncredited = {Stream.STDOUT: 0, Stream.STDERR: 0}
        self._input_credit = INPUT_WINDOW
        self._events: deque[dict[str, Any]] = deque()
        self._failure: AgentError | None = None
        self._changed = asyncio.Event()
        self.reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    # Called by the session.

    def receive(self, stream: int, payload: bytes) -> None:
        if stream == wire.CREDIT | Stream.INPUT:
            if len(payload) != 4:
                raise AgentProtocolError("the agent sent a credit that is not 4 bytes long")
            self._input_credit = min(self._input_credit + int.from_bytes(payload), INPUT_WINDOW)
        elif stream in self._chunks:
            kind = Stream(stream)
            self._buffered[kind] += len(payload)
            if self._buffered[kind] + self._uncredited[kind] > OUTPUT_WINDOW:
                raise AgentProtocolError("the agent sent more than its window allows")
            self._keep(self._chunks[kind], payload)
        else:
            raise AgentProtocolError(f"the agent sent a data frame of unknown stream {stream}")
        self._changed.set()

    @staticmethod
    def _keep(chunks: deque[bytes], payload: bytes) -> None:
        # Join crumbs: a window of 1-byte writes would cost fifty times its size as objects.
        if chunks and len(chunks[-1]) + len(payload) <= CRUMB_MAX:
            chunks[-1] += payload
        elif payload:
            chunks.append(payload)

    def receive_event(self, event: dict[str, Any]) -> None:
        if len(self._events) >= MESSAGES_MAX:
            raise AgentProtocolError("the agent floods the channel with events")
        self._events.append(event)
        self._changed.set()

    def fail(self, error: AgentError) -> None:
        self._failure = self._failure or error
        if not self.reply.done():
            self.reply.set_exception(error)
            self.reply.exception()  # nobody may be waiting: that is no mistake of the program's
        self._changed.set()

    # Called by the user of the channel.

    async def opened(self) -> dict[str, Any]:
        """The request's result: it has been started. Raises as `Session.request` does."""
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                return await asyncio.shield(self.reply)
        except TimeoutError:
            raise AgentUnreachableError(
                f"the guest's agent did not answer within {OPEN_TIMEOUT_S:g} s",
                hint="the guest may be overloaded or hung; `quicksand-tui logs` shows its console",
            ) from None

    async def read(self) -> tuple[Stream, bytes] | dict[str, Any]:
        """The next piece of output, or the next event once all output before it was read.

        Reading acknowledges: what is not read holds the command up (back-pressure).
        Raises AgentUnreachableError when the connection breaks; what came before it is read first.
        """
        while True:
            for stream in (Stream.STDOUT, Stream.STDERR):
                if self._chunks[stream]:
                    return stream, self._take(stream)
            if self._events:
                return self._events.popleft()
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()

    def _take(self, stream: Stream) -> bytes:
        payload = self._chunks[stream].popleft()
        self._buffered[stream] -= len(payload)
        self._uncredited[stream] += len(payload)
        if self._uncredited[stream] >= OUTPUT_WINDOW // 4:
            self._session.send(wire.encode_credit(self.number, stream, self._uncredited[stream]))
            self._uncredited[stream] = 0
        return payload

    async def write(self, data: bytes | memoryview) -> None:
        """Send input; waits while the guest does not take it. Raises as `read` does."""
        view = memoryview(data)
        while view:
            while self._input_credit <= 0 and self._failure is None:
                self._changed.clear()
                await self._changed.wait()
            if self._failure is not None:
                raise self._failure
            size = min(len(view), self._input_credit, INPUT_CHUNK)
            self._input_credit -= size
            self._session.send(wire.encode_data(self.number, Stream.INPUT, view[:size]))
            view = view[size:]
            await self._session.drain()

    def write_eof(self) -> None:
        """End the input."""
        if self._failure is None:
            self._session.send(wire.encode_data(self.number, Stream.INPUT, b""))

    def close(self) -> None:
        """Forget the channel: what still comes for it is dropped."""
        self._session.forget(self)


class Session(asyncio.Protocol):
    """A live, authenticated connection. Make one with `connect`."""

    def __init__(self, why_broken: Callable[[], AgentError | None] = lambda: None) -> None:
        """``why_broken`` may know better why a connection has ended than that it has."""
        self._why_broken = why_broken
        self._transport: asyncio.Transport | None = None
        self._decoder = wire.FrameDecoder()
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._channels: dict[int, Channel] = {}
        self._forgotten: deque[int] = deque(maxlen=256)
        self._last_id = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._failure: AgentError | None = None
        self.closed = asyncio.Event()
        self.hello: dict[str, Any] = {}
        """The agent's answer to the handshake."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        try:
            for frame in self._decoder.feed(data):
                self._dispatch(frame)
        except (AgentProtocolError, AgentRestartedError) as error:
            self._break(error)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {exc}" if exc else ""
        plain = AgentUnreachableError(f"the connection to the guest's agent broke{reason}")
        self._break(self._why_broken() or plain)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Requests

    async def request(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = 30.0
    ) -> dict[str, Any]:
        """Send one request and return its result.

        Raises AgentRefusedError for an error reply, AgentUnreachableError when no answer comes
        within ``timeout`` seconds or the connection breaks: the outcome is unknown then.
        """
        number = self._next_id()
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        try:
            self._send_request(number, method, params or {})
            async with asyncio.timeout(timeout):
                return await reply
        except TimeoutError:
            raise AgentUnreachableError(
                f"the guest's agent did not answer {method!r} within {timeout:g} s",
                hint="the guest may be overloaded or hung; `quicksand-tui logs` shows its console",
            ) from None
        finally:
            self._replies.pop(number, None)

    def open(self, method: str, params: dict[str, Any]) -> Channel:
        """Send a request that opens a channel. ``channel.reply`` resolves to its result."""
        channel = Channel(self, self._next_id())
        self._channels[channel.number] = channel
        try:
            self._send_request(channel.number, method, {**params, "window": OUTPUT_WINDOW})
        except BaseException:
            self.forget(channel)
            raise
        return channel

    def _next_id(self) -> int:
        if self._failure is not None:
            raise self._failure
        self._last_id += 1
        return self._last_id

    def _send_request(self, number: int, method: str, params: dict[str, Any]) -> None:
        try:
            frame = wire.encode_message({"id": number, "method": method, "params": params})
        except (ValueError, TypeError) as error:
            raise AgentRefusedError(str(error), code="too_large") from None
        self.send(frame)

    def send(self, frame: bytes) -> None:
        if self._failure is None and self._transport is not None:
            self._transport.write(frame)

    async def drain(self) -> None:
        await self._writable.wait()

    def forget(self, channel: Channel) -> None:
        if self._channels.pop(channel.number, None) is not None:
            self._forgotten.append(channel.number)

    # Incoming

    def _dispatch(self, frame: wire.Frame) -> None:
        if isinstance(frame, wire.DataFrame):
            channel = self._channels.get(frame.channel)
            if channel is not None:
                channel.receive(frame.stream, frame.payload)
            elif frame.channel not in self._forgotten:
                raise AgentProtocolError(
                    f"the agent sent data for channel {frame.channel}, which was never opened"
                )
            return
        message = frame.message
        if message.get("event") == "started":
            # The port outlives the agent, so this is how a client learns that it died.
            raise AgentRestartedError("the guest's agent was restarted; what ran has ended")
        if message.get("event") == "closed":
            raise AgentRestartedError(
                f"the guest's agent ended the session: {message.get('error')}"
            )
        if "event" in message:
            channel = self._channels.get(_number(message, "channel"))
            if channel is not None:
                channel.receive_event(message)
            return
        self._dispatch_reply(message)

    def _dispatch_reply(self, message: dict[str, Any]) -> None:
        number = _number(message, "id")
        channel = self._channels.get(number)
        reply = channel.reply if channel is not None else self._replies.get(number)
        if reply is None or reply.done():
            return  # late: its caller has given up
        if "error" in message:
            error = _refusal(message["error"])
            if channel is not None:
                channel.fail(error)
            else:
                reply.set_exception(error)
        elif isinstance(message.get("result"), dict):
            reply.set_result(message["result"])
        else:
            raise AgentProtocolError("the agent sent a reply with neither result nor error")

    def _break(self, error: AgentError) -> None:
        """End the session; everything that waits learns why. Idempotent."""
        if self._failure is None:
            self._failure = error
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(error)
            for channel in list(self._channels.values()):
                channel.fail(error)
            self._channels.clear()
            self._writable.set()
            self.closed.set()
        if self._transport is not None:
            self._transport.abort()

    async def handshake(self, token: str, *, timeout: float, set_clock: bool = True) -> None:
        """Say hello with a fresh nonce; with ``set_clock`` the guest's clock is set if it is off.
        Raises as `request` does."""
        nonce = secrets.token_bytes(wire.NONCE_BYTES)
        self._decoder.expect_marker(nonce)
        params: dict[str, Any] = {
            "nonce": nonce.hex(),
            "token": token,
            "protocol": PROTOCOL,
        }
        if set_clock:
            params["unix_ns"] = time.time_ns()
        self.hello = await self.request("hello", params, timeout=timeout)

    def close(self) -> None:
        """Close the connection; the guest ends what this session started. Idempotent."""
        self._break(AgentUnreachableError("the connection to the guest's agent was closed"))


async def dial(
    path: str | os.PathLike[str], why_broken: Callable[[], AgentError | None] = lambda: None
) -> Session:
    """Connect to an agent's Unix socket; what comes next is `Session.handshake`.

    Raises AgentUnreachableError when there is no socket.
    """
    loop = asyncio.get_running_loop()
    try:
        _, session = await loop.create_unix_connection(lambda: Session(why_broken), os.fspath(path))
    except OSError as error:
        raise AgentUnreachableError(f"cannot connect to {path}: {error.strerror}") from error
    return session


async def connect(
    path: str | os.PathLike[str],
    token: str,
    *,
    timeout: float,
    why_broken: Callable[[], AgentError | None] = lambda: None,
    set_clock: bool = True,
) -> Session:
    """`dial` and shake hands. Raises AgentUnreachableError, also when there is no answer within
    ``timeout`` seconds."""
    session = await dial(path, why_broken)
    try:
        await session.handshake(token, timeout=timeout, set_clock=set_clock)
    except BaseException:
        session.close()
        raise
    return session


def _number(message: dict[str, Any], key: str) -> int:
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise AgentProtocolError(f"the agent sent a message whose {key!r} is not a number")
    return value


def _refusal(error: object) -> AgentRefusedError:
    if not isinstance(error, dict):
        raise AgentProtocolError("the agent sent an error that is not an object")
    message, code = error.get("message"), error.get("code")
    return AgentRefusedError(
        message if isinstance(message, str) and message else "the agent refused the request",
        code=code if isinstance(code, str) else "internal",
    )

"""One connection to the agent: requests and their channels. It knows nothing of sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

from quicksand.base.effort import best_effort
from quicksand.base.errors import (
    AgentError,
    AgentProtocolError,
    AgentRefusedError,
    AgentUnreachableError,
)
from quicksand.base.remedies import Remedy, Words
from quicksand.guest.agent import refusals, values, wire
from quicksand.guest.agent.channel import ALL_OUTPUT, Budget, Channel, GuestState, Wait
from quicksand.guest.agent.values import bounded, real
from quicksand.guest.agent.wire import Stream

PROTOCOL = 1


class AgentRestartedError(AgentUnreachableError):
    """The agent restarted, the guest rebooted, or the agent ended the session."""


class _Waiting(NamedTuple):
    """An awaited reply."""

    reply: asyncio.Future[dict[str, Any]]
    size_max: int
    """Bytes that the reply may have."""


Ask = Callable[[str, dict[str, Any], float], Awaitable[dict[str, Any]]]
"""Asks an agent: method, parameters, seconds until TimeoutError."""

SYNC_S = 2.0
"""Seconds that a guest may take to write its memory's data to its disk."""


class Session(asyncio.Protocol):
    """A live, authenticated connection, made by `connect`."""

    def __init__(self, why_broken: Callable[[], AgentError | None] = lambda: None) -> None:
        """``why_broken`` may return a more precise error when the connection ends."""
        self._why_broken = why_broken
        self._transport: asyncio.Transport | None = None
        self.loop = asyncio.get_running_loop()
        self._decoder = wire.FrameDecoder()
        self.guest = GuestState()
        """The state of the guest on which the connection waits."""
        self._replies: dict[int, _Waiting] = {}
        self._channels: dict[int, Channel] = {}
        self.budget = Budget()
        self._last_id = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._failure: AgentError | None = None
        self.is_deaf = False
        """Whether incoming bytes are ignored, until the handshake."""
        self.closed = asyncio.Event()
        self.hello: dict[str, Any] = {}
        """The agent's answer to the handshake."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of other event loops (uvloop) are not instances of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._failure is not None or self.is_deaf:
            return
        try:
            for frame in self._decoder.feed(data):
                self._dispatch(frame)
        except (AgentProtocolError, AgentRestartedError) as error:
            self._break(error)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {exc}" if exc else ""
        plain = AgentUnreachableError(
            f"the connection to the guest's agent broke{reason}",
            hint=Words("if the guest has crashed, ", Remedy("logs"), " shows why"),
        )
        self._break(self._why_broken() or plain)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Requests

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        timeout: float | None = 30.0,
        reply_max: int = wire.JSON_MAX,
    ) -> dict[str, Any]:
        """Send one request and return its result.

        Raises AgentRefusedError for an error reply or a request above 1 MiB, ConfigError for a text
        that is not UTF-8, before anything is sent. Raises AgentUnreachableError if no reply comes
        within ``timeout`` seconds in which the guest runs, or if the connection breaks: then the
        outcome is unknown. A reply of more than ``reply_max`` bytes ends the session.
        """
        number = self._next_id()
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[number] = _Waiting(reply, reply_max)
        try:
            self._send_request(number, method, params or {})
            return await self.wait(timeout).until(lambda: asyncio.shield(reply))
        except TimeoutError:
            raise AgentUnreachableError(
                f"the guest's agent did not answer {method!r} within {timeout:g} s",
                hint=Words(
                    "the guest may be overloaded or hung; ", Remedy("logs"), " shows its console"
                ),
            ) from None
        finally:
            self._replies.pop(number, None)

    def open(
        self, method: str, params: dict[str, Any], *, streams: tuple[Stream, ...] = ALL_OUTPUT
    ) -> Channel:
        """Send a request that opens a channel; ``channel.reply`` resolves to its result.

        ``streams`` are those that the agent may write to. Raises StateError if too many are open,
        AgentRefusedError for a request above 1 MiB, ConfigError for a text that is not UTF-8,
        AgentError if the session has ended.
        """
        channel = Channel(self, self._next_id(), streams)
        self._channels[channel.number] = channel
        try:
            self._send_request(channel.number, method, {**params, "window": channel.window})
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
        except UnicodeEncodeError as error:
            raise values.no_bytes(_unreadable(method, params), error) from None
        except (ValueError, TypeError, RecursionError) as error:
            raise AgentRefusedError(str(error), code="too_large") from None
        self.send(frame)

    def send(self, frame: bytes) -> None:
        """Queue a frame. Does nothing once the session has ended."""
        if self._failure is None and self._transport is not None:
            self._transport.write(frame)

    async def drain(self) -> None:
        """Wait until the transport takes more."""
        await self.wait(None).until(self._writable.wait)

    def wait(self, seconds: float | None) -> Wait:
        """Return a wait for something that the guest does."""
        return Wait(self.guest, seconds)

    def forget(self, channel: Channel) -> None:
        """Drop a channel; frames that still arrive for it are ignored."""
        if self._channels.pop(channel.number, None) is not None:
            channel.release()

    def cancel(self, channel: Channel) -> None:
        """Drop a channel, and have the agent end its request, without waiting for that. Nothing is
        sent once the session has ended."""
        if channel.number in self._channels and self._failure is None:
            self._send_request(self._next_id(), "cancel", {"id": channel.number})
        self.forget(channel)

    async def wait_closed(self) -> AgentError:
        """Wait for the end of the session, and return why it ended."""
        await self.closed.wait()
        assert self._failure is not None
        return self._failure

    # Incoming

    def _dispatch(self, frame: wire.Frame) -> None:
        if isinstance(frame, wire.DataFrame):
            channel = self._channels.get(frame.channel)
            if channel is not None:
                channel.receive(frame.stream, frame.payload)
            elif not 0 < frame.channel <= self._last_id:
                raise AgentProtocolError(
                    f"the agent sent data for channel {frame.channel}, which was never opened"
                )
            return
        message = frame.message
        if message.get("event") == "started":
            # The connection outlives the agent, so only this event tells that it died.
            raise AgentRestartedError("the guest's agent was restarted; what ran has ended")
        if message.get("event") == "closed":
            error = message.get("error")
            reason = self.refusal(error) if isinstance(error, dict) else bounded(str(error))
            raise AgentRestartedError(f"the guest's agent ended the session: {reason}")
        if "event" in message:
            channel = self._channels.get(_number(message, "channel"))
            if channel is not None:
                channel.receive_event(frame.text, message["event"])
            return
        self._dispatch_reply(message, len(frame.text))

    def _dispatch_reply(self, message: dict[str, Any], size: int) -> None:
        number = _number(message, "id")
        channel = self._channels.get(number)
        waiting = self._replies.get(number)
        if channel is not None:
            waiting = _Waiting(channel.reply, wire.SMALL_MAX)
        if waiting is None or waiting.reply.done():
            return  # too late: the caller has given up
        if size > waiting.size_max:
            raise AgentProtocolError(
                f"the agent sent a reply of {size} bytes; {waiting.size_max} is the most here"
            )
        reply = waiting.reply
        if "error" in message:
            error = self.refusal(message["error"])
            if channel is not None:
                channel.fail(error)
            else:
                reply.set_exception(error)
        elif isinstance(message.get("result"), dict):
            reply.set_result(message["result"])
        else:
            raise AgentProtocolError("the agent sent a reply with neither result nor error")

    def _break(self, error: AgentError) -> None:
        """End the session; every waiting request and channel gets ``error``. Idempotent."""
        if self._failure is None:
            # The frames of a traceback would keep the agent's data alive as long as the error.
            self._failure = error.with_traceback(None)
            for waiting in self._replies.values():
                if not waiting.reply.done():
                    waiting.reply.set_exception(error)
            for channel in list(self._channels.values()):
                channel.fail(error)
            self._channels.clear()
            self._writable.set()
            self.closed.set()
        if self._transport is not None:
            _end(self._transport, self.loop)

    async def handshake(self, token: str, *, timeout: float, set_clock: bool = True) -> None:
        """Say hello with a fresh nonce. ``set_clock`` lets the agent set the guest's clock.
        Raises as `request`."""
        nonce = os.urandom(wire.NONCE_BYTES)
        self._decoder.expect_marker(nonce)
        self.is_deaf = False
        params: dict[str, Any] = {
            "nonce": nonce.hex(),
            "token": token,
            "protocol": PROTOCOL,
        }
        if set_clock:
            params["unix_ns"] = time.time_ns()
        hello = await self.request("hello", params, timeout=timeout, reply_max=wire.SMALL_MAX)
        self.hello = {**hello, "boot": _marks(hello.get("boot"))}

    def can(self, capability: str) -> bool:
        """Whether the agent has announced a capability in the handshake."""
        known = self.hello.get("capabilities")
        return isinstance(known, list) and capability in known

    def refusal(self, error: object, otherwise: str = "") -> AgentRefusedError:
        """Return an error of the agent as an exception, with the message ``otherwise`` if it has
        none. Raises AgentProtocolError if it is not an error."""
        return refusals.decode(error, tells=self.can(refusals.TELLS), otherwise=otherwise)

    def explain(self, why_broken: Callable[[], AgentError | None]) -> None:
        """Set ``why_broken`` (see `__init__`)."""
        self._why_broken = why_broken

    def leave(self) -> None:
        """Close the connection as if the other end had; calls that wait get the same error."""
        self.connection_lost(None)

    def close(self) -> None:
        """Close the connection; the agent ends everything that this session started. Idempotent."""
        self._break(AgentUnreachableError("the connection to the guest's agent was closed"))


async def dial(
    path: str | os.PathLike[str], why_broken: Callable[[], AgentError | None] = lambda: None
) -> Session:
    """Connect to an agent's Unix socket; `Session.handshake` comes next.

    Raises AgentUnreachableError if nobody listens there.
    """
    loop = asyncio.get_running_loop()
    try:
        _, session = await loop.create_unix_connection(lambda: Session(why_broken), os.fspath(path))
    except OSError as error:
        raise AgentUnreachableError(f"cannot connect to {path}: {error.strerror}") from error
    session.is_deaf = True  # the agent's words until now are for the earlier client
    return session


async def connect(
    path: str | os.PathLike[str],
    token: str,
    *,
    timeout: float,
    why_broken: Callable[[], AgentError | None] = lambda: None,
    set_clock: bool = True,
) -> Session:
    """Connect to an agent's Unix socket and say hello.

    Raises AgentUnreachableError if nobody listens there or no reply comes within ``timeout``
    seconds, AgentRefusedError for a wrong token.
    """
    session = await dial(path, why_broken)
    try:
        await session.handshake(token, timeout=timeout, set_clock=set_clock)
    except BaseException:
        session.close()
        raise
    return session


def _end(transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
    """End a connection now, even if its event loop has ended without it."""
    if loop.is_running():
        transport.abort()
        return
    ours = transport.get_extra_info("socket")
    if ours is None:  # uvloop has closed it at its own end
        return
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(ours.fileno())) as same:
        same.shutdown(socket.SHUT_RDWR)


def _number(message: dict[str, Any], key: str) -> int:
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise AgentProtocolError(f"the agent sent a message whose {key!r} is not a number")
    return value


def _marks(boot: object) -> dict[str, float]:
    """Return the guest's boot times, in seconds, without values that make no sense."""
    found: dict[str, float] = {}
    for key, value in boot.items() if isinstance(boot, dict) else ():
        with contextlib.suppress(ValueError):
            found[key] = real(value)
    return found


def _unreadable(method: str, params: dict[str, Any]) -> str:
    """Name the parameter that cannot be encoded."""
    for key, value in params.items():
        with contextlib.suppress(TypeError, ValueError):
            if not values.is_utf8(json.dumps({key: value}, ensure_ascii=False)):
                return f"{key!r} of {method!r}" if values.is_utf8(key) else f"a name in {method!r}"
    return f"{method!r:.80}"


async def sync_guest(ask: Ask, log: Path) -> None:
    """Have a guest sync its disk. A checkpoint contains its memory in any case, so this may fail,
    and must not take long."""
    with best_effort("have the guest sync its disk", log):
        async with asyncio.timeout(SYNC_S):
            await ask("sync", {}, SYNC_S)

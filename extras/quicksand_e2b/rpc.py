"""Carries procedures over HTTP: one message and its answer, or a stream of them."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import web
from quicksand import QuicksandError

from quicksand_e2b import wire
from quicksand_e2b.bodies import pieces, read_body
from quicksand_e2b.errors import ApiError, RpcError, rpc_error
from quicksand_e2b.fanout import Cut, Event, LeftBehind, Source, events
from quicksand_e2b.fields import Body, parse_json

T = TypeVar("T")

KEEPALIVE_S = 90.0
KEEPALIVE_MOST_S = 600.0
TIMEOUT_MOST_S = 30 * 24 * 3600.0

STREAMS_MAX = 1000
"""The most open streams of all sandboxes."""

STREAMS_EACH_MAX = 250
"""The most open streams of one sandbox: more than a client opens to one address (200)."""

SLOW_S = 60.0
"""Seconds that a client may take nothing of a stream before it is cut off."""


class Streams:
    """Counts the streams that are open."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def enter(self, id_: str) -> None:
        """Counts one more stream. Raises RpcError ("resource_exhausted")."""
        if self._open.get(id_, 0) >= STREAMS_EACH_MAX:
            raise RpcError("resource_exhausted", f"{STREAMS_EACH_MAX} streams of {id_} are open")
        if sum(self._open.values()) >= STREAMS_MAX:
            raise RpcError("resource_exhausted", f"{STREAMS_MAX} streams are open")
        self._open[id_] = self._open.get(id_, 0) + 1

    def leave(self, id_: str) -> None:
        self._open[id_] -= 1
        if not self._open[id_]:
            del self._open[id_]


def as_rpc(error: ApiError | RpcError | QuicksandError) -> RpcError:
    """Returns an error as the failure of a procedure."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, ApiError):
        return RpcError(_CODES.get(error.status, "internal"), error.message)
    return rpc_error(error)


_CODES = {
    400: "invalid_argument", 401: "unauthenticated", 404: "not_found", 408: "deadline_exceeded",
    409: "failed_precondition", 413: "resource_exhausted", 429: "resource_exhausted",
    501: "unimplemented",
}  # fmt: skip


async def unary(
    request: web.Request, procedure: Callable[[Body], Awaitable[dict[str, Any]]]
) -> web.Response:
    """Answers a procedure of one message."""
    try:
        if request.content_type != wire.JSON:
            raise RpcError("invalid_argument", f"the body must be {wire.JSON}")
        found = await procedure(Body(parse_json(await read_body(request))))
    except (ApiError, RpcError, QuicksandError) as error:
        failure = as_rpc(error)
        return web.json_response(failure.body(), status=failure.status)
    return web.json_response(found)


async def messages(request: web.Request) -> AsyncIterator[Body]:
    """Yields the messages of a client. Raises RpcError, ApiError."""
    if request.content_type != wire.STREAM:
        raise RpcError("invalid_argument", f"the body must be {wire.STREAM}")
    decoder = wire.Decoder()
    async for data in pieces(request):
        for message in decoder.feed(data):
            if message.is_end:
                return
            yield Body(message.value)
    decoder.check_end()


async def only_message(request: web.Request) -> Body:
    """Returns the one message of a client that gets a stream. Raises RpcError, ApiError."""
    async for found in messages(request):
        return found
    raise RpcError("invalid_argument", "the request has no message")


async def stream(
    request: web.Request,
    begin: Callable[[Body], Awaitable[tuple[Event, Source, Callable[[], RpcError | None]]]],
    *,
    bounded: bool,
    wrap: Callable[[Event], Event] = lambda event: {"event": event},
) -> web.StreamResponse:
    """Answers a procedure with a stream. ``begin`` returns its first event, the source of the
    others, and a function that tells the error that ended them. If ``bounded``, the time that the
    request gives is that of the stream. ``wrap`` makes the message of an event."""
    response = web.StreamResponse(headers={"Content-Type": wire.STREAM})
    try:
        first, listener, failure = await begin(await only_message(request))
    except (ApiError, RpcError, QuicksandError) as error:
        await response.prepare(request)
        await response.write(wire.encode_end(as_rpc(error)))
        return response
    try:
        await response.prepare(request)
        await _send(response, wire.encode(wrap(first)))
        until = timeout_of(request) if bounded else None
        async with asyncio.timeout(until):
            async for event in events(listener, _idle_of(request)):
                await _send(response, wire.encode(wrap(event)))
        await _send(response, wire.encode_end(failure()))
    except TimeoutError:
        await response.write(
            wire.encode_end(RpcError("deadline_exceeded", "the time of the stream is up"))
        )
    except LeftBehind:
        end = RpcError("resource_exhausted", "the client took the output too slowly")
        await _send(response, wire.encode_end(end))
    except RpcError as error:
        await _send(response, wire.encode_end(error))
    except Cut:
        cut_off(request)
    finally:
        listener.close()
    return response


def cut_off(request: web.Request) -> None:
    """Resets the connection, which tells a client that its sandbox has gone: a connection that just
    ends within a stream is taken for a fault of the protocol."""
    transport = request.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        # With no time to linger the end is a reset (socket(7)).
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


async def _send(response: web.StreamResponse, data: bytes) -> None:
    """Sends data; waits until the client takes it. Raises ConnectionError if that takes too
    long."""
    try:
        async with asyncio.timeout(SLOW_S):
            await response.write(data)
    except TimeoutError:
        raise ConnectionResetError("the client takes nothing") from None


def timeout_of(request: web.Request) -> float | None:
    """Returns the seconds that a request gives; None if it gives no limit. Raises RpcError."""
    text = request.headers.get("connect-timeout-ms", "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > 10:
        raise RpcError("invalid_argument", "connect-timeout-ms is no number of milliseconds")
    return min(int(text) / 1000, TIMEOUT_MOST_S) or None


def _idle_of(request: web.Request) -> float:
    text = request.headers.get("Keepalive-Ping-Interval", "")
    if text.isdecimal() and int(text[:6]) > 0:
        return min(float(text[:6]), KEEPALIVE_MOST_S)
    return KEEPALIVE_S


async def take(
    request: web.Request,
    begin: Callable[[Body], Awaitable[T]],
    more: Callable[[T, Body], Awaitable[None]],
) -> web.StreamResponse:
    """Takes the stream of a client: ``begin`` gets its first message, ``more`` each other one."""
    response = web.StreamResponse(headers={"Content-Type": wire.STREAM})
    failure: RpcError | None = None
    try:
        target: T | None = None
        async for body in messages(request):
            if target is None:
                target = await begin(body)
            else:
                await more(target, body)
    except (ApiError, RpcError, QuicksandError) as error:
        failure = as_rpc(error)
    await response.prepare(request)
    if failure is None:
        await response.write(wire.encode({}))
    await response.write(wire.encode_end(failure))
    return response

"""Calls and their answers: the near end has another machine call a method once, whatever happens to
the connection; the far end answers with JSON of any size, or an error by its class."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from quicksand.base.errors import (
    QuicksandError,
    RemoteError,
    RemoteProtocolError,
    RemoteRefusedError,
    RemoteUnreachableError,
)
from quicksand.guest.agent.wire import Stream
from quicksand.hosted.codec import decode_error, encode_error
from quicksand.hosted.protocol import ANSWER_MAX, CAPABILITY, UNDO_S
from quicksand.remote.connection import Sharing
from quicksand.remote.peer_link import Channel, Link, Request

Report = Callable[..., Any]


async def require_capability(
    shared: Sharing, capability: str = CAPABILITY, *, to: str = ""
) -> None:
    """Connect. Raises RemoteRefusedError if the other machine lacks the capability; ``to`` names
    its purpose."""
    await shared.link()
    if not shared.can(capability):
        raise RemoteRefusedError(
            f"the program on {shared.destination.short} is too old "
            + (f"to {to}" if to else f"for {capability!r}"),
            code="unsupported",
            hint="install the same version on both machines",
        )


async def ask(shared: Sharing, method: str, **params: Any) -> Any:
    """Send a request that changes nothing, and return its answer. Raises RemoteError."""
    link = await shared.link()
    channel = link.open(method, **params)
    try:
        return await read_answer(link, channel)
    finally:
        channel.close()


async def call(
    shared: Sharing, params: dict[str, Any], report: Report | None = None
) -> dict[str, Any]:
    """Have a method called, and return its answer. ``report`` gets the reports of progress.

    Raises what the method raises; RemoteUnreachableError if it is unknown whether it was called. A
    cancellation cancels the call there, and waits for it to undo its work, for at most `UNDO_S`.
    """
    once = os.urandom(16).hex()
    generation: int | None = None
    while True:
        try:
            link = await shared.link()
        except RemoteError as error:
            if generation is None:
                raise
            raise _unknown(shared, str(params.get("name"))) from error
        if generation not in (None, shared.generation):
            raise _unknown(shared, str(params.get("name")))
        generation = shared.generation
        try:
            channel = link.open("call", once=once, **params)
            try:
                answer = await _follow(link, channel, report)
            finally:
                channel.close()
        except RemoteUnreachableError:
            continue
        shared.got_on()
        with contextlib.suppress(RemoteError):
            link.open("answered", once=once).close()
        if not isinstance(answer, dict):
            raise RemoteProtocolError(f"{link.peer.name} answered a call with something else")
        if "error" in answer:
            raise decode_error(answer["error"], link.peer.name)
        return answer


def _unknown(shared: Sharing, method: str) -> RemoteUnreachableError:
    return RemoteUnreachableError(
        f"whether {method}() was carried out on {shared.destination.short} is unknown: the "
        "connection broke, and it no longer knows of it",
        hint="look at what is there before you do it again",
    )


async def _follow(link: Link, channel: Channel, report: Report | None) -> Any:
    """Wait for the answer to a call, with its reports."""
    reading = asyncio.create_task(read_answer(link, channel), name="quicksand-answer")
    reporting = asyncio.create_task(_report(channel, report), name="quicksand-reports")
    try:
        await asyncio.wait([reading, reporting], return_when=asyncio.FIRST_COMPLETED)
        if reporting.done() and not reading.done():
            # The caller's function has raised: end the work with that error.
            await _cancel(channel, reading)
            reporting.result()
        return await reading
    except asyncio.CancelledError:
        await _cancel(channel, reading)
        raise
    finally:
        for task in (reading, reporting):
            task.cancel()
        await asyncio.wait([reading, reporting])
        for task in (reading, reporting):
            if not task.cancelled():
                task.exception()


async def _cancel(channel: Channel, reading: asyncio.Task[Any]) -> None:
    channel.tell("cancel")
    await asyncio.wait([reading], timeout=UNDO_S)


async def _report(channel: Channel, report: Report | None) -> None:
    while True:
        try:
            event = await channel.event()
        except RemoteError:
            await asyncio.Event().wait()  # the answer tells
        match event:  # pyright: ignore[reportPossiblyUnboundVariable]  # that wait has no end
            case {"event": "progress", "args": list(args)} if report is not None:
                if all(isinstance(one, str | int) for one in args) and len(args) <= 3:
                    report(*args)


async def read_answer(link: Link, channel: Channel) -> Any:
    """Read an answer that comes as a stream of JSON. Raises RemoteError, and the answer's error."""
    data = await read_bytes(link, channel, ANSWER_MAX)
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise RemoteProtocolError(f"{link.peer.name} sent an answer that is no JSON") from None


async def read_bytes(link: Link, channel: Channel, limit: int) -> bytes:
    """Read an answer that comes as a stream of at most ``limit`` bytes. Raises as
    `read_answer`."""
    answer = await channel.reply
    if "error" in answer:
        raise decode_error(answer["error"], link.peer.name)
    size = answer.get("bytes")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= limit:
        raise RemoteProtocolError(f"{link.peer.name} sent an answer that makes no sense")
    data = bytearray()
    while piece := (await channel.piece()).data:
        data += piece
        if len(data) > size:
            raise RemoteProtocolError(f"{link.peer.name} sent more of an answer than it said")
    if len(data) != size:
        raise RemoteProtocolError(f"{link.peer.name} sent less of an answer than it said")
    return bytes(data)


async def send_json(request: Request, value: Any) -> None:
    """Answer with a value."""
    await send_bytes(request, json.dumps(value).encode())


async def send_bytes(request: Request, data: bytes) -> None:
    """Answer with the bytes of JSON as a stream."""
    request.answer(bytes=len(data))
    await request.channel.send(Stream.STDOUT, data)
    request.channel.finish(Stream.STDOUT)


@contextlib.contextmanager
def told_to(request: Request) -> Iterator[None]:
    """Answer a request that fails with the error of its failure (`calling.value_of`)."""
    try:
        yield
    except RemoteError:
        raise
    except (QuicksandError, OSError) as error:
        if request.is_answered:
            raise
        request.answer(error=encode_error(error))

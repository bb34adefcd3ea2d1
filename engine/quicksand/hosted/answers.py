"""Answers of the far end: JSON of any size as a stream, and errors by their classes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from quicksand.base.errors import QuicksandError, RemoteError
from quicksand.guest.agent.wire import Stream
from quicksand.hosted.errors import encode_error
from quicksand.remote.peer_link import Request


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

"""A small HTTP/1.1 server on asyncio: a connection is one request, whose answer is JSON or a stream
of lines of JSON. A client that leaves cancels the work for it."""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import re
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from quicksand_interpreter.messages import Line

HEAD_MAX = 64 * 1024
BODY_MAX = 16 * 1024 * 1024
READ_S = 60.0
"""Seconds that a request may take to arrive."""

_FIRST = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]")


class RefusedError(Exception):
    """Raised for an answer with the status of an error, and its reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    """The path, without the part after "?"."""
    body: bytes

    def values(self) -> dict[str, Any]:
        """The members of the body, which is JSON or empty. Raises RefusedError."""
        try:
            found = json.loads(self.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise RefusedError(400, f"the body is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise RefusedError(400, "the body is no JSON object")
        return found


Answer = AsyncIterator[Line] | list[Any] | dict[str, Any] | None
"""Lines, a value, or nothing."""

Handle = Callable[[Request], Awaitable[Answer]]


async def listen(handle: Handle, host: str, port: int) -> asyncio.Server:
    """Serve the answers of ``handle``. Raises OSError if it cannot listen there."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _converse(handle, reader, writer)
        finally:
            writer.close()

    return await asyncio.start_server(converse, host, port, limit=HEAD_MAX)


async def _converse(
    handle: Handle, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        async with asyncio.timeout(READ_S):
            request = await read_request(reader)
    except RefusedError as refusal:
        await _send_value(writer, refusal.status, {"message": refusal.message})
        return
    except (TimeoutError, OSError, asyncio.IncompleteReadError):
        return
    work = asyncio.create_task(_answer(handle, request, writer))
    gone = asyncio.create_task(_until_gone(reader))
    await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    work.cancel()
    gone.cancel()
    await asyncio.gather(work, gone, return_exceptions=True)


async def _until_gone(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(4096):
            pass


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Read a request. Raises RefusedError, OSError, asyncio.IncompleteReadError."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise RefusedError(431, f"the head has more than {HEAD_MAX} bytes") from None
    first, *lines = head[:-4].split(b"\r\n")
    found = _FIRST.fullmatch(first)
    if found is None:
        raise RefusedError(400, "that is no request of HTTP/1.1")
    headers = {}
    for line in lines:
        name, _, text = line.partition(b":")
        headers[name.strip().lower()] = text.strip()
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        body = await _read_chunks(reader)
    else:
        body = await _read_exactly(reader, headers.get(b"content-length", b"0"), 10, b"")
    path = found[2].partition(b"?")[0].decode("ascii")
    return Request(method=found[1].decode("ascii"), path=path, body=body)


async def _read_exactly(
    reader: asyncio.StreamReader, length: bytes, base: int, before: bytes
) -> bytes:
    try:
        size = int(length, base)
    except ValueError:
        size = -1
    if size < 0:
        raise RefusedError(400, "the length of the body is no number")
    if len(before) + size > BODY_MAX:
        raise RefusedError(413, f"a body has at most {BODY_MAX} bytes")
    return await reader.readexactly(size)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        try:
            length = (await reader.readuntil(b"\r\n")).partition(b";")[0].strip()
        except asyncio.LimitOverrunError:
            raise RefusedError(400, "a chunk has no length") from None
        chunk = await _read_exactly(reader, length, 16, body)
        body += chunk
        if await reader.readexactly(2) != b"\r\n":
            raise RefusedError(400, "a chunk has another length than it says")
        if not chunk:
            return body


async def _answer(handle: Handle, request: Request, writer: asyncio.StreamWriter) -> None:
    try:
        answer = await handle(request)
    except RefusedError as refusal:
        await _send_value(writer, refusal.status, {"message": refusal.message})
    except Exception as error:  # noqa: BLE001 - a fault of ours ends one request only
        traceback.print_exc()
        await _send_value(writer, 500, {"message": f"a fault of the interpreter: {error!r}"})
    else:
        if isinstance(answer, AsyncIterator):
            await _send_lines(writer, answer)
        else:
            await _send_value(writer, 204 if answer is None else 200, answer)


async def _send_value(writer: asyncio.StreamWriter, status: int, value: Any) -> None:
    body = b"" if value is None else json.dumps(value).encode()
    head = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\nConnection: close\r\n"
    if value is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"\r\n" + body)
    with contextlib.suppress(OSError):
        await writer.drain()


async def _send_lines(writer: asyncio.StreamWriter, lines: AsyncIterator[Line]) -> None:
    """Send each line as a chunk. If that fails, the connection breaks without the last chunk:
    nobody takes a part for the whole."""
    writer.write(
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/x-ndjson\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    try:
        async for line in lines:
            data = json.dumps(line).encode() + b"\n"
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    except OSError:
        pass
    except Exception:  # noqa: BLE001 - the log is the one place that it can be told at
        traceback.print_exc()
    finally:
        if isinstance(lines, AsyncGenerator):
            await lines.aclose()

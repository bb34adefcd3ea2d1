"""The bodies of requests. The HTTP library unpacks nothing: it would do so on the event loop, and
also for bodies that nobody reads. The handlers that take a body read it here, which unpacks it in
pieces."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

from aiohttp import web

from quicksand_e2b.errors import ApiError
from quicksand_e2b.fields import BODY_MAX

PIECE = 256 * 1024
"""Bytes that are unpacked at once."""

BODY_S = 60.0
"""Seconds that a JSON body may take to arrive."""

TOO_LARGE = f"a JSON body has at most {BODY_MAX} bytes"

_GZIP = ("gzip", "x-gzip")
_WBITS_GZIP = 16 + zlib.MAX_WBITS


def is_packed(request: web.Request) -> bool:
    return _coding(request) != "identity"


def pieces(request: web.Request) -> AsyncIterator[bytes]:
    """Yields the body as it was before it was packed for the way. Raises ApiError: 415 at once for
    an unknown coding, and 400 on the way for a body that is not packed so."""
    coding = _coding(request)
    if coding == "identity":
        return request.content.iter_any()
    if coding not in _GZIP:
        raise ApiError(415, f"the Content-Encoding {coding!r:.40} is not taken: send gzip, or none")
    return _unpacked(request)


async def read_body(request: web.Request) -> bytes:
    """Returns a body that is to be JSON. Raises ApiError (408, 413, 400, 415)."""
    if (request.content_length or 0) > BODY_MAX:
        raise ApiError(413, TOO_LARGE)
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in pieces(request):
                found += piece
                if len(found) > BODY_MAX:
                    raise ApiError(413, TOO_LARGE)
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {BODY_S:g} s") from None
    except web.HTTPException as error:
        raise ApiError(error.status, error.reason) from None
    return bytes(found)


def _coding(request: web.Request) -> str:
    return request.headers.get("Content-Encoding", "").strip().lower() or "identity"


async def _unpacked(request: web.Request) -> AsyncIterator[bytes]:
    stream = zlib.decompressobj(_WBITS_GZIP)
    async for waiting in request.content.iter_any():
        async for piece in _pieces(stream, waiting):
            yield piece
    if not stream.eof:
        raise ApiError(400, "the packed body is incomplete")


async def _pieces(stream: zlib._Decompress, packed: bytes) -> AsyncIterator[bytes]:
    while packed or not stream.eof:
        try:
            # A few hundred bytes may make a whole piece, so not on the event loop.
            piece = await asyncio.to_thread(stream.decompress, packed, PIECE)
        except zlib.error:
            raise ApiError(400, "the body is not packed by gzip") from None
        if stream.unused_data:
            raise ApiError(400, "something follows the end of the packed body")
        packed = stream.unconsumed_tail
        if piece:
            yield piece
        elif not packed:
            return

"""Frames of the agent protocol (docs/internals/agent-protocol.md), without I/O. Other machines are
talked to in the same frames (`quicksand.remote`).

A hostile peer writes the input, so every length is checked before anything is kept, and JSON is
parsed with bounds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple, NoReturn

from quicksand.base.errors import AgentProtocolError, QuicksandError

DATA_FLAG = 0x8000_0000
JSON_MAX = 1024 * 1024
DATA_MAX = 256 * 1024
"""Bytes of one JSON frame, and of the payload of one data frame."""

SMALL_MAX = 64 * 1024
"""Bytes of an event, and of a reply that is kept: an error in it may name two paths."""

WINDOW_MIN = 64 * 1024
"""Bytes of the smallest window that the agent accepts."""

DATA_HEADER = 5
"""1 byte of stream, 4 bytes of channel."""

MARKER = b"QSND"
NONCE_BYTES = 16

PRE_MARKER_MAX = 64 * 1024 * 1024
"""Bytes of an earlier client's leftovers that are skipped before the marker; QEMU and the guest
buffer far less."""


class Peer(NamedTuple):
    """The other side: its name in messages, and the error to raise if it breaks the protocol."""

    name: str
    error: type[QuicksandError]


AGENT = Peer("the agent", AgentProtocolError)


class Stream(IntEnum):
    """The streams of a channel."""

    INPUT = 0
    STDOUT = 1
    STDERR = 2


CREDIT = 0x80
"""Bit of a stream's number: the frame is a credit for that stream."""


class DataFrame(NamedTuple):
    channel: int
    stream: int
    """A `Stream`, perhaps with CREDIT set."""
    payload: bytes


class JsonFrame(NamedTuple):
    message: dict[str, Any]
    text: bytes
    """The bytes from which ``message`` was parsed."""


Frame = DataFrame | JsonFrame

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""The escape of a surrogate, which may be half of a pair."""


class FrameDecoder:
    """Cuts a byte stream into frames, buffering one frame at most. After `expect_marker` it skips
    everything up to the reply to this client's own hello."""

    def __init__(self, peer: Peer = AGENT) -> None:
        self._peer = peer
        self._buffer = bytearray()
        self._marker: bytes | None = None
        self._skipped = 0

    def expect_marker(self, nonce: bytes) -> None:
        """Discard everything up to and including the marker with ``nonce``."""
        self._marker = MARKER + nonce
        self._skipped = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that ``data`` completes. Raises the peer's error for a bad one."""
        self._buffer += data
        if self._marker is not None and not self._skip_to_marker(self._marker):
            return
        position = 0
        try:
            while (end := self._frame_end(position)) is not None:
                start, position = position, end
                yield self._parse(start, end)
        finally:
            del self._buffer[:position]

    def _skip_to_marker(self, marker: bytes) -> bool:
        found = self._buffer.find(marker)
        if found >= 0:
            del self._buffer[: found + len(marker)]
            self._marker = None
            return True
        drop = max(0, len(self._buffer) - len(marker) + 1)
        del self._buffer[:drop]
        self._skipped += drop
        if self._skipped > PRE_MARKER_MAX:
            raise self._bad("does not answer the handshake, it only sends noise")
        return False

    def _frame_end(self, start: int) -> int | None:
        """Return where the frame at ``start`` ends, or None while it is incomplete."""
        if len(self._buffer) - start < 4:
            return None
        word = int.from_bytes(self._buffer[start : start + 4])
        length = word & ~DATA_FLAG
        limit = DATA_MAX + DATA_HEADER if word & DATA_FLAG else JSON_MAX
        if length > limit:
            raise self._bad(f"sent a frame of {length} bytes; {limit} is the most")
        end = start + 4 + length
        return end if len(self._buffer) >= end else None

    def _parse(self, start: int, end: int) -> Frame:
        body = start + 4
        if self._buffer[start] & 0x80:
            if end - body < DATA_HEADER:
                raise self._bad("sent a data frame without its header")
            channel = int.from_bytes(self._buffer[body + 1 : body + DATA_HEADER])
            with memoryview(self._buffer) as view:
                payload = bytes(view[body + DATA_HEADER : end])
            return DataFrame(channel, self._buffer[body], payload)
        text = bytes(self._buffer[body:end])
        return JsonFrame(parse_message(text, self._peer), text)

    def _bad(self, what: str) -> QuicksandError:
        return self._peer.error(f"{self._peer.name} {what}")


def parse_message(text: bytes, peer: Peer = AGENT) -> dict[str, Any]:
    """Parse a JSON object from a hostile peer. Raises the peer's error for anything else: invalid
    UTF-8, halves of surrogates, NaN, repeated keys, numbers with thousands of digits, excessive
    nesting."""
    try:
        value = json.loads(
            text.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique
        )
        if _SURROGATE.search(text):
            # As escapes they pass for text, and fail only where that is printed or stored.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise peer.error(f"{peer.name} sent JSON that is not valid: {error}") from None
    if not isinstance(value, dict):
        raise peer.error(f"{peer.name} sent JSON that is not an object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice")
    return value


def encode_message(message: dict[str, Any]) -> bytes:
    """Encode a JSON frame. Raises ValueError above JSON_MAX, TypeError for what JSON lacks, and
    UnicodeEncodeError for halves of surrogates, which no agent can read."""
    text = json.dumps(message, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    body = text.encode("utf-8")
    if len(body) > JSON_MAX:
        raise ValueError(f"a request of {len(body)} bytes is larger than the {JSON_MAX} allowed")
    return len(body).to_bytes(4) + body


def encode_data(channel: int, stream: int, payload: bytes | memoryview) -> bytes:
    """Encode a data frame; an empty payload ends the stream."""
    word = DATA_FLAG | (DATA_HEADER + len(payload))
    return b"".join((word.to_bytes(4), bytes((stream,)), channel.to_bytes(4), payload))


def encode_credit(channel: int, stream: Stream, count: int) -> bytes:
    """Encode a frame that lets the peer send ``count`` more bytes of ``stream``."""
    return encode_data(channel, CREDIT | stream, count.to_bytes(4))

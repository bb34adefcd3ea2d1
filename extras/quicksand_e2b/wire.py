"""The messages of a stream in the Connect protocol, with the JSON codec.

A message is a byte of flags, four bytes of length (big-endian), and JSON. Flag 2 marks the end of
the stream, with the error if there was one (https://connectrpc.com/docs/protocol#streaming-rpcs).
Compressed messages (flag 1) are never sent and not taken.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quicksand_e2b.errors import RpcError
from quicksand_e2b.fields import BODY_MAX, parse_json

COMPRESSED = 0x01
END = 0x02
HEAD = struct.Struct(">BI")

JSON = "application/json"
STREAM = "application/connect+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a stream."""

    value: dict[str, Any]
    is_end: bool = False


def encode(value: dict[str, Any], *, is_end: bool = False) -> bytes:
    """Returns a message as bytes."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return HEAD.pack(END if is_end else 0, len(body)) + body


def encode_end(error: RpcError | None = None) -> bytes:
    """Returns the end of a stream, with the error that ended it."""
    return encode({} if error is None else {"error": error.body()}, is_end=True)


class Decoder:
    """Takes bytes as they come, and yields the messages that are complete."""

    def __init__(self, most: int = BODY_MAX) -> None:
        """``most`` is the most bytes of one message."""
        self._most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yields complete messages. Raises RpcError ("invalid_argument") for other bytes, ApiError
        (400) for a message that is no JSON object."""
        self._buffer += data
        while len(self._buffer) >= HEAD.size:
            flags, length = HEAD.unpack_from(self._buffer)
            if flags & ~END:
                raise RpcError("invalid_argument", f"a message with flags {flags:#x} is not taken")
            if length > self._most:
                raise RpcError(
                    "resource_exhausted", f"a message of {length} bytes; {self._most} is the most"
                )
            if len(self._buffer) < HEAD.size + length:
                return
            body = bytes(self._buffer[HEAD.size : HEAD.size + length])
            del self._buffer[: HEAD.size + length]
            yield Message(value=parse_json(body), is_end=bool(flags & END))

    def check_end(self) -> None:
        """Checks that no message is incomplete. Raises RpcError ("invalid_argument")."""
        if self._buffer:
            raise RpcError("invalid_argument", "the stream ends within a message")

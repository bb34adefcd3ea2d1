"""Input for commands and files of a guest: text, bytes, files, and iterators of bytes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import BinaryIO

from quicksand.base.errors import ConfigError
from quicksand.guest.agent import raw

STDIN_CHUNK = 256 * 1024
"""Bytes of a file that are read at once."""

StdinSource = str | bytes | BinaryIO | AsyncIterable[bytes] | Iterable[bytes]
"""Data for a command's stdin or for a file. Text is encoded as UTF-8, except for the characters
that `os.fsdecode` makes from other bytes: they become these bytes again."""


async def iterate_chunks(source: StdinSource) -> AsyncIterator[bytes]:
    """Yield the bytes of a source in pieces. Files are read in a thread. Raises ConfigError for
    anything but text or bytes."""
    if isinstance(source, str | bytes | bytearray | memoryview):
        yield to_bytes(source)
    elif isinstance(source, AsyncIterable):
        async for chunk in source:
            yield to_bytes(chunk)
    elif isinstance(source, io.IOBase) or hasattr(source, "read"):
        while chunk := await asyncio.to_thread(source.read, STDIN_CHUNK):
            yield to_bytes(chunk)
    else:
        for chunk in source:
            yield to_bytes(chunk)


def to_bytes(chunk: object) -> bytes:
    """Return text or bytes as bytes. Raises ConfigError for text that corresponds to no bytes, and
    for any other type."""
    if isinstance(chunk, str):
        return raw.encode(chunk, "the input")
    if isinstance(chunk, bytes):
        return chunk
    if isinstance(chunk, bytearray | memoryview):
        return bytes(chunk)
    raise ConfigError(f"input must be bytes or text, not {type(chunk).__name__}")


def checked(source: StdinSource) -> StdinSource:
    """Return a source whose text is encoded, so that this does not fail halfway. Raises as
    `to_bytes`."""
    return to_bytes(source) if isinstance(source, str) else source

"""Zstandard within our bounds, for the clusters of our images and for bundles: the module of
Python 3.14, which backports.zstd brings to older ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping

if sys.version_info >= (3, 14):
    from compression import zstd  # pyright: ignore[reportUnreachable]  # checked as 3.11
else:
    from backports import zstd

MAGIC = b"\x28\xb5\x2f\xfd"

WINDOW_LOG_MAX = 26
"""Streams that need more than 64 MiB to decompress are refused."""

WHOLE_WINDOW_LOG_MAX = 27
"""The same for data that are decompressed whole, to a known size: Linux compresses its kernel with
a window of 128 MiB (scripts/Makefile.lib, ``zstd -22 --ultra``)."""

PIECE = 1 << 18
"""Bytes that are decompressed in one step."""

_DAMAGED = "its compressed data are damaged"


def _bounds(window_log: int) -> Mapping[int, int]:
    return {zstd.DecompressionParameter.window_log_max: window_log}


def decompress(data: bytes, size: int) -> bytes:
    """Decompress the first frame of ``data``, which must hold ``size`` bytes, and ignore what
    follows it. Raises ValueError."""
    frame = zstd.ZstdDecompressor(options=_bounds(WHOLE_WINDOW_LOG_MAX))
    # A frame is complete when one more byte was requested and did not come.
    content = _step(frame, data, size + 1)
    if len(content) != size or not frame.eof:
        raise ValueError(_DAMAGED)
    return content


class Packer:
    """Compresses a stream into one frame with a checksum."""

    def __init__(self, write: Callable[[bytes], None], *, level: int = 3) -> None:
        """``write`` takes the compressed bytes."""
        self._write = write
        self._frame = zstd.ZstdCompressor(
            options={
                zstd.CompressionParameter.compression_level: level,
                zstd.CompressionParameter.checksum_flag: 1,
            }
        )

    def feed(self, data: bytes) -> None:
        """Compress ``data``. Raises the errors of ``write``."""
        if packed := self._frame.compress(data):
            self._write(packed)

    def finish(self) -> None:
        """End the frame. Raises the errors of ``write``."""
        self._write(self._frame.flush())


def unpack(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress the one frame that ``pieces`` hold, in pieces of 1 to PIECE bytes. Raises
    ValueError if it is damaged, cut off or followed by something else."""
    frame = zstd.ZstdDecompressor(options=_bounds(WINDOW_LOG_MAX))
    for data in pieces:
        if frame.eof and data:
            raise ValueError("something follows its compressed data")
        yield from _steps(frame, data)
        if frame.unused_data:
            raise ValueError("something follows its compressed data")
    if not frame.eof:
        raise ValueError("it is cut off")


def unpack_frames(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress all frames that follow each other in ``pieces``, as some tools write them, in
    pieces of at most PIECE bytes. An empty piece comes at the end of each frame, so that the caller
    can count them. Raises ValueError if they are damaged or cut off."""
    frame, is_open = zstd.ZstdDecompressor(options=_bounds(WHOLE_WINDOW_LOG_MAX)), False
    for piece in pieces:
        data = piece
        while data:
            yield from _steps(frame, data)
            is_open, data = not frame.eof, frame.unused_data
            if frame.eof:
                frame = zstd.ZstdDecompressor(options=_bounds(WHOLE_WINDOW_LOG_MAX))
                yield b""
    if is_open:
        raise ValueError("it is cut off")


def _steps(frame: zstd.ZstdDecompressor, data: bytes) -> Iterator[bytes]:
    given = data
    while given or not (frame.eof or frame.needs_input):
        if piece := _step(frame, given, PIECE):
            yield piece
        given = b""


def _step(frame: zstd.ZstdDecompressor, data: bytes, most: int) -> bytes:
    try:
        return frame.decompress(data, most)
    except zstd.ZstdError as error:
        raise ValueError(_DAMAGED) from error

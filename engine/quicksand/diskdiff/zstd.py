"""Zstandard through libzstd: the clusters of our own images are packed with it. Python has it from
3.14 on only; dpkg needs the library, so it is on every Debian and Ubuntu."""

from __future__ import annotations

import ctypes
from pathlib import Path

from quicksand.errors import HostError

NAMES = (
    "libzstd.so.1",
    "libzstd.1.dylib",
    "/opt/homebrew/lib/libzstd.1.dylib",
    "/usr/local/lib/libzstd.1.dylib",
)


class Zstd:
    """The library."""

    def __init__(self) -> None:
        """Raises HostError if it is not on this host."""
        self._library = _load()
        for name, arguments in (
            ("ZSTD_findFrameCompressedSize", [ctypes.c_char_p, ctypes.c_size_t]),
            (
                "ZSTD_decompress",
                [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t],
            ),
        ):
            function = getattr(self._library, name)
            function.argtypes, function.restype = arguments, ctypes.c_size_t
        self._library.ZSTD_isError.argtypes = [ctypes.c_size_t]
        self._library.ZSTD_isError.restype = ctypes.c_uint

    def decompress(self, data: bytes, size: int) -> bytes:
        """The first frame of ``data``, whatever follows it, if it holds at least ``size`` bytes.
        Raises ValueError if not."""
        packed = self._library.ZSTD_findFrameCompressedSize(data, len(data))
        if self._library.ZSTD_isError(packed):
            raise ValueError("its compressed data are damaged")
        buffer = ctypes.create_string_buffer(size)
        if self._library.ZSTD_decompress(buffer, size, data, packed) != size:
            raise ValueError("its compressed data are damaged")
        return buffer.raw


def _load() -> ctypes.CDLL:
    for name in NAMES:
        if name.startswith("/") and not Path(name).exists():
            continue
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise HostError(
        "the image's disk is compressed with Zstandard, and libzstd is not on this host",
        hint="install the package libzstd1 (macOS: brew install zstd)",
    )

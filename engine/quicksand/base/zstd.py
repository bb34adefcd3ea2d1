"""Zstandard through libzstd, for the clusters of our images and for bundles. Python includes it
only since 3.14; dpkg needs the library, so every Debian and Ubuntu has it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

from quicksand.base.errors import HostError

NAMES = (
    "libzstd.so.1",
    "libzstd.1.dylib",
    "/opt/homebrew/lib/libzstd.1.dylib",
    "/usr/local/lib/libzstd.1.dylib",
)

MAGIC = b"\x28\xb5\x2f\xfd"

WINDOW_LOG_MAX = 26
"""Streams that need more than 64 MiB to decompress are refused."""

PIECE = 1 << 18
"""Bytes that are decompressed in one step."""

_LEVEL, _CHECKSUM, _WINDOW = 100, 201, 100  # ZSTD_cParameter, ZSTD_dParameter (zstd.h)
_GO_ON, _END = 0, 2  # ZSTD_EndDirective

_DAMAGED = "its compressed data are damaged"


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer (zstd.h)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("at", ctypes.c_size_t),
    )


class Zstd:
    """The functions of libzstd."""

    def __init__(self, what: str = "the image's disk") -> None:
        """``what`` needs the library: errors name it. Raises HostError if this host lacks it."""
        self.library = _load(what)
        context, size, data = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
        parameter = [context, ctypes.c_int, ctypes.c_int]
        buffers = [context, ctypes.POINTER(_Buffer), ctypes.POINTER(_Buffer)]
        for name, arguments in (
            ("ZSTD_findFrameCompressedSize", [data, size]),
            ("ZSTD_decompress", [context, size, data, size]),
            ("ZSTD_CCtx_setParameter", parameter),
            ("ZSTD_DCtx_setParameter", parameter),
            ("ZSTD_compressStream2", [*buffers, ctypes.c_int]),
            ("ZSTD_decompressStream", buffers),
            ("ZSTD_freeCCtx", [context]),
            ("ZSTD_freeDCtx", [context]),
        ):
            function = getattr(self.library, name)
            function.argtypes, function.restype = arguments, ctypes.c_size_t
        for name in ("ZSTD_createCCtx", "ZSTD_createDCtx"):
            function = getattr(self.library, name)
            function.argtypes, function.restype = [], ctypes.c_void_p
        self.library.ZSTD_isError.argtypes = [ctypes.c_size_t]
        self.library.ZSTD_isError.restype = ctypes.c_uint

    def decompress(self, data: bytes, size: int) -> bytes:
        """Decompress the first frame of ``data``, which must hold ``size`` bytes, and ignore what
        follows it. Raises ValueError."""
        packed = self.check(self.library.ZSTD_findFrameCompressedSize(data, len(data)))
        buffer = ctypes.create_string_buffer(size)
        if self.library.ZSTD_decompress(buffer, size, data, packed) != size:
            raise ValueError(_DAMAGED)
        return buffer.raw

    def check(self, code: int) -> int:
        """Return a function's result. Raises ValueError if it is an error code."""
        if self.library.ZSTD_isError(code):
            raise ValueError(_DAMAGED)
        return code


class Packer:
    """Compresses a stream into one frame with a checksum. A context manager."""

    def __init__(self, write: Callable[[bytes], None], *, level: int = 3) -> None:
        """``write`` takes the compressed bytes. Raises HostError if libzstd is missing."""
        self._zstd = Zstd("a compressed bundle")
        self._write = write
        self._out = ctypes.create_string_buffer(PIECE)
        self._context = _require(self._zstd.library.ZSTD_createCCtx())
        for name, value in ((_LEVEL, level), (_CHECKSUM, 1)):
            self._zstd.check(self._zstd.library.ZSTD_CCtx_setParameter(self._context, name, value))

    def __enter__(self) -> Packer:
        return self

    def __exit__(self, *_: object) -> None:
        self._zstd.library.ZSTD_freeCCtx(self._context)

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Compress ``data``, the last piece if ``final``. Raises what ``write`` raises."""
        source = _Buffer(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data), 0)
        left = 1
        while left if final else source.at < source.size:
            target = _Buffer(ctypes.addressof(self._out), PIECE, 0)
            left = self._zstd.check(
                self._zstd.library.ZSTD_compressStream2(
                    self._context,
                    ctypes.byref(target),
                    ctypes.byref(source),
                    _END if final else _GO_ON,
                )
            )
            if target.at:
                self._write(ctypes.string_at(self._out, target.at))


def unpack(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress the one frame that ``pieces`` hold. Raises ValueError if it is damaged, cut off or
    followed by something else, HostError if libzstd is missing."""
    zstd = Zstd("the bundle")
    library = zstd.library
    context = _require(library.ZSTD_createDCtx())
    out = ctypes.create_string_buffer(PIECE)
    left = 1
    try:
        zstd.check(library.ZSTD_DCtx_setParameter(context, _WINDOW, WINDOW_LOG_MAX))
        for data in pieces:
            source = _Buffer(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data), 0)
            full = False
            while source.at < source.size or full:
                if left == 0:
                    raise ValueError("something follows its compressed data")
                target = _Buffer(ctypes.addressof(out), PIECE, 0)
                left = zstd.check(
                    library.ZSTD_decompressStream(
                        context, ctypes.byref(target), ctypes.byref(source)
                    )
                )
                # The library may hold more output.
                full = target.at == PIECE and left != 0
                if target.at:
                    yield ctypes.string_at(out, target.at)
        if left:
            raise ValueError("it is cut off")
    finally:
        library.ZSTD_freeDCtx(context)


def _require(context: int | None) -> int:
    if context is None:
        raise HostError("there is not enough memory for libzstd")
    return context


def _load(what: str) -> ctypes.CDLL:
    for name in NAMES:
        if name.startswith("/") and not Path(name).exists():
            continue
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise HostError(
        f"{what} is compressed with Zstandard, and libzstd is not on this host",
        hint="install the package libzstd1 (macOS: brew install zstd)",
    )

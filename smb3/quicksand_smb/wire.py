"""Reads and writes little-endian records, and checks every bound in one place.

The guest may be hostile. A decoder reads through a `Cursor`, and only ProtocolError can come of it.
"""

import struct
from codecs import utf_16_le_decode, utf_16_le_encode

from quicksand_smb.minimal_stdlib import Final

Buffer = bytes | bytearray | memoryview

_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")

EPOCH_1601: Final = 116_444_736_000_000_000
"""The ticks of 100 ns between 1601, where FILETIME starts, and 1970."""
LAST_FILETIME: Final = (1 << 63) - 1
PADDING_MAX: Final = 8
"""Bytes that may follow a request. Clients pad the requests of a compound to 8-byte boundaries
([MS-SMB2] 3.2.4.1.4), and many structures count one byte of an empty buffer. Recorded clients
append up to 7 bytes, and ksmbd_smb2_check_message (fs/smb/server/smb2misc.c) tolerates 8."""


class ProtocolError(Exception):
    """The peer has sent an invalid message. Decoders raise nothing else."""


class Cursor:
    """A position in a message. Offsets count from the first byte that the cursor was given."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: Buffer, at: int = 0) -> None:
        self.data = memoryview(data)
        self.end = len(self.data)
        self.at = at

    def take(self, count: int) -> memoryview:
        """Return the next bytes. All other methods rely on this check of bounds."""
        at = self.at
        if count < 0 or at < 0 or at + count > self.end:
            raise ProtocolError("a field lies outside its message")
        self.at = at + count
        return self.data[at : at + count]

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int(_U16.unpack(self.take(2))[0])

    def u32(self) -> int:
        return int(_U32.unpack(self.take(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack(self.take(8))[0])

    def skip(self, count: int) -> None:
        self.take(count)

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def area(self, offset: int, count: int, *, least: int = 0) -> memoryview:
        """Return the bytes at an offset, which must not be below `least`. If there are none, the
        offset is ignored."""
        return area(self.data, offset, count, least)

    def left(self) -> int:
        return self.end - self.at


def check_end(message: Buffer, end: int) -> None:
    """Check that no more than padding follows `end`, where the last field of a request ends."""
    if len(message) > end + PADDING_MAX:
        raise ProtocolError("bytes follow the end of a request")


def fields(layout: struct.Struct, message: Buffer) -> tuple[int, ...]:
    """Unpack the fields that follow the header of a message, which has 64 bytes."""
    if len(message) < 64 + layout.size:
        raise ProtocolError("a field lies outside its message")
    return layout.unpack_from(message, 64)


def whole(layout: struct.Struct, message: Buffer) -> tuple[int, ...]:
    """As `fields`, for a request that has no further fields: only padding may follow."""
    end = 64 + layout.size
    if not end <= len(message) <= end + PADDING_MAX:
        check_end(message, end)
        raise ProtocolError("a field lies outside its message")
    return layout.unpack_from(message, 64)


def last_area(message: Buffer, offset: int, count: int, least: int) -> memoryview:
    """As `area`, for the last field of a request: only padding may follow."""
    view = memoryview(message)
    end = offset + count if count else least
    if len(view) > end + PADDING_MAX:
        check_end(message, end)
    if not count:
        return view[:0]
    if offset < least or end > len(view):
        raise ProtocolError("a buffer lies outside its message")
    return view[offset:end]


def area(message: Buffer, offset: int, count: int, least: int) -> memoryview:
    """Return the bytes at an offset, which must not be below `least`. If there are none, the offset
    is ignored."""
    view = memoryview(message)
    if not count:
        return view[:0]
    if offset < least or offset + count > len(view):
        raise ProtocolError("a buffer lies outside its message")
    return view[offset : offset + count]


def decode_text(data: Buffer) -> str:
    """Decode UTF-16LE. Half a surrogate pair is an error."""
    try:
        return utf_16_le_decode(data, "strict", True)[0]
    except UnicodeDecodeError:
        raise ProtocolError("a name is no UTF-16") from None


def encode_text(text: str) -> bytes:
    return utf_16_le_encode(text, "surrogatepass")[0]


def filetime(ns: int) -> int:
    """Convert nanoseconds since 1970 to ticks since 1601, within the range of the field."""
    ticks = ns // 100 + EPOCH_1601
    return ticks if 0 <= ticks <= LAST_FILETIME else 0 if ticks < 0 else LAST_FILETIME


def from_filetime(ticks: int) -> int:
    return (ticks - EPOCH_1601) * 100


def pad(count: int, to: int = 8) -> int:
    """Return how many bytes bring a length to the next multiple of `to`."""
    return -count % to

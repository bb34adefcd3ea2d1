"""Reading and writing little-endian records, with every bound checked in one place.

The guest is hostile: a decoder reads through a `Cursor`, whose only failure is `ProtocolError`.
"""

import struct
from codecs import utf_16_le_decode, utf_16_le_encode

from quicksand_smb.minimal_stdlib import Final

Buffer = bytes | bytearray | memoryview

_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")

EPOCH_1601: Final = 116_444_736_000_000_000
"""Ticks of 100 ns between 1601, where FILETIME starts, and 1970."""
LAST_FILETIME: Final = (1 << 63) - 1
PADDING_MAX: Final = 8
"""Bytes that may follow a request. Clients pad the requests of a compound to 8-byte boundaries
([MS-SMB2] 3.2.4.1.4), and many structures count one byte of an empty buffer. Recorded clients
append up to 7 bytes, and ksmbd_smb2_check_message (fs/smb/server/smb2misc.c) tolerates 8."""


class ProtocolError(Exception):
    """The peer sent what is no message of the protocol. Decoders raise nothing else."""


class Cursor:
    """A place in a message. Offsets in messages count from the first byte it was made with."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: Buffer, at: int = 0) -> None:
        self.data = memoryview(data)
        self.end = len(self.data)
        self.at = at

    def take(self, count: int) -> memoryview:
        """The next bytes. The one check of bounds that all other methods rely on."""
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
        """Bytes placed by an offset, which is never below `least`; none need no place."""
        return area(self.data, offset, count, least)

    def left(self) -> int:
        return self.end - self.at


def check_end(message: Buffer, end: int) -> None:
    """Check that no more than padding follows `end`, where the last field of a request ends."""
    if len(message) > end + PADDING_MAX:
        raise ProtocolError("bytes follow the end of a request")


def fields(layout: struct.Struct, message: Buffer) -> tuple[int, ...]:
    """What follows the header of a message, 64 bytes behind its first."""
    if len(message) < 64 + layout.size:
        raise ProtocolError("a field lies outside its message")
    return layout.unpack_from(message, 64)


def area(message: Buffer, offset: int, count: int, least: int) -> memoryview:
    """Bytes placed by an offset, which is never below `least`; none need no place."""
    view = memoryview(message)
    if not count:
        return view[:0]
    if offset < least or offset + count > len(view):
        raise ProtocolError("a buffer lies outside its message")
    return view[offset : offset + count]


def decode_text(data: Buffer) -> str:
    """UTF-16LE as a peer may send it; half a surrogate pair is no text."""
    try:
        return utf_16_le_decode(data, "strict", True)[0]
    except UnicodeDecodeError:
        raise ProtocolError("a name is no UTF-16") from None


def encode_text(text: str) -> bytes:
    return utf_16_le_encode(text, "surrogatepass")[0]


def filetime(ns: int) -> int:
    """Nanoseconds since 1970 as ticks since 1601, within what the field can hold."""
    ticks = ns // 100 + EPOCH_1601
    return ticks if 0 <= ticks <= LAST_FILETIME else 0 if ticks < 0 else LAST_FILETIME


def from_filetime(ticks: int) -> int:
    return (ticks - EPOCH_1601) * 100


def pad(count: int, to: int = 8) -> int:
    """How many bytes bring a length to the next multiple."""
    return -count % to

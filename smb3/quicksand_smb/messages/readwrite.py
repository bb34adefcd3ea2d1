"""READ, WRITE and FLUSH."""

import struct

from quicksand_smb.minimal_stdlib import Final, NamedTuple
from quicksand_smb.wire import Buffer, ProtocolError, check_end, fields, last_area, whole

_READ: Final = struct.Struct("<HBBIQQQIIIHH")
_READ_RESPONSE: Final = struct.Struct("<HBBIII")
_WRITE: Final = struct.Struct("<HHIQQQIIHHI")
_WRITE_RESPONSE: Final = struct.Struct("<HHIIHH")
_FLUSH: Final = struct.Struct("<HHIQQ")
READ_DATA_AT: Final = 80


class ReadRequest(NamedTuple):
    length: int
    offset: int
    file_id: tuple[int, int]
    least: int
    """The least bytes that make the read a success."""


class WriteRequest(NamedTuple):
    data: memoryview
    offset: int
    file_id: tuple[int, int]
    through: bool
    """The bytes must reach the disk before the answer."""


# [MS-SMB2] 2.2.19
def decode_read(message: Buffer) -> ReadRequest:
    size, _, _, length, offset, persistent, volatile, least, channel, _, _, _ = fields(
        _READ, message
    )
    if size != 49:
        raise ProtocolError("no READ request")
    if channel:
        raise ProtocolError("no RDMA here")
    check_end(message, 112)
    return ReadRequest(length, offset, (persistent, volatile), least)


# [MS-SMB2] 2.2.20: the data follow at once
def encode_read(length: int) -> bytes:
    return _READ_RESPONSE.pack(17, READ_DATA_AT, 0, length, 0, 0)


# [MS-SMB2] 2.2.21
def decode_write(message: Buffer) -> WriteRequest:
    size, data_at, length, offset, persistent, volatile, channel, _, _, _, flags = fields(
        _WRITE, message
    )
    if size != 49:
        raise ProtocolError("no WRITE request")
    if channel:
        raise ProtocolError("no RDMA here")
    data = last_area(message, data_at, length, 112)
    return WriteRequest(data, offset, (persistent, volatile), bool(flags & 1))


# [MS-SMB2] 2.2.22
def encode_write(count: int) -> bytes:
    return _WRITE_RESPONSE.pack(17, 0, count, 0, 0, 0) + b"\0"


# [MS-SMB2] 2.2.17; the response is EMPTY of `session`
def decode_flush(message: Buffer) -> tuple[int, int]:
    size, _, _, persistent, volatile = whole(_FLUSH, message)
    if size != 24:
        raise ProtocolError("no FLUSH request")
    return persistent, volatile

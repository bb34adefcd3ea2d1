"""IOCTL, and the control codes that the server answers ([MS-SMB2] 2.2.31, 2.2.32; [MS-FSCC]
2.3)."""

import struct

from quicksand_smb.minimal_stdlib import Final, NamedTuple
from quicksand_smb.wire import Buffer, Cursor, ProtocolError, last_area

_REQUEST: Final = struct.Struct("<HHIQQIIIIIIII")
_RESPONSE: Final = struct.Struct("<HHIQQIIIIII")
_COPY: Final = struct.Struct("<24sII")
_CHUNK: Final = struct.Struct("<QQII")
_DUPLICATE: Final = struct.Struct("<QQQQQ")
_RANGE: Final = struct.Struct("<QQ")
_VALIDATE: Final = struct.Struct("<I16sHH")

VALIDATE_NEGOTIATE: Final = 0x00140204
QUERY_INTERFACES: Final = 0x001401FC
DFS_REFERRALS: Final = 0x00060194
SET_SPARSE: Final = 0x000900C4
SET_ZERO: Final = 0x000980C8
ALLOCATED_RANGES: Final = 0x000940CF
RESUME_KEY: Final = 0x00140078
COPY_CHUNK: Final = 0x001440F2
COPY_CHUNK_WRITE: Final = 0x001480F2
DUPLICATE_EXTENTS: Final = 0x00098344
GET_REPARSE: Final = 0x000900A8
SET_REPARSE: Final = 0x000900A4
CREATE_OR_GET_OBJECT_ID: Final = 0x000900C0
GET_COMPRESSION: Final = 0x0009003C
SET_COMPRESSION: Final = 0x0009C040
PIPE_WAIT: Final = 0x00110018
CHANGES: Final = 0x00096944
"""A code of our own (host_changes.py) for handles that may read; functions from 0x800 are free."""
PIPE_TRANSCEIVE: Final = 0x0011C017

MOST_CHUNKS: Final = 256
LARGEST_CHUNK: Final = 1 << 20
MOST_COPIED: Final = 16 << 20


class IoctlRequest(NamedTuple):
    code: int
    file_id: tuple[int, int]
    input: memoryview
    most: int
    is_fsctl: bool


class Chunk(NamedTuple):
    source: int
    target: int
    length: int


class Validate(NamedTuple):
    capabilities: int
    client: bytes
    security_mode: int
    dialects: tuple[int, ...]


class Duplicate(NamedTuple):
    file_id: tuple[int, int]
    source: int
    target: int
    length: int


# [MS-SMB2] 2.2.31
def decode_request(message: Buffer) -> IoctlRequest:
    cursor = Cursor(message, 64)
    (size, _, code, persistent, volatile, input_at, input_length, _, _, _, most, flags,
     _) = cursor.fields(_REQUEST)  # fmt: skip
    if size != 57:
        raise ProtocolError("no IOCTL request")
    data = last_area(message, input_at, input_length, 120)
    return IoctlRequest(code, (persistent, volatile), data, most, bool(flags & 1))


# [MS-SMB2] 2.2.32
def encode_response(code: int, file_id: tuple[int, int], output: bytes) -> bytes:
    return _RESPONSE.pack(49, 0, code, *file_id, 112, 0, 112, len(output), 0, 0) + output


# [MS-SMB2] 2.2.31.4
def decode_validate(data: Buffer) -> Validate:
    cursor = Cursor(data)
    abilities, _, mode, count = cursor.fields(_VALIDATE)
    client = bytes(cursor.data[4:20])
    dialects = struct.unpack(f"<{count}H", cursor.take(2 * count))
    return Validate(abilities, client, mode, dialects)


# [MS-SMB2] 2.2.32.6
def encode_validate(capabilities: int, server: bytes, security_mode: int, dialect: int) -> bytes:
    return _VALIDATE.pack(capabilities, server, security_mode, dialect)


# [MS-SMB2] 2.2.31.1
def decode_copy(data: Buffer) -> tuple[bytes, list[Chunk], bool]:
    """Return the key of the source, the chunks, and whether they keep to the limits."""
    cursor = Cursor(data)
    _, count, _ = cursor.fields(_COPY)
    key = bytes(cursor.data[:24])
    if count > MOST_CHUNKS:
        return key, [], False
    chunks = []
    for _ in range(count):
        source, target, length, _ = cursor.fields(_CHUNK)
        chunks.append(Chunk(source, target, length))
    fits = (
        all(0 < one.length <= LARGEST_CHUNK for one in chunks)
        and sum(one.length for one in chunks) <= MOST_COPIED
    )
    return key, chunks, fits


# [MS-SMB2] 2.2.32.1
def encode_copied(chunks: int, last: int, total: int) -> bytes:
    return struct.pack("<III", chunks, last, total)


# [MS-FSCC] 2.3.8
def decode_duplicate(data: Buffer) -> Duplicate:
    cursor = Cursor(data)
    persistent, volatile, source, target, length = cursor.fields(_DUPLICATE)
    return Duplicate((persistent, volatile), source, target, length)


# [MS-FSCC] 2.3.55: where the zeroes start, and where they end
def decode_range(data: Buffer) -> tuple[int, int]:
    first, second = Cursor(data).fields(_RANGE)
    return first, second


# [MS-FSCC] 2.3.33
def encode_ranges(ranges: list[tuple[int, int]]) -> bytes:
    return b"".join(_RANGE.pack(*one) for one in ranges)

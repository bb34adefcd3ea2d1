"""QUERY_INFO, SET_INFO, QUERY_DIRECTORY and CHANGE_NOTIFY."""

import struct

from quicksand_smb.minimal_stdlib import Final, NamedTuple
from quicksand_smb.wire import Buffer, Cursor, ProtocolError, decode_text, fields, last_area, whole

_QUERY: Final = struct.Struct("<HBBIHHIIIQQ")
_SET: Final = struct.Struct("<HBBIHHIQQ")
_DIRECTORY: Final = struct.Struct("<HBBIQQHHI")
_NOTIFY: Final = struct.Struct("<HHIQQII")
_OUTPUT: Final = struct.Struct("<HHI")

FILE: Final = 1
FILESYSTEM: Final = 2
SECURITY: Final = 3
RESTART: Final = 1
SINGLE: Final = 2
INDEX: Final = 4
REOPEN: Final = 0x10


class QueryRequest:
    __slots__ = ("additional", "file_id", "flags", "input", "kind", "level", "most")

    kind: int
    level: int
    most: int
    """The most bytes that the client's buffer takes."""
    additional: int
    flags: int
    input: memoryview
    file_id: tuple[int, int]


class SetRequest(NamedTuple):
    kind: int
    level: int
    additional: int
    input: memoryview
    file_id: tuple[int, int]


class DirectoryRequest(NamedTuple):
    level: int
    flags: int
    file_id: tuple[int, int]
    pattern: str
    most: int


class NotifyRequest(NamedTuple):
    recursive: bool
    most: int
    file_id: tuple[int, int]
    wanted: int
    """The FILE_NOTIFY_CHANGE_ bits that the client waits for."""


# [MS-SMB2] 2.2.37
def decode_query(message: Buffer) -> QueryRequest:
    wanted = QueryRequest()
    (size, wanted.kind, wanted.level, wanted.most, offset, _, length, wanted.additional,
     wanted.flags, persistent, volatile) = fields(_QUERY, message)  # fmt: skip
    if size != 41:
        raise ProtocolError("no QUERY_INFO request")
    wanted.input = last_area(message, offset, length, 104)
    wanted.file_id = persistent, volatile
    return wanted


# [MS-SMB2] 2.2.38, 2.2.34, 2.2.36
def encode_output(data: bytes) -> bytes:
    return _OUTPUT.pack(9, 72, len(data)) + data


# [MS-SMB2] 2.2.39
def decode_set(message: Buffer) -> SetRequest:
    cursor = Cursor(message, 64)
    size, kind, level, length, offset, _, additional, *file_id = cursor.fields(_SET)
    if size != 33:
        raise ProtocolError("no SET_INFO request")
    data = last_area(message, offset, length, 96)
    return SetRequest(kind, level, additional, data, (file_id[0], file_id[1]))


# [MS-SMB2] 2.2.40
SET_RESPONSE: Final = struct.pack("<H", 2)


# [MS-SMB2] 2.2.33
def decode_directory(message: Buffer) -> DirectoryRequest:
    cursor = Cursor(message, 64)
    size, level, flags, _, persistent, volatile, offset, length, most = cursor.fields(_DIRECTORY)
    if size != 33 or length % 2:
        raise ProtocolError("no QUERY_DIRECTORY request")
    pattern = decode_text(last_area(message, offset, length, 96))
    return DirectoryRequest(level, flags, (persistent, volatile), pattern, most)


# [MS-SMB2] 2.2.35
def decode_notify(message: Buffer) -> NotifyRequest:
    size, flags, most, persistent, volatile, wanted, _ = whole(_NOTIFY, message)
    if size != 32:
        raise ProtocolError("no CHANGE_NOTIFY request")
    return NotifyRequest(bool(flags & 1), most, (persistent, volatile), wanted)

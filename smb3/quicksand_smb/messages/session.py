"""SESSION_SETUP, LOGOFF, TREE_CONNECT, TREE_DISCONNECT and ECHO."""

import struct

from quicksand_smb.minimal_stdlib import Final, NamedTuple
from quicksand_smb.wire import Buffer, Cursor, ProtocolError, check_end, decode_text, last_area

_SETUP: Final = struct.Struct("<HBBIIHHQ")
_SETUP_RESPONSE: Final = struct.Struct("<HHHH")
_TREE: Final = struct.Struct("<HHHH")
_TREE_RESPONSE: Final = struct.Struct("<HBBIII")
EMPTY: Final = struct.pack("<HH", 4, 0)
"""The body of LOGOFF, TREE_DISCONNECT, FLUSH, ECHO and LOCK, in both directions."""

IS_GUEST: Final = 1
BINDING: Final = 1
DISK: Final = 1
PIPE: Final = 2


class SetupRequest(NamedTuple):
    flags: int
    security_mode: int
    previous: int
    """The id of a session that the new one replaces, or 0."""
    token: bytes


class TreeRequest(NamedTuple):
    path: str
    r"""`\\server\share`."""


# [MS-SMB2] 2.2.5
def decode_setup(message: Buffer) -> SetupRequest:
    cursor = Cursor(message, 64)
    size, flags, mode, _, _, offset, length, previous = cursor.fields(_SETUP)
    if size != 25:
        raise ProtocolError("no SESSION_SETUP request")
    token = bytes(last_area(message, offset, length, 88))
    return SetupRequest(flags, mode, previous, token)


# [MS-SMB2] 2.2.6
def encode_setup(flags: int, token: bytes) -> bytes:
    return _SETUP_RESPONSE.pack(9, flags, 72, len(token)) + token


# [MS-SMB2] 2.2.9
def decode_tree(message: Buffer) -> TreeRequest:
    cursor = Cursor(message, 64)
    size, flags, offset, length = cursor.fields(_TREE)
    if size != 9:
        raise ProtocolError("no TREE_CONNECT request")
    if flags & 4:  # EXTENSION_PRESENT: the offset counts from the start of the buffer
        raise ProtocolError("tree connect extensions are for clusters")
    path = decode_text(last_area(message, offset, length, 72))
    return TreeRequest(path)


# [MS-SMB2] 2.2.10
def encode_tree(kind: int, access: int) -> bytes:
    return _TREE_RESPONSE.pack(16, kind, 0, 0, 0, access)


# [MS-SMB2] 2.2.7, 2.2.11, 2.2.28
def decode_empty(message: Buffer) -> None:
    if Cursor(message, 64).u16() != 4:
        raise ProtocolError("no such request")
    check_end(message, 68)

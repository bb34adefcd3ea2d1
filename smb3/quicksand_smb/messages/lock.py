"""LOCK and OPLOCK_BREAK ([MS-SMB2] 2.2.23 to 2.2.26)."""

import struct

from quicksand_smb.minimal_stdlib import Final, NamedTuple
from quicksand_smb.wire import Buffer, Cursor, ProtocolError, check_end

_LOCK: Final = struct.Struct("<HHIQQ")
_ELEMENT: Final = struct.Struct("<QQII")
_OPLOCK: Final = struct.Struct("<HBBIQQ")
_LEASE_ACK: Final = struct.Struct("<HHI16sIQ")
_LEASE_BREAK: Final = struct.Struct("<HHI16sIIIII")
MOST_ELEMENTS: Final = 1024

SHARED: Final = 1
EXCLUSIVE: Final = 2
UNLOCK: Final = 4
AT_ONCE: Final = 0x10


class Element(NamedTuple):
    offset: int
    length: int
    flags: int


class LockRequest(NamedTuple):
    sequence: int
    file_id: tuple[int, int]
    elements: tuple[Element, ...]


class OplockAck(NamedTuple):
    level: int
    file_id: tuple[int, int]


class LeaseAck(NamedTuple):
    key: bytes
    state: int


# [MS-SMB2] 2.2.26; the response is EMPTY of `session`
def decode_lock(message: Buffer) -> LockRequest:
    cursor = Cursor(message, 64)
    size, count, sequence, persistent, volatile = cursor.fields(_LOCK)
    if size != 48 or not 0 < count <= MOST_ELEMENTS:
        raise ProtocolError("no LOCK request")
    elements = []
    for _ in range(count):
        offset, length, flags, _ = cursor.fields(_ELEMENT)
        elements.append(Element(offset, length, flags))
    check_end(message, cursor.at)
    return LockRequest(sequence, (persistent, volatile), tuple(elements))


# [MS-SMB2] 2.2.24
def decode_ack(message: Buffer) -> OplockAck | LeaseAck:
    cursor = Cursor(message, 64)
    size = cursor.u16()
    cursor.at = 64
    if size == 24:
        _, level, _, _, persistent, volatile = cursor.fields(_OPLOCK)
        check_end(message, cursor.at)
        return OplockAck(level, (persistent, volatile))
    if size == 36:
        _, _, _, _, state, _ = cursor.fields(_LEASE_ACK)
        check_end(message, cursor.at)
        return LeaseAck(bytes(cursor.data[72:88]), state)
    raise ProtocolError("no OPLOCK_BREAK acknowledgement")


# [MS-SMB2] 2.2.23.1 and 2.2.25.1
def encode_oplock(level: int, file_id: tuple[int, int]) -> bytes:
    return _OPLOCK.pack(24, level, 0, 0, *file_id)


# [MS-SMB2] 2.2.23.2
def encode_lease_break(key: bytes, epoch: int, now: int, then: int, *, needs_answer: bool) -> bytes:
    return _LEASE_BREAK.pack(44, epoch, int(needs_answer), key, now, then, 0, 0, 0)


# [MS-SMB2] 2.2.25.2
def encode_lease_ack(key: bytes, state: int) -> bytes:
    return _LEASE_ACK.pack(36, 0, 0, key, state, 0)

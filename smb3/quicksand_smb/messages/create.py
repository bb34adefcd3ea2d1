"""CREATE and CLOSE: names become handles ([MS-SMB2] 2.2.13 to 2.2.16)."""

import struct

from quicksand_smb.minimal_stdlib import Final, NamedTuple, Sequence
from quicksand_smb.wire import (
    PADDING_MAX,
    Buffer,
    Cursor,
    ProtocolError,
    area,
    check_end,
    decode_text,
    fields,
    pad,
    whole,
)

_REQUEST: Final = struct.Struct("<HBBIQQIIIIIHHII")
_RESPONSE: Final = struct.Struct("<HBBIQQQQQQIIQQII")
_CONTEXT: Final = struct.Struct("<IHHHHI")
_LEASE: Final = struct.Struct("<16sIIQ")
BREAKING: Final = 2
PARENT_KEY: Final = 4
_CLOSE: Final = struct.Struct("<HHIQQ")
_CLOSE_RESPONSE: Final = struct.Struct("<HHIQQQQQQI")
MOST_CONTEXTS: Final = 32
LARGEST_CONTEXTS: Final = 192 << 10
"""The most bytes of all contexts together. The largest are a security descriptor and extended
attributes, with 64 KiB each. Contexts may overlap, so each could be as large as all."""

MAXIMAL_ACCESS: Final = b"MxAc"
DISK_ID: Final = b"QFid"
LEASE_NAME: Final = b"RqLs"
ALLOCATION: Final = b"AlSi"
EXTENDED_ATTRIBUTES: Final = b"ExtA"
SECURITY: Final = b"SecD"
NOT_KEPT: Final = (b"TWrp", b"DHnC", b"DH2C")
"""Contexts that ask for a previous version, or for a handle that survived its connection."""

# Options, [MS-SMB2] 2.2.13
DIRECTORY: Final = 0x1
NON_DIRECTORY: Final = 0x40
WRITE_THROUGH: Final = 0x2
DELETE_ON_CLOSE: Final = 0x1000
REPARSE_POINT: Final = 0x200000


class CreateRequest:
    __slots__ = ("access", "attributes", "contexts", "disposition", "impersonation", "name",
                 "oplock", "options", "sharing")  # fmt: skip

    oplock: int
    impersonation: int
    access: int
    attributes: int
    sharing: int
    disposition: int
    options: int
    name: str
    contexts: dict[bytes, bytes]


Times = tuple[int, int, int, int]
"""FILETIMEs: created, accessed, written, changed."""


# [MS-SMB2] 2.2.13
def decode_request(message: Buffer) -> CreateRequest:
    wanted = CreateRequest()
    (size, _, wanted.oplock, wanted.impersonation, _, _, wanted.access, wanted.attributes,
     wanted.sharing, wanted.disposition, wanted.options, name_at, name_length, contexts_at,
     contexts_length) = fields(_REQUEST, message)  # fmt: skip
    if size != 57:
        raise ProtocolError("no CREATE request")
    if name_length % 2:
        raise ProtocolError("a name of half a character")
    wanted.name = decode_text(area(message, name_at, name_length, 120))
    if contexts_length > LARGEST_CONTEXTS:
        raise ProtocolError("too large create contexts")
    contexts = area(message, contexts_at, contexts_length, 120)
    wanted.contexts = decode_contexts(contexts) if contexts_length else {}
    end = name_at + name_length if name_length else 120
    if contexts_length and contexts_at + contexts_length > end:
        end = contexts_at + contexts_length
    if len(message) > end + PADDING_MAX:
        check_end(message, end)
    return wanted


# [MS-SMB2] 2.2.13.2
def decode_contexts(joined: Buffer) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    rest = memoryview(joined)
    for _ in range(MOST_CONTEXTS):
        if len(rest) < _CONTEXT.size:
            raise ProtocolError("a create context is shorter than its head")
        following, name_at, name_length, _, data_at, data_length = _CONTEXT.unpack_from(rest)
        name = bytes(area(rest, name_at, name_length, 16))
        if name_length < 4:
            raise ProtocolError("a create context without a name")
        found[name] = bytes(area(rest, data_at, data_length, 16))
        if not following:
            return found
        if following % 8 or following < 16 or following > len(rest):
            raise ProtocolError("the next create context lies nowhere")
        rest = rest[following:]
    raise ProtocolError("too many create contexts")


def encode_contexts(contexts: Sequence[tuple[bytes, bytes]]) -> bytes:
    encoded = b""
    left = len(contexts)
    for name, data in contexts:
        left -= 1
        fill = pad(len(name))
        data_at = 16 + len(name) + fill
        tail = pad(data_at + len(data)) if left else 0
        following = data_at + len(data) + tail if left else 0
        head = _CONTEXT.pack(following, 16, len(name), 0, data_at, len(data))
        encoded += head + name + bytes(fill) + data + bytes(tail)
    return encoded


class LeaseRequest(NamedTuple):
    key: bytes
    state: int
    flags: int
    version: int
    parent: bytes
    epoch: int


# [MS-SMB2] 2.2.13.2.8 and 2.2.13.2.10
def decode_lease(data: bytes) -> LeaseRequest:
    _, state, flags, _ = Cursor(data).fields(_LEASE)
    parent, epoch, version = b"", 0, 1
    if len(data) >= 52:
        cursor = Cursor(data, 32)
        parent, epoch, version = bytes(cursor.take(16)), cursor.u16(), 2
    return LeaseRequest(bytes(data[:16]), state, flags, version, parent, epoch)


# [MS-SMB2] 2.2.14.2.10 and 2.2.14.2.11
def encode_lease(lease: LeaseRequest) -> bytes:
    encoded = _LEASE.pack(lease.key, lease.state, lease.flags, 0)
    if lease.version == 2:
        encoded += (lease.parent or bytes(16)) + struct.pack("<HH", lease.epoch, 0)
    return encoded


# [MS-SMB2] 2.2.14
def encode_response(
    oplock: int,
    action: int,
    times: Times,
    allocated: int,
    size: int,
    attributes: int,
    file_id: tuple[int, int],
    given: Sequence[tuple[bytes, bytes]],
) -> bytes:
    contexts = encode_contexts(given) if given else b""
    return _RESPONSE.pack(
        89, oplock, 0, action, *times, allocated, size, attributes, 0, *file_id,
        152 if contexts else 0, len(contexts),
    ) + contexts  # fmt: skip


# [MS-SMB2] 2.2.15
def decode_close(message: Buffer) -> tuple[bool, tuple[int, int]]:
    """Return whether the client wants the attributes, and the file id."""
    size, flags, _, persistent, volatile = whole(_CLOSE, message)
    if size != 24:
        raise ProtocolError("no CLOSE request")
    return bool(flags & 1), (persistent, volatile)


CLOSED: Final = _CLOSE_RESPONSE.pack(60, 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""The response to a CLOSE that does not ask for attributes."""


# [MS-SMB2] 2.2.16
def encode_close(times: Times, allocated: int, size: int, attributes: int) -> bytes:
    return _CLOSE_RESPONSE.pack(60, 1, 0, *times, allocated, size, attributes)

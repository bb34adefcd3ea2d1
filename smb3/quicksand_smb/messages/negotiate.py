"""NEGOTIATE: dialects, sizes and capabilities."""

import struct

from quicksand_smb.minimal_stdlib import Final, IntEnum, NamedTuple
from quicksand_smb.wire import Buffer, Cursor, ProtocolError, pad

_REQUEST: Final = struct.Struct("<HHHHI16sQ")
_RESPONSE: Final = struct.Struct("<HHHH16sIIIIQQHHI")
_CONTEXT: Final = struct.Struct("<HHI")
MOST_CONTEXTS: Final = 32
MOST_DIALECTS: Final = 64
"""Six exist, with the wildcard ([MS-SMB2] 2.2.3). A connection keeps the list."""
SHA512: Final = 1
AES_CMAC: Final = 1
HMAC_SHA256: Final = 0
POSIX_TAG: Final = bytes.fromhex("93ad25509cb411e7b42383de968bcd7c")


class Dialect(IntEnum):
    SMB202 = 0x0202
    SMB210 = 0x0210
    SMB300 = 0x0300
    SMB302 = 0x0302
    SMB311 = 0x0311
    WILDCARD = 0x02FF


SPOKEN: Final = (
    Dialect.SMB202,
    Dialect.SMB210,
    Dialect.SMB300,
    Dialect.SMB302,
    Dialect.SMB311,
)
"""The dialects that the server speaks. The wildcard only leads to a second NEGOTIATE."""


class ContextType(IntEnum):
    PREAUTH = 1
    ENCRYPTION = 2
    COMPRESSION = 3
    NETNAME = 5
    SIGNING = 8
    POSIX = 0x100


class NegotiateRequest(NamedTuple):
    dialects: tuple[int, ...]
    security_mode: int
    capabilities: int
    client: bytes
    contexts: dict[int, bytes]


class NegotiateResponse(NamedTuple):
    dialect: int
    security_mode: int
    server: bytes
    capabilities: int
    largest: int
    """The largest transaction, read and write in bytes."""
    now: int
    """The present time as a FILETIME."""
    token: bytes
    contexts: tuple[tuple[int, bytes], ...] = ()


# [MS-SMB2] 2.2.3 and 2.2.3.1
def decode_request(message: Buffer) -> NegotiateRequest:
    cursor = Cursor(message, 64)
    size, count, mode, _, abilities, _, _ = cursor.fields(_REQUEST)
    client = bytes(cursor.data[76:92])
    if size != 36:
        raise ProtocolError("no NEGOTIATE request")
    if count > MOST_DIALECTS:
        raise ProtocolError("too many dialects")
    dialects = struct.unpack(f"<{count}H", cursor.take(2 * count))
    contexts = {}
    if Dialect.SMB311 in dialects:
        place = Cursor(cursor.data, 92)
        cursor.at = place.u32()
        number = place.u16()
        if number > MOST_CONTEXTS:
            raise ProtocolError("too many negotiate contexts")
        contexts = dict(_decode_contexts(cursor, number))
    return NegotiateRequest(dialects, mode, abilities, client, contexts)


def _decode_contexts(cursor: Cursor, count: int) -> list[tuple[int, bytes]]:
    found = []
    for index in range(count):
        if index:
            cursor.skip(pad(cursor.at))
        kind, length, _ = cursor.fields(_CONTEXT)
        found.append((kind, bytes(cursor.take(length))))
    return found


# [MS-SMB2] 2.2.4 and 2.2.4.1
def encode_response(response: NegotiateResponse) -> bytes:
    token = response.token
    start = 128 + len(token)
    start += pad(start)
    body = _RESPONSE.pack(
        65, response.security_mode, response.dialect, len(response.contexts), response.server,
        response.capabilities, response.largest, response.largest, response.largest,
        response.now, 0, 128, len(token), start if response.contexts else 0,
    ) + token  # fmt: skip
    for kind, data in response.contexts:
        body += bytes(pad(len(body))) + _CONTEXT.pack(kind, len(data), 0) + data
    return body


# [MS-SMB2] 2.2.3.1.1 and 2.2.4.1.1
def decode_preauth(data: bytes) -> tuple[int, ...]:
    """Return the hash algorithms that a client knows."""
    cursor = Cursor(data)
    count, _ = cursor.u16(), cursor.u16()
    return struct.unpack(f"<{count}H", cursor.take(2 * count))


def encode_preauth(salt: bytes) -> bytes:
    return struct.pack("<HHH", 1, len(salt), SHA512) + salt


# [MS-SMB2] 2.2.3.1.7 and 2.2.4.1.7
def decode_signing(data: bytes) -> tuple[int, ...]:
    cursor = Cursor(data)
    return struct.unpack(f"<{(count := cursor.u16())}H", cursor.take(2 * count))


def encode_signing(algorithm: int) -> bytes:
    return struct.pack("<HH", 1, algorithm)

"""SPNEGO, in which most clients wrap NTLM (RFC 4178), as far as they use it.

Linux sends plain NTLM. smbclient and Windows wrap it. The server answers in the client's form.
"""

from quicksand_smb.minimal_stdlib import Final, NamedTuple
from quicksand_smb.wire import Cursor, ProtocolError

NTLMSSP: Final = b"NTLMSSP\0"
_OID_SPNEGO: Final = bytes.fromhex("06062b0601050502")
_OID_NTLM: Final = bytes.fromhex("060a2b06010401823702020a")
COMPLETED: Final = 0
INCOMPLETE: Final = 1
REJECTED: Final = 2


class Wrapped(NamedTuple):
    token: bytes
    mechanisms: bytes
    """The list as the client encoded it, over which both sides compute a checksum. Empty if there
    is none."""
    checksum: bytes


def _element(cursor: Cursor) -> tuple[int, memoryview]:
    """Return the tag and content of the next element. Its length has at most four bytes."""
    tag, length = cursor.u8(), cursor.u8()
    if length > 0x84:
        raise ProtocolError("an element of a login is too long")
    if length >= 0x80:
        length = int.from_bytes(cursor.take(length - 0x80), "big")
    return tag, cursor.take(length)


def _expect(cursor: Cursor, wanted: int) -> Cursor:
    tag, content = _element(cursor)
    if tag != wanted:
        raise ProtocolError("a login is wrapped as no client does")
    return Cursor(content)


def unwrap(blob: bytes) -> Wrapped:
    """Return the NTLM message of a NegTokenInit (RFC 4178 4.2.1) or NegTokenResp (4.2.2)."""
    cursor = Cursor(blob)
    if blob[:1] == b"\x60":
        cursor = _expect(cursor, 0x60)
        cursor.skip(len(_OID_SPNEGO))
        fields = _expect(_expect(cursor, 0xA0), 0x30)
    else:
        fields = _expect(_expect(cursor, 0xA1), 0x30)
    is_first = blob[:1] == b"\x60"
    token, mechanisms, checksum = b"", b"", b""
    while fields.left():
        tag, content = _element(fields)
        if tag == 0xA0 and is_first:
            mechanisms = bytes(content)
            listed = Cursor(content)
            wanted = _expect(listed, 0x30)
            best = bytes(_element(wanted)[1])
            if best != _OID_NTLM[2:]:
                continue
        elif tag == 0xA2:
            token = bytes(_element(Cursor(content))[1])
        elif tag == 0xA3 and not is_first:
            checksum = bytes(_element(Cursor(content))[1])
    return Wrapped(token, mechanisms, checksum)


def _encode(tag: int, *content: bytes) -> bytes:
    joined = b"".join(content)
    length = len(joined)
    if length < 0x80:
        size = bytes([length])
    else:
        size = length.to_bytes((length.bit_length() + 7) // 8, "big")
        size = bytes([0x80 + len(size)]) + size
    return bytes([tag]) + size + joined


def hello() -> bytes:
    """Return the token that offers NTLM."""
    mechanisms = _encode(0xA0, _encode(0x30, _OID_NTLM))
    return _encode(0x60, _OID_SPNEGO, _encode(0xA0, _encode(0x30, mechanisms)))


def wrap(state: int, token: bytes = b"", checksum: bytes = b"", *, first: bool = False) -> bytes:
    parts = _encode(0xA0, _encode(0x0A, bytes([state])))
    parts += _encode(0xA1, _OID_NTLM) if first else b""
    parts += _encode(0xA2, _encode(0x04, token)) if token else b""
    parts += _encode(0xA3, _encode(0x04, checksum)) if checksum else b""
    return _encode(0xA1, _encode(0x30, parts))

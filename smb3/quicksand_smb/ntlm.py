"""The server side of an NTLMv2 login ([MS-NLMP])."""

import os
import struct

from quicksand_smb import spnego
from quicksand_smb.ciphers import md4, rc4
from quicksand_smb.minimal_stdlib import Enum, Final, NamedTuple, compare_digest, hmac_digest, md5
from quicksand_smb.wire import Cursor, ProtocolError, decode_text, encode_text, filetime

_CHALLENGE: Final = struct.Struct("<8sIHHII8s8sHHI8s")
NEGOTIATE: Final = 1
CHALLENGE: Final = 2
AUTHENTICATE: Final = 3

UNICODE: Final = 0x1
SIGN: Final = 0x10
NTLM: Final = 0x200
ANONYMOUS: Final = 0x800
ALWAYS_SIGN: Final = 0x8000
TARGET_SERVER: Final = 0x20000
EXTENDED: Final = 0x80000
TARGET_INFO: Final = 0x800000
VERSION: Final = 0x2000000
KEY_128: Final = 0x20000000
KEY_EXCHANGE: Final = 0x40000000
KEY_56: Final = 0x80000000
REQUEST_TARGET: Final = 4
_OURS: Final = (
    UNICODE
    | REQUEST_TARGET
    | SIGN
    | NTLM
    | ALWAYS_SIGN
    | EXTENDED
    | KEY_128
    | KEY_EXCHANGE
    | KEY_56
)
NAME: Final = "QUICKSAND"
_TO_CLIENT_SIGN: Final = b"session key to server-to-client signing key magic constant\0"
_TO_CLIENT_SEAL: Final = b"session key to server-to-client sealing key magic constant\0"
_MIC_AT: Final = 72


class Authenticate(NamedTuple):
    flags: int
    proof: bytes
    """The NTLMv2 response: 16 bytes of proof, and the data that it proves."""
    domain: str
    user: str
    encrypted_key: bytes
    mic: bytes


class Outcome(Enum):
    MORE = 1
    """The token is a challenge that the client must answer."""
    ACCEPTED = 2
    ANONYMOUS = 3
    REJECTED = 4


class Answer(NamedTuple):
    outcome: Outcome
    token: bytes = b""
    session_key: bytes = b""


def _hmac_md5(key: bytes, data: bytes) -> bytes:
    return hmac_digest(key, data, "md5")


# [MS-NLMP] 2.2.1.1
def decode_negotiate(token: bytes) -> int:
    """Return the flags that a client asks for."""
    cursor = Cursor(token, 8)
    if cursor.u32() != NEGOTIATE:
        raise ProtocolError("no NTLM negotiation")
    return cursor.u32()


# [MS-NLMP] 2.2.1.2
def encode_challenge(flags: int, challenge: bytes, now: int) -> bytes:
    name = encode_text(NAME)
    info = b"".join(
        struct.pack("<HH", kind, len(value)) + value
        for kind, value in (
            (2, name),
            (1, name),
            (4, name.lower()),
            (3, name.lower()),
            (7, struct.pack("<Q", now)),
            (0, b""),
        )
    )
    chosen = flags & _OURS | TARGET_INFO | TARGET_SERVER | NTLM | EXTENDED | UNICODE
    return (
        _CHALLENGE.pack(
            spnego.NTLMSSP, CHALLENGE, len(name), len(name), 56, chosen, challenge, bytes(8),
            len(info), len(info), 56 + len(name), bytes(8),
        ) + name + info
    )  # fmt: skip


# [MS-NLMP] 2.2.1.3
def decode_authenticate(token: bytes) -> Authenticate:
    cursor = Cursor(token, 8)
    if cursor.u32() != AUTHENTICATE:
        raise ProtocolError("no NTLM authentication")

    def field() -> memoryview:
        length, _, offset = cursor.u16(), cursor.u16(), cursor.u32()
        return cursor.area(offset, length, least=52)

    field()  # the response of LAN Manager, which nobody may use
    proof, domain, user = bytes(field()), field(), field()
    field()  # the client's own name
    key = bytes(field())
    flags = cursor.u32()
    if not flags & UNICODE and (len(user) or len(domain)):
        raise ProtocolError("names in a code page")
    mic = bytes(token[_MIC_AT : _MIC_AT + 16])
    return Authenticate(flags, proof, decode_text(domain), decode_text(user), key, mic)


class Login:
    """One login. Each step takes a token and returns an answer, until one accepts or rejects."""

    def __init__(self, secret: str | None, now_ns: int) -> None:
        self._secret = secret
        self._challenge = os.urandom(8)
        self._now = filetime(now_ns)
        self._wrapped: bool | None = None
        self._mechanisms = b""
        self._heard: list[bytes] = []

    def step(self, blob: bytes) -> Answer:
        if self._wrapped is None:
            self._wrapped = not blob.startswith(spnego.NTLMSSP)
        if not self._wrapped:
            return self._answer(blob, b"")
        inner = spnego.unwrap(blob)
        self._mechanisms = inner.mechanisms or self._mechanisms
        if not inner.token.startswith(spnego.NTLMSSP):
            # The client prefers another mechanism. Ask it for NTLM.
            return Answer(Outcome.MORE, spnego.wrap(spnego.INCOMPLETE, first=True))
        return self._answer(inner.token, inner.checksum)

    def _answer(self, token: bytes, checksum: bytes) -> Answer:
        if len(token) < 12 or not token.startswith(spnego.NTLMSSP):
            raise ProtocolError("no NTLM message")
        if token[8] == NEGOTIATE:
            challenge = encode_challenge(decode_negotiate(token), self._challenge, self._now)
            self._heard = [token, challenge]
            if self._wrapped:
                challenge = spnego.wrap(spnego.INCOMPLETE, challenge, first=True)
            return Answer(Outcome.MORE, challenge)
        answer = self._judge(decode_authenticate(token), token)
        if not self._wrapped:
            return answer
        if answer.outcome is Outcome.REJECTED:
            return answer._replace(token=spnego.wrap(spnego.REJECTED))
        own = b""
        if checksum and answer.session_key:
            own = self._checksum(answer.session_key, decode_authenticate(token).flags)
        return answer._replace(token=spnego.wrap(spnego.COMPLETED, checksum=own))

    def _judge(self, message: Authenticate, token: bytes) -> Answer:
        """Check the client's proof and its message integrity code ([MS-NLMP] 3.2.5.1.2 and
        3.3.2)."""
        if not self._heard:
            raise ProtocolError("an answer before the challenge")
        if self._secret is None:
            return Answer(Outcome.ANONYMOUS)
        if len(message.proof) < 44:
            return Answer(Outcome.REJECTED)
        password = md4(encode_text(self._secret))
        key = _hmac_md5(password, encode_text(message.user.upper() + message.domain))
        proof, proven = message.proof[:16], message.proof[16:]
        if not compare_digest(_hmac_md5(key, self._challenge + proven), proof):
            return Answer(Outcome.REJECTED)
        session_key = _hmac_md5(key, proof)
        if message.flags & KEY_EXCHANGE:
            if len(message.encrypted_key) != 16:
                raise ProtocolError("no session key")
            session_key = rc4(session_key, message.encrypted_key)
        if _promises_mic(proven):
            cleared = token[:_MIC_AT] + bytes(16) + token[_MIC_AT + 16 :]
            expected = _hmac_md5(session_key, b"".join(self._heard) + cleared)
            if not compare_digest(expected, message.mic):
                return Answer(Outcome.REJECTED)
        return Answer(Outcome.ACCEPTED, session_key=session_key)

    def _checksum(self, session_key: bytes, flags: int) -> bytes:
        """Return the signature over the list of mechanisms ([MS-NLMP] 3.4.4.2)."""
        sign = md5(session_key + _TO_CLIENT_SIGN)
        short = session_key if flags & KEY_128 else session_key[: 7 if flags & KEY_56 else 5]
        seal = md5(short + _TO_CLIENT_SEAL)
        value = _hmac_md5(sign, bytes(4) + self._mechanisms)[:8]
        if flags & KEY_EXCHANGE:
            value = rc4(seal, value)
        return struct.pack("<I", 1) + value + bytes(4)


def _promises_mic(proven: bytes) -> bool:
    """Tell whether the client's message carries an integrity code ([MS-NLMP] 2.2.2.1)."""
    cursor = Cursor(proven, 28)
    while cursor.left() >= 4:
        kind, length = cursor.u16(), cursor.u16()
        value = cursor.take(length)
        if kind == 0:
            return False
        if kind == 6 and length == 4:
            return bool(value[0] & 2)
    return False

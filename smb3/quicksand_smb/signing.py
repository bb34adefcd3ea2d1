"""Message signatures and their keys ([MS-SMB2] 3.1.4.1, 3.1.4.2)."""

from quicksand_smb.ciphers import aes_cmac
from quicksand_smb.messages.negotiate import Dialect
from quicksand_smb.minimal_stdlib import (
    Final,
    IntEnum,
    NamedTuple,
    compare_digest,
    hmac_digest,
    sha512,
)
from quicksand_smb.wire import Buffer

ZEROES: Final = bytes(16)


class Algorithm(IntEnum):
    HMAC_SHA256 = 0
    AES_CMAC = 1


def sign(key: bytes, algorithm: Algorithm, message: Buffer) -> bytes:
    """Return the signature of a message, whose signature field counts as zeros."""
    cleared = bytes(message[:48]) + ZEROES + bytes(message[64:])
    if algorithm is Algorithm.HMAC_SHA256:
        return hmac_digest(key, cleared, "sha256")[:16]
    return aes_cmac(key, cleared)


def is_signed_by(key: bytes, algorithm: Algorithm, message: Buffer) -> bool:
    return compare_digest(sign(key, algorithm, message), bytes(message[48:64]))


class Signer(NamedTuple):
    """The signing key of a session, and its use."""

    key: bytes
    algorithm: Algorithm
    is_required: bool
    """Client and server have agreed to sign every message."""

    def sign(self, message: Buffer) -> bytes:
        return sign(self.key, self.algorithm, message)

    def has_signed(self, message: Buffer) -> bool:
        return is_signed_by(self.key, self.algorithm, message)


NO_HANDSHAKE: Final = bytes(64)


def extended(handshake: bytes, message: Buffer) -> bytes:
    """Extend the hash over all messages of a handshake, which detects changes to them ([MS-SMB2]
    3.3.5.4)."""
    return sha512(handshake + message)


def signing_key(session_key: bytes, dialect: int, handshake: bytes) -> bytes:
    """Derive the signing key ([MS-SMB2] 3.1.4.2) in the counter mode of SP800-108."""
    if dialect < Dialect.SMB300:
        return session_key
    if dialect == Dialect.SMB311:
        label, context = b"SMBSigningKey\0", handshake
    else:
        label, context = b"SMB2AESCMAC\0", b"SmbSign\0"
    known = b"\0\0\0\1" + label + b"\0" + context + b"\0\0\0\x80"
    return hmac_digest(session_key, known, "sha256")[:16]

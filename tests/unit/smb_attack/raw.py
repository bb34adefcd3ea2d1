"""Requests of SMB2 written down by hand from [MS-SMB2], [MS-FSCC] and [MS-NLMP].

Nothing here is the server's: a mistake in its offsets is no mistake here as well. Every field can
be given a value that no honest client sends.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

NEGOTIATE, SESSION_SETUP, LOGOFF, TREE_CONNECT, TREE_DISCONNECT = range(5)
CREATE, CLOSE, FLUSH, READ, WRITE, LOCK, IOCTL, CANCEL, ECHO = range(5, 14)
QUERY_DIRECTORY, CHANGE_NOTIFY, QUERY_INFO, SET_INFO, OPLOCK_BREAK = range(14, 19)

RELATED, SIGNED = 0x4, 0x8

# [MS-ERREF] 2.3.1
SUCCESS = 0
PENDING = 0x103
BUFFER_OVERFLOW = 0x80000005
NO_MORE_FILES = 0x80000006
INVALID_PARAMETER = 0xC000000D
MORE_PROCESSING = 0xC0000016
ACCESS_DENIED = 0xC0000022
DISK_FULL = 0xC000007F
INSUFFICIENT_RESOURCES = 0xC000009A
WRITE_PROTECTED = 0xC00000A2
NETWORK_NAME_DELETED = 0xC00000C9
TOO_MANY_OPENED_FILES = 0xC000011F
CANCELLED = 0xC0000120
FILE_CLOSED = 0xC0000128
SESSION_DELETED = 0xC0000203

READ_DATA, WRITE_DATA, DELETE = 0x1, 0x2, 0x10000
ALL = 0x1F01FF
OPEN, NEW, OPEN_IF, OVERWRITE, OVERWRITE_IF = 1, 2, 3, 4, 5
DIRECTORY, DELETE_ON_CLOSE = 0x1, 0x1000
LAST_FILE = b"\xff" * 16
POSIX_TAG = bytes.fromhex("93ad25509cb411e7b42383de968bcd7c")


@dataclass(frozen=True)
class Response:
    """[MS-SMB2] 2.2.1."""

    raw: bytes

    def _number(self, at: int, count: int) -> int:
        return int.from_bytes(self.raw[at : at + count], "little")

    @property
    def status(self) -> int:
        return self._number(8, 4)

    @property
    def command(self) -> int:
        return self._number(12, 2)

    @property
    def credits(self) -> int:
        return self._number(14, 2)

    @property
    def flags(self) -> int:
        return self._number(16, 4)

    @property
    def message(self) -> int:
        return self._number(24, 8)

    @property
    def async_id(self) -> int:
        return self._number(32, 8)

    @property
    def tree(self) -> int:
        return self._number(36, 4)

    @property
    def session(self) -> int:
        return self._number(40, 8)

    @property
    def body(self) -> bytes:
        return self.raw[64:]

    @property
    def file(self) -> bytes:
        """Of CREATE: [MS-SMB2] 2.2.14."""
        return self.raw[128:144]

    @property
    def output(self) -> bytes:
        """Of QUERY_INFO, QUERY_DIRECTORY and CHANGE_NOTIFY: [MS-SMB2] 2.2.34, 2.2.36, 2.2.38."""
        at, count = struct.unpack_from("<HI", self.raw, 66)
        return self.raw[at : at + count]

    @property
    def data(self) -> bytes:
        """Of READ: [MS-SMB2] 2.2.20."""
        at, count = self.raw[66], self._number(68, 4)
        return self.raw[at : at + count]


def responses(frame: bytes) -> list[Response]:
    found = []
    while True:
        assert frame[:4] == b"\xfeSMB", frame[:64]
        assert frame[4:6] == b"\x40\0" and frame[16] & 1, "no response"
        following = int.from_bytes(frame[20:24], "little")
        found.append(Response(frame[: following or None]))
        if not following:
            return found
        assert following % 8 == 0
        frame = frame[following:]


def header(
    command: int,
    *,
    message: int = 0,
    session: int = 0,
    tree: int = 0,
    flags: int = 0,
    charge: int = 1,
    asked: int = 64,
    following: int = 0,
    magic: bytes = b"\xfeSMB",
    size: int = 64,
    process: int = 0xFEFF,
) -> bytes:
    """[MS-SMB2] 2.2.1.2."""
    return (
        magic
        + struct.pack("<HHIHHII", size, charge, 0, command, asked, flags, following)
        + struct.pack("<QIIQ", message, process, tree, session)
        + bytes(16)
    )


def frame(message: bytes) -> bytes:
    """[MS-SMB2] 2.1."""
    return b"\0" + len(message).to_bytes(3, "big") + message


def negotiate(*dialects: int, mode: int = 1, posix: bool = True, signing: int = 0) -> bytes:
    """[MS-SMB2] 2.2.3."""
    listed = struct.pack(f"<{len(dialects)}H", *dialects)
    known = struct.pack("<HHHHI", 36, len(dialects), mode, 0, 0) + b"the client's id."
    if 0x311 not in dialects:
        return known + bytes(8) + listed
    contexts = [(1, struct.pack("<HHH", 1, 32, 1) + bytes(32))]
    contexts += [(8, struct.pack("<HH", 1, signing))]
    contexts += [(0x100, POSIX_TAG)] if posix else []
    at = 64 + 36 + len(listed)
    start = at + -at % 8
    encoded = b""
    for kind, data in contexts:
        encoded += bytes(-len(encoded) % 8) + struct.pack("<HHI", kind, len(data), 0) + data
    place = struct.pack("<IHH", start, len(contexts), 0)
    return known + place + listed + bytes(start - at) + encoded


def setup(token: bytes, *, mode: int = 1, previous: int = 0, flags: int = 0) -> bytes:
    """[MS-SMB2] 2.2.5."""
    return struct.pack("<HBBIIHHQ", 25, flags, mode, 0, 0, 88, len(token), previous) + token


def tree_connect(share: str) -> bytes:
    """[MS-SMB2] 2.2.9."""
    path = f"\\\\host\\{share}".encode("utf-16-le")
    return struct.pack("<HHHH", 9, 0, 72, len(path)) + path


NOTHING = struct.pack("<HH", 4, 0)
"""LOGOFF, TREE_DISCONNECT, ECHO, CANCEL: [MS-SMB2] 2.2.7, 2.2.11, 2.2.28, 2.2.30."""


def create(
    name: str | bytes,
    *,
    access: int = ALL,
    disposition: int = OPEN_IF,
    options: int = 0,
    contexts: bytes = b"",
) -> bytes:
    """[MS-SMB2] 2.2.13."""
    text = name if isinstance(name, bytes) else name.encode("utf-16-le", "surrogatepass")
    known = struct.pack("<HBBIQQ", 57, 0, 0, 2, 0, 0)
    known += struct.pack("<IIIII", access, 0, 7, disposition, options)
    fill = bytes(-len(text) % 8) if text else bytes(8)
    at = 120 + len(text) + len(fill) if contexts else 0
    known += struct.pack("<HHII", 120, len(text), at, len(contexts))
    return known + text + fill + contexts


def close(file: bytes) -> bytes:
    """[MS-SMB2] 2.2.15."""
    return struct.pack("<HHI", 24, 0, 0) + file


def flush(file: bytes) -> bytes:
    """[MS-SMB2] 2.2.17."""
    return struct.pack("<HHI", 24, 0, 0) + file


def read(file: bytes, offset: int, count: int, *, least: int = 0) -> bytes:
    """[MS-SMB2] 2.2.19."""
    return (
        struct.pack("<HBBIQ", 49, 0x50, 0, count, offset)
        + file
        + struct.pack("<IIIHH", least, 0, 0, 0, 0)
        + b"\0"
    )


def write(
    file: bytes, offset: int, data: bytes, *, at: int = 112, count: int | None = None
) -> bytes:
    """[MS-SMB2] 2.2.21."""
    count = len(data) if count is None else count
    return (
        struct.pack("<HHIQ", 49, at, count, offset)
        + file
        + struct.pack("<IIHHI", 0, 0, 0, 0, 0)
        + data
    )


def lock(file: bytes, *elements: tuple[int, int, int], count: int | None = None) -> bytes:
    """[MS-SMB2] 2.2.26; an element is offset, length and flags."""
    number = len(elements) if count is None else count
    listed = b"".join(struct.pack("<QQII", *one, 0) for one in elements)
    return struct.pack("<HHI", 48, number & 0xFFFF, 0) + file + listed


def ioctl(file: bytes, code: int, data: bytes = b"", *, most: int = 4096, at: int = 120) -> bytes:
    """[MS-SMB2] 2.2.31."""
    known = struct.pack("<HHI", 57, 0, code) + file
    return known + struct.pack("<IIIIIIII", at, len(data), 0, 0, 0, most, 1, 0) + data


def find(file: bytes, pattern: str, *, level: int = 38, flags: int = 0, most: int = 65536) -> bytes:
    """[MS-SMB2] 2.2.33."""
    text = pattern.encode("utf-16-le", "surrogatepass")
    known = struct.pack("<HBBI", 33, level, flags, 0) + file
    return known + struct.pack("<HHI", 96, len(text), most) + text


def notify(file: bytes, *, most: int = 4096, recursive: bool = True) -> bytes:
    """[MS-SMB2] 2.2.35."""
    return struct.pack("<HHI", 32, int(recursive), most) + file + struct.pack("<II", 0xFFF, 0)


def query(file: bytes, kind: int, level: int, *, most: int = 4096) -> bytes:
    """[MS-SMB2] 2.2.37."""
    return struct.pack("<HBBIHHIII", 41, kind, level, most, 0, 0, 0, 7, 0) + file


def set_info(file: bytes, level: int, data: bytes, *, at: int = 96, kind: int = 1) -> bytes:
    """[MS-SMB2] 2.2.39."""
    return struct.pack("<HBBIHHI", 33, kind, level, len(data), at, 0, 0) + file + data


def rename(path: str, *, replace: bool = False) -> bytes:
    """[MS-FSCC] 2.4.42.2; a link is the same, 2.4.27.2."""
    text = path.encode("utf-16-le", "surrogatepass")
    return bytes([replace]) + bytes(15) + len(text).to_bytes(4, "little") + text


def chain(*messages: bytes) -> bytes:
    """Messages in one frame: each but the last gets its length, a multiple of eight."""
    joined = b""
    for message in messages[:-1]:
        padded = message + bytes(-len(message) % 8)
        joined += padded[:20] + len(padded).to_bytes(4, "little") + padded[24:]
    return joined + messages[-1]


# The login, [MS-NLMP]

NTLMSSP = b"NTLMSSP\0"
FLAGS = 0x00088201
"""Unicode, NTLM, sign always, extended session security."""
HELLO = NTLMSSP + struct.pack("<II", 1, FLAGS) + bytes(16)
NOBODY = NTLMSSP + struct.pack("<I", 3) + struct.pack("<HHI", 0, 0, 64) * 6 + bytes(4)


def prove(challenge: bytes, secret: str) -> tuple[bytes, bytes]:
    """The third message ([MS-NLMP] 2.2.1.3, 3.3.2) and the key of the session."""
    start = challenge.index(NTLMSSP)
    nonce = challenge[start + 24 : start + 32]
    proven = b"\1\1" + bytes(6) + bytes(8) + b"nonce..." + bytes(4) + bytes(4)
    key = hmac.digest(md4(secret.encode("utf-16-le")), "GUEST".encode("utf-16-le"), "md5")
    proof = hmac.digest(key, nonce + proven, "md5")
    fields = [b"", proof + proven, b"", "guest".encode("utf-16-le"), b"", b""]
    head, data = b"", b""
    for field in fields:
        head += struct.pack("<HHI", len(field), len(field), 64 + len(data))
        data += field
    token = NTLMSSP + struct.pack("<I", 3) + head + struct.pack("<I", FLAGS) + data
    return token, hmac.digest(key, proof, "md5")


def signed(message: bytes, key: bytes) -> bytes:
    """With HMAC-SHA256, [MS-SMB2] 3.1.4.1."""
    flags = int.from_bytes(message[16:20], "little") | SIGNED
    cleared = message[:16] + flags.to_bytes(4, "little") + message[20:48] + bytes(16) + message[64:]
    return cleared[:48] + hmac.digest(key, cleared, hashlib.sha256)[:16] + cleared[64:]


def md4(data: bytes) -> bytes:
    """RFC 1320."""
    mask = 0xFFFFFFFF
    state = [0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476]
    padded = data + b"\x80" + bytes((55 - len(data)) % 64) + struct.pack("<Q", 8 * len(data))
    orders = (
        list(range(16)),
        [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15],
        [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15],
    )
    turns = ((3, 7, 11, 19), (3, 5, 9, 13), (3, 9, 11, 15))
    adds = (0, 0x5A827999, 0x6ED9EBA1)
    for at in range(0, len(padded), 64):
        words = struct.unpack_from("<16I", padded, at)
        a, b, c, d = state
        for step in range(48):
            turn = step // 16
            if turn == 0:
                mixed = (b & c) | (~b & d)
            elif turn == 1:
                mixed = (b & c) | (b & d) | (c & d)
            else:
                mixed = b ^ c ^ d
            value = (a + mixed + words[orders[turn][step % 16]] + adds[turn]) & mask
            by = turns[turn][step % 4]
            a, b, c, d = d, (value << by | value >> (32 - by)) & mask, b, c
        state = [(old + new) & mask for old, new in zip(state, (a, b, c, d), strict=True)]
    return struct.pack("<4I", *state)

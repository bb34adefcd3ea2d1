"""The old algorithms of NTLM and SMB3 that Python's standard library lacks.

MD4 and RC4 protect nothing today, but [MS-NLMP] requires them. AES in Python runs at 2 MB/s. That
is enough to sign the few messages that must be signed, and too slow to encrypt the traffic of a
share.
"""

import struct

from quicksand_smb.minimal_stdlib import Final

MASK: Final = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    value &= MASK
    return (value << bits | value >> (32 - bits)) & MASK


# RFC 1320
def md4(data: bytes) -> bytes:
    length = len(data)
    data += b"\x80" + bytes(-(length + 9) % 64) + struct.pack("<Q", length * 8)
    state = [0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476]
    for at in range(0, len(data), 64):
        words = struct.unpack_from("<16I", data, at)
        a, b, c, d = state
        for i in range(16):
            a, b, c, d = d, _rotate(a + (b & c | ~b & d) + words[i], (3, 7, 11, 19)[i % 4]), b, c
        for i in range(16):
            word = words[i % 4 * 4 + i // 4]
            mixed = a + (b & c | b & d | c & d) + word + 0x5A827999
            a, b, c, d = d, _rotate(mixed, (3, 5, 9, 13)[i % 4]), b, c
        for i in range(16):
            word = words[(0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15)[i]]
            a, b, c, d = (
                d,
                _rotate(a + (b ^ c ^ d) + word + 0x6ED9EBA1, (3, 9, 11, 15)[i % 4]),
                b,
                c,
            )
        state = [(one + two) & MASK for one, two in zip(state, (a, b, c, d), strict=True)]
    return struct.pack("<4I", *state)


def rc4(key: bytes, data: bytes) -> bytes:
    box = list(range(256))
    j = 0
    for i in range(256):
        j = (j + box[i] + key[i % len(key)]) % 256
        box[i], box[j] = box[j], box[i]
    out = bytearray()
    i = j = 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + box[i]) % 256
        box[i], box[j] = box[j], box[i]
        out.append(byte ^ box[(box[i] + box[j]) % 256])
    return bytes(out)


def _double(value: int) -> int:
    return (value << 1 ^ 0x11B) & 0xFF if value & 0x80 else value << 1


def _tables() -> tuple[list[int], list[list[int]]]:
    """Return the substitution box of FIPS 197, and its combination with the mixing of columns for
    each row."""
    box = [0] * 256
    p = q = 1
    while True:
        p ^= _double(p)
        q ^= q << 1
        q ^= q << 2
        q ^= q << 4
        q &= 0xFF
        if q & 0x80:
            q ^= 0x09
        x = q | q << 8
        box[p] = (q ^ x >> 7 ^ x >> 6 ^ x >> 5 ^ x >> 4) & 0xFF ^ 0x63
        if p == 1:
            break
    box[0] = 0x63
    first = [_double(s) << 24 | s << 16 | s << 8 | _double(s) ^ s for s in box]
    rows = [[word >> 8 * row | word << (32 - 8 * row) & MASK for word in first] for row in range(4)]
    return box, rows


class Aes128:
    """Encrypts single blocks with one key."""

    _cache: tuple[list[int], list[list[int]]] | None = None

    def __init__(self, key: bytes) -> None:
        if Aes128._cache is None:
            Aes128._cache = _tables()
        self._box, self._rows = Aes128._cache
        box = self._box
        words = list(struct.unpack(">4I", key))
        constant = 1
        for i in range(4, 44):
            word = words[i - 1]
            if i % 4 == 0:
                word = _rotate(word, 8)
                word = (
                    box[word >> 24] << 24 | box[word >> 16 & 255] << 16
                    | box[word >> 8 & 255] << 8 | box[word & 255]
                ) ^ constant << 24  # fmt: skip
                constant = _double(constant)
            words.append(words[i - 4] ^ word)
        self._words = words

    def encrypt(self, block: int) -> int:
        """Encrypt a block, given as a number of 128 bits with the most significant byte first."""
        t0, t1, t2, t3 = self._rows
        words = self._words
        a = block >> 96 ^ words[0]
        b = block >> 64 & MASK ^ words[1]
        c = block >> 32 & MASK ^ words[2]
        d = block & MASK ^ words[3]
        for i in range(4, 40, 4):
            a, b, c, d = (
                t0[a >> 24] ^ t1[b >> 16 & 255] ^ t2[c >> 8 & 255] ^ t3[d & 255] ^ words[i],
                t0[b >> 24] ^ t1[c >> 16 & 255] ^ t2[d >> 8 & 255] ^ t3[a & 255] ^ words[i + 1],
                t0[c >> 24] ^ t1[d >> 16 & 255] ^ t2[a >> 8 & 255] ^ t3[b & 255] ^ words[i + 2],
                t0[d >> 24] ^ t1[a >> 16 & 255] ^ t2[b >> 8 & 255] ^ t3[c & 255] ^ words[i + 3],
            )
        s = self._box
        out = 0
        for i, (e, f, g, h) in enumerate(((a, b, c, d), (b, c, d, a), (c, d, a, b), (d, a, b, c))):
            word = s[e >> 24] << 24 | s[f >> 16 & 255] << 16 | s[g >> 8 & 255] << 8 | s[h & 255]
            out = out << 32 | word ^ words[40 + i]
        return out


# RFC 4493
def aes_cmac(key: bytes, data: bytes) -> bytes:
    aes = Aes128(key)
    whole = (1 << 128) - 1
    one = aes.encrypt(0)
    one = (one << 1 ^ (0x87 if one >> 127 else 0)) & whole
    last_at = max(len(data) - 1, 0) // 16 * 16
    last = data[last_at:]
    if len(last) == 16:
        end = int.from_bytes(last, "big") ^ one
    else:
        two = (one << 1 ^ (0x87 if one >> 127 else 0)) & whole
        end = int.from_bytes(last + b"\x80" + bytes(15 - len(last)), "big") ^ two
    state = 0
    encrypt = aes.encrypt
    for at in range(0, last_at, 16):
        state = encrypt(state ^ int.from_bytes(data[at : at + 16], "big"))
    return encrypt(state ^ end).to_bytes(16, "big")

"""NTLMv2, and the old algorithms below it, by the test vectors of their specifications."""

from __future__ import annotations

import hashlib
import hmac
import struct
import sys
from pathlib import Path

from quicksand_smb import ciphers
from quicksand_smb.signing import Algorithm

from tests.each import each
from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Client


# RFC 1320, A.5
@each(
    ("text", "digest"),
    [
        (b"", "31d6cfe0d16ae931b73c59d7e0c089c0"),
        (b"abc", "a448017aaf21d8525fc10ae87aa6729d"),
        (b"1234567890" * 8, "e33b4ddc9c38f2199c3e7b164fcc0536"),
    ],
)
def test_md4(text: bytes, digest: str) -> None:
    assert ciphers.md4(text).hex() == digest


def test_rc4() -> None:
    assert ciphers.rc4(b"Key", b"Plaintext").hex() == "bbf316e8d940af0ad3"


# RFC 4493, 4
@each(
    ("count", "mac"),
    [
        (0, "bb1d6929e95937287fa37d129b756746"),
        (16, "070a16b46b4d4144f79bdd9dd04a287c"),
        (40, "dfa66747de9ae63030ca32611497c827"),
        (64, "51f0bebf7e3b9d92fc49741779363cfe"),
    ],
)
def test_aes_cmac(count: int, mac: str) -> None:
    text = bytes.fromhex(
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
        "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
    )
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    assert ciphers.aes_cmac(key, text[:count]).hex() == mac


def answer_to(challenge: bytes, password: str) -> tuple[bytes, bytes]:
    """A client's third message by [MS-NLMP] 3.3.2, without key exchange, and the session key."""
    at = challenge.index(b"NTLMSSP\0")
    nonce = challenge[at + 24 : at + 32]
    known = struct.pack("<BBHIQ8sI", 1, 1, 0, 0, 0, b"client!!", 0) + struct.pack("<HHI", 0, 0, 0)
    user = "user".encode("utf-16-le")
    key = hmac.digest(ciphers.md4(password.encode("utf-16-le")), "USER".encode("utf-16-le"), "md5")
    proof = hmac.digest(key, nonce + known, "md5")
    response = proof + known
    fields = [b"", response, b"", user, b"", b""]
    head, at_data, data = b"", 64, b""
    for field in fields:
        head += struct.pack("<HHI", len(field), len(field), at_data + len(data))
        data += field
    token = b"NTLMSSP\0" + struct.pack("<I", 3) + head + struct.pack("<I", 0x00088201) + data
    return token, hmac.digest(key, proof, "md5")


def log_in(client: Client, password: str) -> tuple[c.Answer, bytes]:
    first = client.setup(b"NTLMSSP\0" + struct.pack("<II", 1, 0x00088201) + bytes(16))
    client.session = first.session
    token, key = answer_to(first.body, password)
    return client.setup(token), key


def negotiation(dialects: int, contexts: int) -> bytes:
    """A NEGOTIATE for dialect 3.1.1 with so many dialects, and with as many large contexts besides
    the needed one."""
    listed = struct.pack(f"<{dialects}H", *range(0x312 - dialects, 0x312))
    at = 64 + 36 + len(listed)
    at += -at % 8
    body = struct.pack("<HHHHI16s", 36, dialects, 1, 0, 0, b"client----------")
    body += struct.pack("<IHH", at, 1 + contexts, 0) + listed
    body += bytes(at - 64 - len(body)) + struct.pack("<HHIHHH", 1, 38, 0, 1, 32, 1) + bytes(34)
    for number in range(contexts):
        body += struct.pack("<HHI", 0x4000 + number, 65528, 0) + bytes(65528)
    return body


def size_of(value: object) -> int:
    """The bytes of a value with those of everything in it."""
    inner: list[object] = []
    if isinstance(value, dict):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, tuple):
        inner = [*value]
    return sys.getsizeof(value) + sum(map(size_of, inner))


def test_of_a_negotiation_little_is_kept(tmp_path: Path) -> None:
    """Nobody has logged in by then, and a stream may carry many connections."""
    client = Client(c.server(tmp_path))
    assert client.ask(c.NEGOTIATE, negotiation(64, 31)).status == 0
    assert len(client.connection.negotiated.client.dialects) == 64
    assert size_of(client.connection.negotiated) < 4096


def test_a_negotiation_with_dialects_beyond_all_that_exist_is_refused(tmp_path: Path) -> None:
    client = Client(c.server(tmp_path))
    assert client.ask(c.NEGOTIATE, negotiation(65, 0)).status == 0xC000000D
    assert client.negotiate(0x311).status == 0


def test_the_right_secret_is_let_in_and_the_answer_is_signed(tmp_path: Path) -> None:
    client = Client(c.server(tmp_path, secret="open sesame"))
    client.negotiate(0x210)
    answer, key = log_in(client, "open sesame")
    assert answer.status == 0
    assert answer.flags & 8
    cleared = answer.raw[:48] + bytes(16) + answer.raw[64:]
    assert hmac.new(key, cleared, hashlib.sha256).digest()[:16] == answer.raw[48:64]
    assert client.connect().status == 0


@each("dialect", [0x300, 0x311])
def test_a_request_with_a_wrong_signature_is_refused(tmp_path: Path, dialect: int) -> None:
    client = Client(c.server(tmp_path, secret="s"))
    client.negotiate(dialect)
    assert log_in(client, "s")[0].status == 0
    path = "\\\\server\\RW".encode("utf-16-le")
    body = struct.pack("<HHHH", 9, 0, 72, len(path)) + path
    assert client.ask(c.TCON, body, flags=8).status == 0xC0000022
    session = client.connection.conversation.sessions[client.session]
    assert session.signer is not None
    assert session.signer.algorithm is Algorithm.AES_CMAC
    message = bytearray(client.message(c.TCON, body, flags=8))
    message[48:64] = session.signer.sign(message)
    (answer,) = client.frame(bytes(message))
    assert answer.status == 0
    assert session.signer.has_signed(answer.raw)


def test_the_wrong_secret_is_turned_away(tmp_path: Path) -> None:
    client = Client(c.server(tmp_path, secret="open sesame"))
    client.negotiate(0x210)
    assert log_in(client, "guess")[0].status == 0xC000006D
    assert client.connect().status == 0xC0000203


def test_where_there_is_a_secret_nobody_is_a_guest(tmp_path: Path) -> None:
    client = Client(c.server(tmp_path, secret="s"))
    client.negotiate(0x311)
    client.session = client.setup(
        b"NTLMSSP\0" + struct.pack("<II", 1, 0x00088201) + bytes(16)
    ).session
    token = b"NTLMSSP\0" + struct.pack("<I", 3) + struct.pack("<HHI", 0, 0, 64) * 6 + bytes(4)
    assert client.setup(token).status == 0xC000006D


def test_a_login_is_answered_in_the_form_it_has(tmp_path: Path) -> None:
    client = Client(c.server(tmp_path))
    client.negotiate(0x210)
    ntlm = b"NTLMSSP\0" + struct.pack("<II", 1, 0x00088201) + bytes(16)
    oid = bytes.fromhex("060a2b06010401823702020a")

    def wrap(tag: int, content: bytes) -> bytes:
        return bytes([tag, len(content)]) + content

    inner = wrap(0xA0, wrap(0x30, oid)) + wrap(0xA2, wrap(0x04, ntlm))
    blob = wrap(0x60, bytes.fromhex("06062b0601050502") + wrap(0xA0, wrap(0x30, inner)))
    answer = client.setup(blob)
    assert answer.status == 0xC0000016
    assert answer.body[8] == 0xA1

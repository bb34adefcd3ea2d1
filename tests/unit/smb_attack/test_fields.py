"""Fields that lie: offsets, lengths, names, logins and protocols."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from tests.unit.smb_attack import raw
from tests.unit.smb_attack.guest import Guest, Server, serving

BAD = {raw.INVALID_PARAMETER, 0xC0000033, 0xC000003A, 0xC000003B, 0xC0000034, 0xC0000039}
"""Parameter; name invalid; path not found; path syntax; name not found; path invalid."""


@pytest.mark.parametrize("following", [1, 7, 8, 63, 65, 68, 1 << 20, 0xFFFFFFF8, 0xFFFFFFFF])
def test_a_next_message_that_lies_nowhere_ends_the_conversation(
    guest: Guest, following: int
) -> None:
    bad = guest.message(raw.ECHO, raw.NOTHING, following=following)
    guest.send(bad + bad)
    assert guest.is_silent(0.1)
    assert guest.ask(raw.ECHO, raw.NOTHING).status == raw.SESSION_DELETED


def test_the_last_message_of_a_chain_that_is_none_ends_the_conversation(guest: Guest) -> None:
    echo = guest.message(raw.ECHO, raw.NOTHING) + bytes(4)
    guest.send(raw.chain(echo, b"\xfeSMB" + bytes(20)))
    assert guest.is_silent(0.1)
    assert guest.ask(raw.ECHO, raw.NOTHING).status == raw.SESSION_DELETED


@pytest.mark.parametrize(
    ("at", "count"),
    [(0, 4), (63, 4), (64, 4), (111, 4), (112, 5), (113, 4), (0xFFFF, 4), (112, 0xFFFFFFFF)],
)
def test_data_that_lie_elsewhere_are_not_written(
    server: Server, guest: Guest, at: int, count: int
) -> None:
    file = guest.open("file")
    body = raw.write(file, 0, b"data", at=at, count=count)
    assert guest.ask(raw.WRITE, body).status == raw.INVALID_PARAMETER
    assert (server.share / "file").read_bytes() == b""


def test_data_are_written_as_they_are(server: Server, guest: Guest) -> None:
    """In a chain, too, 16 bytes of ones are no file."""
    frame = raw.chain(
        guest.message(raw.CREATE, raw.create("file")),
        guest.message(raw.WRITE, raw.write(raw.LAST_FILE, 0, raw.LAST_FILE * 3), flags=raw.RELATED),
        guest.message(raw.CLOSE, raw.close(raw.LAST_FILE), flags=raw.RELATED),
    )
    guest.send(frame)
    assert [one.status for one in guest.hear()] == [raw.SUCCESS] * 3
    assert (server.share / "file").read_bytes() == raw.LAST_FILE * 3


@pytest.mark.parametrize("at", [0, 1, 64, 95, 0x7FFF, 0xFFFF])
def test_a_buffer_outside_its_message_is_refused(server: Server, guest: Guest, at: int) -> None:
    file = guest.open("file")
    before = os.listdir(server.share)
    for command, body in (
        (raw.SET_INFO, raw.set_info(file, 10, raw.rename("moved"), at=at)),
        (raw.IOCTL, raw.ioctl(file, 0x000980C8, bytes(16), at=at)),
    ):
        assert guest.ask(command, body).status == raw.INVALID_PARAMETER
    create = bytearray(raw.create("elsewhere"))
    struct.pack_into("<H", create, 44, at)
    assert guest.ask(raw.CREATE, bytes(create)).status == raw.INVALID_PARAMETER
    connect = bytearray(raw.tree_connect("RW"))
    struct.pack_into("<H", connect, 4, at if at != 95 else 0xFFF0)
    assert guest.ask(raw.TREE_CONNECT, bytes(connect)).status == raw.INVALID_PARAMETER
    assert os.listdir(server.share) == before


@pytest.mark.parametrize("length", [1, 0xFFFFFFFF, 1 << 31, 25])
def test_a_rename_longer_than_its_buffer_is_refused(
    server: Server, guest: Guest, length: int
) -> None:
    file = guest.open("file")
    body = bytearray(raw.rename("moved"))
    struct.pack_into("<I", body, 16, length)
    for level in (10, 11):
        assert guest.ask(raw.SET_INFO, raw.set_info(file, level, bytes(body))).status in BAD
    assert os.listdir(server.share) == ["file"]


OUTSIDE = [
    "..",
    ".",
    "..\\outside\\canary",
    "dir\\..\\..\\outside\\canary",
    "\\outside",
    "/outside",
    "../outside/canary",
    "dir/../../outside/canary",
    "C:\\x",
    "\\\\?\\C:\\x",
    "\\??\\C:\\x",
    "a\0b",
    "a:b:$INDEX_ALLOCATION",
    "\ud800",
    "dir\\\\x",
    "x" * 256,
    "\\".join(["d"] * 5000),
    "\u2025\\..\\x",
    "\uf02e\uf02e".replace("\uf02e", "\uf029") + "\\x",
]


@pytest.mark.parametrize("name", OUTSIDE, ids=range(len(OUTSIDE)))
@pytest.mark.parametrize("dialect", [0x210, 0x311])
def test_no_name_leads_out(server: Server, name: str, dialect: int) -> None:
    """Nor to what is no file; for opening, renaming and linking. Outside is looked at after it."""
    guest = server.guest.begin(dialect)
    guest.open("dir", options=raw.DIRECTORY)
    file = guest.open("file")
    tag = struct.pack("<IHHHHI", 0, 16, 16, 0, 32, 4) + raw.POSIX_TAG + struct.pack("<I", 0o644)
    for contexts in (b"", tag + bytes(4)) if dialect == 0x311 else (b"",):
        for disposition in (raw.OPEN, raw.NEW, raw.OPEN_IF, raw.OVERWRITE_IF):
            body = raw.create(name, disposition=disposition, contexts=contexts)
            answer = guest.ask(raw.CREATE, body)
            if answer.status == raw.SUCCESS:
                assert contexts, "only with the POSIX extensions it may be a name"
                guest.done(raw.CLOSE, raw.close(answer.file))
    before = sorted(os.listdir(server.share))
    for level in (10, 11):
        answer = guest.ask(raw.SET_INFO, raw.set_info(file, level, raw.rename(name, replace=True)))
        assert answer.status in BAD, f"{answer.status:#010x}"
    assert sorted(os.listdir(server.share)) == before
    assert os.listdir(server.share.parent / "outside") == ["canary"]


def test_a_symlink_that_leads_out_is_not_followed(server: Server, guest: Guest) -> None:
    target = os.path.join(server.outside, "canary")
    os.symlink(target, server.share / "out")
    os.symlink(server.outside, server.share / "away")
    for name in ("out", "away\\canary", "away"):
        for disposition in range(6):
            answer = guest.ask(raw.CREATE, raw.create(name, disposition=disposition))
            assert answer.status != raw.SUCCESS, name
    for name in ("away\\new", "away\\x\\y"):
        assert guest.ask(raw.CREATE, raw.create(name)).status != raw.SUCCESS
    file = guest.open("file")
    for level in (10, 11):
        guest.ask(raw.SET_INFO, raw.set_info(file, level, raw.rename("away\\moved")))
    guest.ask(raw.SET_INFO, raw.set_info(file, 10, raw.rename("out", replace=True)))
    assert os.listdir(server.outside) == ["canary"]


def element(tag: int, content: bytes, size: int | None = None) -> bytes:
    """Of a SPNEGO token, with a length of four bytes, which may lie."""
    return (
        bytes([tag, 0x84]) + (len(content) if size is None else size).to_bytes(4, "big") + content
    )


OID = bytes.fromhex("06062b0601050502")


def deep(count: int) -> bytes:
    token = b""
    for _ in range(count):
        token = element(0x30, token)
    return token


BLOBS = {
    "nothing": b"",
    "one byte": b"\x60",
    "ones": b"\xff" * 60_000,
    "no length": b"\x60\x80",
    "long length": b"\x60\x88" + b"\xff" * 8,
    "length lies": element(0x60, OID, 0xFFFFFFFF),
    "deep": element(0x60, OID + deep(9000)),
    "deep inside": element(0x60, OID + element(0xA0, element(0x30, element(0xA2, deep(9000))))),
    "many": element(0x60, OID + element(0xA0, element(0x30, element(0xA1, b"") * 9000))),
    "token of none": element(0x60, OID + element(0xA0, element(0x30, element(0xA2, b"")))),
    "half NTLM": raw.NTLMSSP,
    "unknown NTLM": raw.NTLMSSP + struct.pack("<I", 9) + bytes(60),
    "answer first": raw.NOBODY,
    "fields lie": raw.NTLMSSP + b"\3\0\0\0" + struct.pack("<HHI", 0xFFFF, 0xFFFF, 0xFFFFFFF0) * 6,
    "proof of nothing": raw.NTLMSSP
    + b"\3\0\0\0"
    + struct.pack("<HHI", 0, 0, 64)
    + struct.pack("<HHI", 60_000, 60_000, 68)
    + struct.pack("<HHI", 0, 0, 64) * 4
    + b"\1\2\x08\0"
    + b"\6\0\4\0" * 15_000,
}


@pytest.mark.parametrize("blob", BLOBS.values(), ids=BLOBS.keys())
@pytest.mark.parametrize("secret", [None, "open sesame"])
def test_a_login_that_lies_is_refused(tmp_path: Path, blob: bytes, secret: str | None) -> None:
    with serving(tmp_path, secret=secret) as server:
        guest = server.guest
        for is_second in (False, True):
            guest.negotiate()
            if is_second:
                guest.session = guest.ask(raw.SESSION_SETUP, raw.setup(raw.HELLO)).session
            answer = guest.ask(raw.SESSION_SETUP, raw.setup(blob[:65535]))
            assert answer.status != raw.SUCCESS or secret is None
            guest.session = answer.session
            if answer.status != raw.SUCCESS:
                connecting = guest.ask(raw.TREE_CONNECT, raw.tree_connect("RW"))
                assert connecting.status == raw.SESSION_DELETED
        guest.negotiate()
        guest.log_in(secret)
        server.check()


def negotiation(**fields: int) -> bytes:
    """With contexts that lie."""
    body = bytearray(raw.negotiate(0x311))
    places = {"count": (2, "<H"), "contexts_at": (28, "<I"), "contexts": (32, "<H")}
    for name, value in fields.items():
        at, layout = places[name]
        struct.pack_into(layout, body, at, value)
    return bytes(body)


@pytest.mark.parametrize(
    "body",
    [
        negotiation(count=0),
        negotiation(count=65535),
        negotiation(contexts=65535),
        negotiation(contexts=0),
        negotiation(contexts_at=0),
        negotiation(contexts_at=0xFFFFFFFF),
        negotiation(contexts_at=65),
        raw.negotiate(0x0400),
        raw.negotiate(0x2FF),
        raw.negotiate(),
        raw.negotiate(0x311)[:40],
    ],
    ids=range(11),
)
def test_a_negotiation_that_lies_is_refused(server: Server, body: bytes) -> None:
    answer = server.guest.ask(raw.NEGOTIATE, body)
    assert answer.status in (raw.INVALID_PARAMETER, 0xC00000BB, 0xC05D0000)
    server.guest.begin()


@pytest.mark.parametrize("kind", range(1, 256, 31))
def test_control_codes_that_nobody_knows_are_refused(guest: Guest, kind: int) -> None:
    file = guest.open("file")
    for code in (kind, kind << 8, 0x00090000 | kind << 2, 0x00140000 | kind << 2, 0xFFFFFFFF):
        answer = guest.ask(raw.IOCTL, raw.ioctl(file, code, b"\xff" * 64))
        assert answer.status != raw.PENDING
    guest.echo()

"""What Linux's client does that no documentation of the protocol says."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand_smb import posix
from quicksand_smb.store_types import Stat
from quicksand_smb.wire import filetime

from tests.conftest import wait_for
from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Client

SET_REPARSE, GET_REPARSE = 0x000900A4, 0x000900A8
SYMLINK = 0xA000000C
DIRECTORY, FILE, REPARSE_POINT = 0x1, 0x40, 0x200000
NO_MODE = 0xFFFF
NO_EAS, BAD_NAME = 0xC0000052, 0xC0000033
DENIED, WRITE_PROTECTED = 0xC0000022, 0xC00000A2
SECURITY, OWNER, LIST = 3, 1, 4
ALL, FILE_CLOSED = 18, 0xC0000128


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(c.server(tmp_path)).begin(0x311, posix=True)


def make(client: Client, name: str, mode: int, *, options: int = FILE) -> bytes:
    return client.open(name, disposition=2, options=options, contexts=c.posix_context(mode))


def symlink(target: str, *, relative: bool = True) -> bytes:
    text = target.encode("utf-16-le")
    fields = struct.pack("<HHHHI", 0, len(text), 0, len(text), relative)
    return struct.pack("<IHH", SYMLINK, len(fields) + len(text), 0) + fields + text


@pytest.mark.parametrize("options", [FILE, DIRECTORY])
def test_a_link_is_made_from_a_file_or_a_directory(
    client: Client, tmp_path: Path, options: int
) -> None:
    file = make(client, "link", NO_MODE, options=options | REPARSE_POINT)
    assert client.ask(c.IOCTL, c.ioctl(file, SET_REPARSE, symlink("to"))).status == 0
    assert os.readlink(tmp_path / "link") == "to"


@pytest.mark.parametrize(
    ("target", "sent"), [("/usr/bin/env", "usr/bin/env"), ("//a", "/a"), ("/", ""), ("a", "a")]
)
def test_a_target_that_linux_says_is_absolute_is(
    client: Client, tmp_path: Path, target: str, sent: str
) -> None:
    file = make(client, "link", NO_MODE, options=FILE | REPARSE_POINT)
    data = symlink(sent, relative=not target.startswith("/"))
    assert client.ask(c.IOCTL, c.ioctl(file, SET_REPARSE, data)).status == 0
    assert os.readlink(tmp_path / "link") == target
    client.close(file)
    file = client.open("link", disposition=1, options=REPARSE_POINT, contexts=c.posix_context(0))
    told = client.ask(c.IOCTL, c.ioctl(file, GET_REPARSE))
    assert read_link(told.raw[struct.unpack_from("<I", told.body, 32)[0] :]) == (
        target,
        not target.startswith("/"),
    )


def test_where_a_link_leads_is_told_as_it_is(client: Client, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/a:b|c*?\\d ")
    looked = c.create("link", disposition=1, access=0x80, contexts=c.posix_context(NO_MODE))
    answer = client.ask(c.CREATE, looked)
    assert answer.status == 0x8000002D
    # [MS-SMB2] 2.2.2.2.1, behind the error and its one context
    assert read_link(answer.body[8 + 8 + 8 :]) == ("/a:b|c*?\\d ", False)


def read_link(record: bytes) -> tuple[str, bool]:
    """The target in a link's record, and whether it is relative."""
    tag, _, _, at, length, _, _, flags = struct.unpack_from("<IHHHHHHI", record)
    assert tag == SYMLINK
    return record[20 + at : 20 + at + length].decode("utf-16-le"), bool(flags & 1)


def test_what_was_made_a_link_or_a_pipe_is_told_as_that(client: Client, tmp_path: Path) -> None:
    pipe = struct.pack("<IHH8s", 0x80000014, 8, 0, b"FIFO")
    for name, data, kind in (("link", symlink("to"), 2), ("pipe", pipe, 5)):
        file = make(client, name, NO_MODE, options=FILE | REPARSE_POINT)
        assert client.ask(c.IOCTL, c.ioctl(file, SET_REPARSE, data)).status == 0
        told = c.output(client.ask(c.QUERY, c.query(file, 1, posix.LEVEL)))
        found = (tmp_path / name).lstat()
        inode, links, mode = (
            *struct.unpack_from("<Q", told, 52),
            *struct.unpack_from("<I4xI", told, 68),
        )
        assert (inode, links, mode) == (found.st_ino, 1, kind << 12 | stat.S_IMODE(found.st_mode))
        client.close(file)
        assert (tmp_path / name).lstat().st_ino == found.st_ino


def test_owners_and_times_of_a_link_are_the_links_own(client: Client, tmp_path: Path) -> None:
    (tmp_path / "to").touch()
    (tmp_path / "link").symlink_to("to")
    (tmp_path / "to").chmod(0o600)
    os.utime(tmp_path / "to", ns=(10**18, 10**18))
    for access in (0x20000, 0xC0000):
        client.close(
            client.open("link", disposition=1, access=access, contexts=c.posix_context(NO_MODE))
        )
    file = client.open("link", disposition=1, access=0x100, contexts=c.posix_context(NO_MODE))
    when = 130_000_000_000_000_000
    times = struct.pack("<QQQQII", 0, when, when, 0, 0, 0)
    assert client.ask(c.SET, c.set_info(file, 4, times)).status == 0
    assert (tmp_path / "to").stat().st_mtime_ns == 10**18
    assert (tmp_path / "link").lstat().st_mtime_ns != (tmp_path / "to").stat().st_mtime_ns
    looked = c.create("link", disposition=1, access=0x80, contexts=c.posix_context(NO_MODE))
    assert client.ask(c.CREATE, looked).status == 0x8000002D


def test_a_full_directory_becomes_no_link(client: Client, tmp_path: Path) -> None:
    file = make(client, "full", NO_MODE, options=DIRECTORY | REPARSE_POINT)
    (tmp_path / "full" / "inside").touch()
    assert client.ask(c.IOCTL, c.ioctl(file, SET_REPARSE, symlink("to"))).status != 0
    assert (tmp_path / "full" / "inside").exists()


def test_a_pipe_without_a_mode_is_not_everybodys(client: Client, tmp_path: Path) -> None:
    file = make(client, "pipe", NO_MODE, options=FILE | REPARSE_POINT)
    data = struct.pack("<IHH8s", 0x80000014, 8, 0, b"FIFO")
    assert client.ask(c.IOCTL, c.ioctl(file, SET_REPARSE, data)).status == 0
    found = (tmp_path / "pipe").lstat().st_mode
    assert stat.S_ISFIFO(found)
    assert stat.S_IMODE(found) & 0o133 == 0


def test_the_mode_of_a_new_file_is_told_as_an_entry(client: Client) -> None:
    file = make(client, "f", 0o751)
    descriptor = c.output(client.ask(c.QUERY, security_query(file, LIST)))
    at = struct.unpack_from("<I", descriptor, 16)[0]
    sid = descriptor[at + 8 + 8 :][:20]
    assert sid == posix.sid(5, 88, 3, 0o751)


def security_query(file: bytes, which: int) -> bytes:
    body = bytearray(c.query(file, SECURITY, 0))
    struct.pack_into("<I", body, 16, which)
    return bytes(body)


def test_a_file_without_attributes_says_so(client: Client, tmp_path: Path) -> None:
    file = make(client, "f", 0o644)
    assert client.ask(c.QUERY, c.query(file, 1, 15)).status == NO_EAS


def test_chown_is_agreed_to_and_does_nothing(client: Client, tmp_path: Path) -> None:
    file = make(client, "f", 0o644)
    before = (tmp_path / "f").stat()
    owner = posix.sid(5, 88, 1, 12345)
    descriptor = struct.pack("<BBHIIII", 1, 0, 0x8000, 20, 0, 0, 0) + owner
    body = bytearray(c.set_info(file, 0, descriptor))
    body[2] = SECURITY
    struct.pack_into("<I", body, 12, OWNER)
    assert client.ask(c.SET, bytes(body)).status == 0
    assert (tmp_path / "f").stat().st_uid == before.st_uid
    again = client.open("f", disposition=1, contexts=c.posix_context(0))
    assert client.ask(c.WRITE, c.write(again, 0, b"x")).status == 0


@pytest.mark.parametrize(
    ("wire", "host"),
    [
        ("a\uf022b", "a:b"),
        ("a\uf025", "a?"),
        ("a:b", "a:b"),
        ("a\\b", "a\\b"),
        ("end\uf028", "end "),
    ],
    ids=ascii,
)
def test_characters_come_in_the_private_range_with_posix_too(
    client: Client, tmp_path: Path, wire: str, host: str
) -> None:
    make(client, wire, 0o644)
    assert os.listdir(tmp_path) == [host]


def test_a_byte_that_the_client_could_not_say_is_refused(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a?").touch()
    answer = client.ask(c.CREATE, c.create("a?", disposition=3, contexts=c.posix_context(0o644)))
    assert answer.status == BAD_NAME
    file = make(client, "link", NO_MODE, options=FILE | REPARSE_POINT)
    assert client.ask(c.IOCTL, c.ioctl(file, SET_REPARSE, symlink("b?"))).status == BAD_NAME


def test_what_is_the_servers_own_is_roots_in_the_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Stat()
    found.uid, found.gid = 1000, 1000
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 1000)
    assert posix.seen_owners(found) == posix.owner_sid(0) + posix.group_sid(0)
    monkeypatch.setattr(os, "getuid", lambda: 1001)
    assert posix.seen_owners(found) == posix.owner_sid(1000) + posix.group_sid(1000)


DAC_OVERRIDE, DAC_READ_SEARCH = 1 << 1, 1 << 2


@contextlib.contextmanager
def heeding_modes() -> Iterator[None]:
    """Without the capabilities by which root may do what a file's mode forbids (capset(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    head = struct.pack("<Ii", 0x20080522, 0)
    held = ctypes.create_string_buffer(24)
    assert libc.capget(head, held) == 0
    effective, rest = struct.unpack("<I20s", held.raw)
    fewer = struct.pack("<I20s", effective & ~(DAC_OVERRIDE | DAC_READ_SEARCH), rest)
    assert libc.capset(head, fewer) == 0
    yield
    assert libc.capset(head, held.raw) == 0


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Path]:
    """ "ours", and "fixed", in which the server may not change names, as for a plain user."""
    for name in ("ours", "fixed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "fixed").chmod(0o555)
    with heeding_modes():
        yield tmp_path
    (tmp_path / "fixed").chmod(0o755)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("fixed/file", "ours/new", DENIED),
        ("fixed/file", "ours/file", WRITE_PROTECTED),
        ("ours/file", "fixed/new", DENIED),
        ("ours/file", "fixed/file", DENIED),
    ],
)
def test_a_denied_rename_says_so_only_where_linux_does_no_harm(
    plain: Path, client: Client, old: str, new: str, told: int
) -> None:
    """Told that it is denied, it would delete the target and rename again."""
    file = client.open(old, disposition=1, access=0x10000, contexts=c.posix_context(NO_MODE))
    answer = client.ask(c.SET, c.set_info(file, 10, c.rename(new, replace=True)))
    assert answer.status == told
    assert (plain / "ours" / "file").read_text() == "ours"
    assert (plain / "fixed" / "file").read_text() == "fixed"
    client.close(file)
    if told == DENIED and (plain / new).exists():
        removing = c.create(
            new, disposition=1, access=0x10000, options=0x1000, contexts=c.posix_context(NO_MODE)
        )
        opened = client.ask(c.CREATE, removing)
        assert client.ask(c.CLOSE, c.close(opened.body[64:80])).status == DENIED


def test_what_is_to_be_renamed_is_not_denied_where_it_cannot_be_reached(
    plain: Path, client: Client
) -> None:
    (plain / "fixed").chmod(0)
    for options, told in ((0, WRITE_PROTECTED), (0x1000, DENIED)):
        wanted = c.create(
            "fixed/file", disposition=1, access=0x10000, options=options,
            contexts=c.posix_context(NO_MODE),
        )  # fmt: skip
        assert client.ask(c.CREATE, wanted).status == told


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ([], 0),
        ([ALL], FILE_CLOSED),
        ([ALL, posix.LEVEL], 0),
        ([posix.LEVEL, ALL], FILE_CLOSED),
    ],
)
def test_who_was_told_of_a_file_without_its_mode_asks_again_when_he_has_closed_it(
    client: Client, asked: list[int], status: int
) -> None:
    """Linux asks so at a seek to the end; after a close that is answered it believes what it has
    for a second."""
    file = make(client, "f", 0o600)
    for level in asked:
        assert client.ask(c.QUERY, c.query(file, 1, level)).status == 0
    with_attributes = struct.pack("<HHI", 24, 1, 0) + file
    assert client.ask(c.CLOSE, with_attributes).status == status
    assert client.ask(c.QUERY, c.query(file, 1, ALL)).status == FILE_CLOSED, "it is closed"
    again = client.open("f", disposition=1, contexts=c.posix_context(0))
    assert client.ask(c.CLOSE, struct.pack("<HHI", 24, 1, 0) + again).status == 0


def test_what_linux_takes_in_a_listing_for_the_time_of_change_is_that(
    client: Client, tmp_path: Path
) -> None:
    """It reads the first time of an entry, which is that of birth."""
    (tmp_path / "f").touch()
    born = (tmp_path / "f").stat().st_ctime_ns

    def is_older_than_its_change() -> bool:
        os.utime(tmp_path / "f", (1, 1))
        return (tmp_path / "f").stat().st_ctime_ns > born

    wait_for(is_older_than_its_change, what="a later time of change")
    root = client.open("", disposition=1, access=0x81, contexts=c.posix_context(0))
    entry = c.output(client.ask(c.FIND, c.find(root, "f", level=posix.LEVEL)))
    first, _, written, changed = struct.unpack_from("<4Q", entry, 8)
    assert first == changed == filetime((tmp_path / "f").stat().st_ctime_ns)
    assert written == filetime(10**9)


def test_an_empty_attribute_is_made_or_removes_the_one_that_is_there(
    client: Client, tmp_path: Path
) -> None:
    """The message is the same. Before it removes one, Linux asks whether it is there."""
    file = make(client, "f", 0o644)

    def set_attribute(value: bytes) -> None:
        pair = struct.pack("<IBBH", 0, 0, 4, len(value)) + b"name\0" + value
        assert client.ask(c.SET, c.set_info(file, 15, pair)).status == 0

    set_attribute(b"")
    assert os.getxattr(tmp_path / "f", "user.name") == b""
    set_attribute(b"")
    assert os.listxattr(tmp_path / "f") == []
    set_attribute(b"value")
    set_attribute(b"")
    assert os.listxattr(tmp_path / "f") == []

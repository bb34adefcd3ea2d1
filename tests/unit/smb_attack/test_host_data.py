"""What the host has in a share, or does to it meanwhile, and what a guest makes of that: one bad
file fails one request."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from quicksand_smb import fscc
from quicksand_smb.server_state import MOST_LOGGED_ERRORS

from tests.unit.smb_attack import raw
from tests.unit.smb_attack.guest import Guest, Server
from tests.unit.smb_protocol import client as in_process

REPARSE = 0x200000
LEVELS = (4, 5, 6, 7, 8, 14, 15, 16, 17, 18, 21, 22, 28, 34, 35, 48, 59, 100)
VOLUME_LEVELS = (1, 3, 4, 5, 6, 7, 8, 11, 100)
ENTRY_LEVELS = (1, 2, 3, 12, 37, 38, 100)
LONG = b"\xef\x80\xa2" * 85
"""The longest name, all of characters that go by their bytes."""


def put_attribute(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, f"user.{name}", value)
    except OSError as error:
        pytest.skip(f"this file system keeps no such attribute: {error.strerror}")


def ask_everything(guest: Guest, name: str) -> None:
    """All that can be asked of a file, and be answered."""
    for options in (REPARSE, 0):
        answer = guest.ask(raw.CREATE, raw.create(name, disposition=raw.OPEN, options=options))
        if answer.status != raw.SUCCESS:
            continue
        for level in LEVELS:
            for most in (65536, 100, 0):
                guest.ask(raw.QUERY_INFO, raw.query(answer.file, 1, level, most=most))
        for level in VOLUME_LEVELS:
            guest.ask(raw.QUERY_INFO, raw.query(answer.file, 2, level))
        guest.ask(raw.QUERY_INFO, raw.query(answer.file, 3, 0))
        for code in (0x000900A8, 0x000900C0, 0x0009003C, 0x00140078):
            guest.ask(raw.IOCTL, raw.ioctl(answer.file, code, most=65536))
        guest.done(raw.CLOSE, raw.close(answer.file))


def test_whatever_the_host_has_is_answered(server: Server) -> None:
    share = server.share
    (share / "plain").write_text("x")
    (share / "old").touch()
    os.utime(share / "old", ns=(-(1 << 62), -(1 << 62)))
    (share / "late").touch()
    os.utime(share / "late", ns=((1 << 63) - 1, (1 << 63) - 1))
    os.mkfifo(share / "pipe")
    with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(share):
        listening.bind("socket")
    for number, target in enumerate((b"/" + b"\1" * 4000, b"\xff" * 4000, LONG * 16, b"a/" * 2000)):
        with contextlib.suppress(OSError):  # some file systems take shorter ones only
            os.symlink(target, bytes(share / f"link{number}"))
    (share / "large").touch()
    with contextlib.suppress(OSError):
        os.truncate(share / "large", (1 << 44) - 4096)
    (Path(os.fsdecode(bytes(share) + b"/" + LONG))).touch()
    (Path(os.fsdecode(bytes(share) + b"/bytes\xff\xfe"))).touch()
    for name in ("DosStream.a:$DATA", "DosStream.:$DATA", "DosStream.\u202ea:$DATA", "\u1234" * 80):
        with contextlib.suppress(OSError):
            os.setxattr(share / "plain", f"user.{name}", b"")
    if os.getuid() == 0:
        os.chown(share / "old", (1 << 32) - 2, (1 << 32) - 2)
        os.mknod(share / "device", 0o020666, os.makedev(4095, 1 << 19))
    names = sorted(os.listdir(share))
    for guest in (server.guest.begin(), server.guest.begin(0x311)):
        for name in names:
            ask_everything(guest, os.fsencode(name).decode("utf-8", "replace"))
        directory = guest.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
        for level in ENTRY_LEVELS:
            body = raw.find(directory, "*", level=level, flags=1)
            guest.ask(raw.QUERY_DIRECTORY, body)
        guest.echo()
    assert not server.has_ended()


def test_an_attribute_that_cannot_be_told_hides_no_other(server: Server, guest: Guest) -> None:
    """Linux lets an attribute have 65,536 bytes, and the protocol's length has 16 bits."""
    (server.share / "file").touch()
    put_attribute(server.share / "file", "mine", b"value")
    with contextlib.suppress(OSError):  # ext4 has no room for it; another test stands in
        os.setxattr(server.share / "file", "user.large", bytes(1 << 16))
    file = guest.open("file")
    listed = guest.done(raw.QUERY_INFO, raw.query(file, 1, 15, most=65536)).output
    assert b"mine\0value" in listed
    assert b"large" not in listed
    guest.echo()


def test_an_attribute_of_one_byte_too_many_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, on any file system."""
    (tmp_path / "file").touch()
    put_attribute(tmp_path / "file", "large", b"x")
    put_attribute(tmp_path / "file", "mine", b"value")
    read = os.getxattr

    def larger(path: object, name: object) -> bytes:
        return bytes(1 << 16) if name == b"user.large" else read(path, name)  # type: ignore[arg-type]

    client = in_process.Client(in_process.server(tmp_path))
    client.begin()
    file = client.open("file")
    monkeypatch.setattr(os, "getxattr", larger)
    answer = client.ask(in_process.QUERY, raw.query(file, 1, 15, most=65536))
    assert answer.status == in_process.SUCCESS
    assert b"mine\0value" in answer.raw and b"large" not in answer.raw


def test_what_nobody_has_thought_of_fails_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    client = in_process.Client(in_process.server(tmp_path))
    client.begin()
    file = client.open("file")

    def broken(_: fscc.View) -> bytes:
        return struct.pack("<H", 1 << 16)

    monkeypatch.setitem(fscc.FILE_LEVELS, 18, fscc.Level(broken, 8))
    for _ in range(2 * MOST_LOGGED_ERRORS):
        answer = client.ask(in_process.QUERY, raw.query(file, 1, 18))
        assert answer.status == 0xC00000E9
    assert capfd.readouterr().err.count("struct.error") == MOST_LOGGED_ERRORS
    assert client.ask(in_process.QUERY, raw.query(file, 1, 5)).status == in_process.SUCCESS


def write(guest: Guest, file: bytes) -> None:
    guest.done(raw.WRITE, raw.write(file, 0, b"evil"))


def cut(guest: Guest, file: bytes) -> None:
    guest.done(raw.SET_INFO, raw.set_info(file, 20, struct.pack("<Q", 2)))


def copy(guest: Guest, file: bytes) -> None:
    source = guest.open("source")
    data = source[:8] + bytes(16) + struct.pack("<IIQQII", 1, 0, 0, 0, 4, 0)
    guest.done(raw.IOCTL, raw.ioctl(file, 0x001480F2, data))


@pytest.mark.parametrize("change", [write, cut, copy])
def test_a_set_id_bit_ends_with_the_first_change_whenever_it_was_set(
    server: Server, guest: Guest, change: Callable[[Guest, bytes], None]
) -> None:
    """The host sets it while the guest has the file open."""
    (server.share / "source").write_text("evil")
    program = server.share / "program"
    program.write_text("mine")
    file = guest.open("program")
    for mode in (0o4755, 0o2755, 0o6755):
        program.chmod(mode)
        change(guest, file)
        assert program.stat().st_mode & 0o7777 == 0o755


def test_the_server_keeps_of_roots_powers_what_files_need(server: Server) -> None:
    server.guest.begin()
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    powers = [int(line.split()[1], 16) for line in status.splitlines() if line[:6] in CAPABILITIES]
    assert len(powers) == 2
    assert not any(one & ~0b1110 for one in powers)


CAPABILITIES = ("CapPrm", "CapEff")


def test_a_stream_is_no_way_to_replace_its_file(server: Server, guest: Guest) -> None:
    (server.share / "file").write_text("not empty")
    answer = guest.ask(raw.CREATE, raw.create("file:stream"))
    if answer.status != raw.SUCCESS:
        pytest.skip("this file system keeps no attributes")
    text = "elsewhere".encode("utf-16-le")
    link = struct.pack("<HHHHI", 0, len(text), 0, len(text), 1) + text
    reparse = struct.pack("<IHH", 0xA000000C, len(link), 0) + link
    assert guest.ask(raw.IOCTL, raw.ioctl(answer.file, 0x000900A4, reparse)).status != raw.SUCCESS
    duplicate = answer.file + struct.pack("<QQQ", 0, 0, 4096)
    whole = guest.open("file")
    for target in (answer.file, whole):
        guest.ask(raw.IOCTL, raw.ioctl(target, 0x00098344, duplicate))
    assert (server.share / "file").read_text() == "not empty"
    assert not (server.share / "file").is_symlink()

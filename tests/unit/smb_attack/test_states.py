"""Requests at the wrong time, with the wrong session, tree or file; and who may write at all."""

from __future__ import annotations

import itertools
import json
import os
import signal
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.unit.smb_attack import raw
from tests.unit.smb_attack.guest import Guest, Server, serving

CLOSED = {raw.FILE_CLOSED, raw.NETWORK_NAME_DELETED, raw.SESSION_DELETED}
REFUSED = {raw.ACCESS_DENIED, raw.WRITE_PROTECTED}


def uses(file: bytes) -> dict[str, tuple[int, bytes]]:
    """Every request about an open file."""
    return {
        "read": (raw.READ, raw.read(file, 0, 1)),
        "write": (raw.WRITE, raw.write(file, 0, b"x")),
        "flush": (raw.FLUSH, raw.flush(file)),
        "lock": (raw.LOCK, raw.lock(file, (0, 1, 0x12))),
        "query": (raw.QUERY_INFO, raw.query(file, 1, 5)),
        "space": (raw.QUERY_INFO, raw.query(file, 2, 3)),
        "size": (raw.SET_INFO, raw.set_info(file, 20, bytes(8))),
        "delete": (raw.SET_INFO, raw.set_info(file, 13, b"\1")),
        "rename": (raw.SET_INFO, raw.set_info(file, 10, raw.rename("other"))),
        "list": (raw.QUERY_DIRECTORY, raw.find(file, "*")),
        "watch": (raw.CHANGE_NOTIFY, raw.notify(file)),
        "zero": (raw.IOCTL, raw.ioctl(file, 0x000980C8, bytes(16))),
        "copy": (raw.IOCTL, raw.ioctl(file, 0x001480F2, file[:8] + bytes(24))),
        "close": (raw.CLOSE, raw.close(file)),
    }


def must_be_closed(guest: Guest, file: bytes) -> None:
    for name, (command, body) in uses(file).items():
        status = guest.ask(command, body).status
        assert status in CLOSED, f"{name}: {status:#010x}"


@pytest.mark.parametrize("command", range(1, 20))
@pytest.mark.parametrize("resynchronise", [False, True])
def test_nothing_is_done_before_negotiate(
    tmp_path: Path, command: int, resynchronise: bool
) -> None:
    with serving(tmp_path, resynchronise=resynchronise) as server:
        body = dict(uses(bytes(16)).values()).get(command)
        server.guest.send(server.guest.message(command, body or raw.create("made")))
        if not resynchronise:
            assert server.guest.is_cut_off()
        elif command != raw.CANCEL:
            assert server.guest.hear()[0].status == raw.SESSION_DELETED
        assert not os.listdir(server.share)


@pytest.mark.parametrize("session", [0, 1, (1 << 64) - 1])
def test_nothing_is_done_before_login(server: Server, session: int) -> None:
    guest = server.guest
    guest.negotiate()
    guest.session = session
    for command in range(2, 19):
        if command in (raw.CANCEL, raw.ECHO):
            continue
        body = dict(uses(bytes(16)).values()).get(command)
        status = guest.ask(command, body or raw.create("made")).status
        assert status == raw.SESSION_DELETED, f"{command}: {status:#010x}"
    assert not os.listdir(server.share)
    guest.echo()


def test_half_a_login_gives_no_access(server: Server) -> None:
    guest = server.guest
    guest.negotiate()
    guest.session = guest.ask(raw.SESSION_SETUP, raw.setup(raw.HELLO)).session
    assert guest.ask(raw.TREE_CONNECT, raw.tree_connect("RW")).status == raw.SESSION_DELETED


def test_a_second_negotiate_ends_a_stream_that_has_an_end(tmp_path: Path) -> None:
    with serving(tmp_path, resynchronise=False) as server:
        guest = server.guest.begin()
        guest.send(guest.message(raw.NEGOTIATE, raw.negotiate(0x210)))
        assert guest.is_cut_off()


def test_after_tree_disconnect_its_files_are_closed(server: Server, guest: Guest) -> None:
    file = guest.open("file")
    guest.done(raw.TREE_DISCONNECT, raw.NOTHING)
    must_be_closed(guest, file)
    guest.connect()
    must_be_closed(guest, file)
    assert (server.share / "file").read_bytes() == b""


def test_after_logoff_everything_is_closed(server: Server, guest: Guest) -> None:
    file = guest.open("file")
    guest.done(raw.LOGOFF, raw.NOTHING)
    must_be_closed(guest, file)
    guest.log_in()
    guest.connect()
    must_be_closed(guest, file)


def test_a_chain_that_disconnects_its_tree_goes_no_further(server: Server, guest: Guest) -> None:
    file = guest.open("file")
    frame = raw.chain(
        guest.message(raw.TREE_DISCONNECT, raw.NOTHING),
        guest.message(raw.WRITE, raw.write(file, 0, b"written"), flags=raw.RELATED),
    )
    guest.send(frame)
    assert [one.status for one in guest.hear()][1] in CLOSED
    assert (server.share / "file").read_bytes() == b""


def test_a_file_is_its_trees_alone(server: Server, guest: Guest) -> None:
    file = guest.open("file")
    writable = guest.tree
    fixed = guest.connect("RO")
    must_be_closed(guest, file)
    theirs = guest.open("file", access=raw.READ_DATA, disposition=raw.OPEN)
    guest.tree = writable
    must_be_closed(guest, theirs)
    for tree in (0, 3, 0xFFFFFFFF):
        guest.tree = tree
        assert guest.ask(raw.READ, raw.read(file, 0, 1)).status in CLOSED
    guest.tree = fixed
    assert guest.done(raw.READ, raw.read(theirs, 0, 9)).data == b"fixed"


def test_a_file_is_its_sessions_alone(server: Server, guest: Guest) -> None:
    file = guest.open("file")
    guest.log_in()
    guest.connect()
    must_be_closed(guest, file)


def test_a_share_that_is_only_read_stays_as_it_is(server: Server) -> None:
    """What is there is compared by the fixture: `Server.check`."""
    guest = server.guest.begin(0x311, share="RO")
    for disposition in range(6):
        for access in (raw.ALL, raw.READ_DATA, raw.WRITE_DATA, raw.DELETE, 0x02000000, 0x10000000):
            for options in (0, raw.DIRECTORY, raw.DELETE_ON_CLOSE):
                for name in ("file", "new", ""):
                    body = raw.create(name, access=access, disposition=disposition, options=options)
                    answer = guest.ask(raw.CREATE, body)
                    if answer.status == raw.SUCCESS:
                        change(guest, answer.file)


def change(guest: Guest, file: bytes) -> None:
    now = struct.pack("<QQQQII", 1 << 60, 1 << 60, 1 << 60, 1 << 60, 1, 0)
    attribute = struct.pack("<IBBH", 0, 0, 1, 1) + b"a\0v"
    for command, body in (
        (raw.WRITE, raw.write(file, 0, b"changed")),
        *((raw.SET_INFO, raw.set_info(file, 4, now)) for _ in range(1)),
        (raw.SET_INFO, raw.set_info(file, 10, raw.rename("moved"))),
        (raw.SET_INFO, raw.set_info(file, 11, raw.rename("linked"))),
        (raw.SET_INFO, raw.set_info(file, 13, b"\1")),
        (raw.SET_INFO, raw.set_info(file, 64, b"\3\0\0\0")),
        (raw.SET_INFO, raw.set_info(file, 15, attribute)),
        (raw.SET_INFO, raw.set_info(file, 19, bytes(8))),
        (raw.SET_INFO, raw.set_info(file, 20, bytes(8))),
        (raw.SET_INFO, raw.set_info(file, 0, bytes(20), kind=3)),
        (raw.IOCTL, raw.ioctl(file, 0x000980C8, struct.pack("<QQ", 0, 9))),
        (raw.IOCTL, raw.ioctl(file, 0x000900C4, b"\1")),
        (raw.IOCTL, raw.ioctl(file, 0x000900A4, b"\x24\0\0\x80" + bytes(4))),
        (raw.IOCTL, raw.ioctl(file, 0x001480F2, copy_chunks(file, (0, 1, 3)))),
        (raw.IOCTL, raw.ioctl(file, 0x00098344, file + struct.pack("<QQQ", 0, 1, 3))),
        (raw.CLOSE, raw.close(file)),
    ):
        answer = guest.ask(command, body)
        assert command == raw.CLOSE or answer.status != raw.SUCCESS, (command, body)


def copy_chunks(file: bytes, *chunks: tuple[int, int, int]) -> bytes:
    """[MS-SMB2] 2.2.31.1; of this server the key is the file's number."""
    listed = b"".join(struct.pack("<QQII", *one, 0) for one in chunks)
    return file[:8] + bytes(16) + struct.pack("<II", len(chunks), 0) + listed


def test_copying_from_another_tree_or_session_is_refused(server: Server, guest: Guest) -> None:
    (server.share / "source").write_bytes(b"source")
    source = guest.open("source")
    writable = guest.tree
    guest.connect("RO")
    fixed = guest.open("file", access=raw.READ_DATA, disposition=raw.OPEN)
    guest.tree = writable
    target = guest.open("target")
    copy = raw.ioctl(target, 0x001480F2, copy_chunks(fixed, (0, 0, 5)))
    assert guest.ask(raw.IOCTL, copy).status not in (raw.SUCCESS, raw.PENDING)
    guest.log_in()
    guest.connect()
    mine = guest.open("mine")
    copy = raw.ioctl(mine, 0x001480F2, copy_chunks(source, (0, 0, 5)))
    assert guest.ask(raw.IOCTL, copy).status not in (raw.SUCCESS, raw.PENDING)
    assert (server.share / "mine").read_bytes() == b""


def test_a_share_that_is_taken_away_is_gone_at_once(server: Server, guest: Guest) -> None:
    file = guest.open("file")
    config = server.share.parent / "config.json"
    said = json.loads(config.read_text())
    del said["shares"]["RW"]
    config.write_text(json.dumps(said))
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(
        lambda: guest.ask(raw.CREATE, raw.create("other")).status == raw.NETWORK_NAME_DELETED
    )
    must_be_closed(guest, file)
    guest.connect("RO")


# Sessions

SECRET: dict[str, Any] = {"secret": "open sesame"}


def test_numbers_of_sessions_cannot_be_guessed(server: Server) -> None:
    guest = server.guest
    guest.negotiate()
    seen = set()
    for _ in range(40):
        guest.log_in()
        seen.add(guest.session)
    assert len(seen) == 40
    assert all(one not in (0, (1 << 64) - 1) for one in seen)
    # Forty numbers of 64 bits: all bits vary, and no two are near each other.
    ordered = sorted(seen)
    assert min(b - a for a, b in itertools.pairwise(ordered)) > 1 << 32
    ones = 0
    for one in seen:
        ones |= one ^ ordered[0]
    assert ones == (1 << 64) - 1


def test_sessions_come_and_go_without_an_end(guest: Guest) -> None:
    for _ in range(200):
        guest.done(raw.LOGOFF, raw.NOTHING)
        guest.log_in()
        guest.connect()


@pytest.mark.parametrize("dialect", [0x210, 0x311])
@pytest.mark.parametrize("mode", [1, 2, 3])
def test_who_must_sign_is_heard_only_signed(tmp_path: Path, dialect: int, mode: int) -> None:
    with serving(tmp_path, **SECRET) as server:
        guest = server.guest
        guest.negotiate(dialect, mode=mode)
        guest.log_in("open sesame", mode=mode)
        if dialect == 0x311:
            guest.key = b""  # its keys need the whole handshake, which the next test has
        else:
            guest.connect()
        guest.key, key = b"", guest.key
        status = guest.ask(raw.TREE_CONNECT, raw.tree_connect("RW")).status
        assert status == (raw.SESSION_DELETED if mode & 2 else raw.SUCCESS)
        guest.key = bytes(16)
        assert guest.ask(raw.TREE_CONNECT, raw.tree_connect("RW")).status == raw.SESSION_DELETED
        if key:
            guest.key = key
            guest.connect()
        server.check()


def test_without_the_secret_nobody_gets_in(tmp_path: Path) -> None:
    with serving(tmp_path, **SECRET) as server:
        guest = server.guest
        for token in (raw.NOBODY, None, raw.HELLO, raw.NOBODY[:20]):
            guest.negotiate()
            first = guest.ask(raw.SESSION_SETUP, raw.setup(raw.HELLO))
            guest.session = first.session
            proof = token or raw.prove(first.raw, "open sesamy")[0]
            answer = guest.ask(raw.SESSION_SETUP, raw.setup(proof))
            assert answer.status != raw.SUCCESS
            connecting = guest.ask(raw.TREE_CONNECT, raw.tree_connect("RW"))
            assert connecting.status in (raw.SESSION_DELETED, raw.ACCESS_DENIED)
        server.check()


def test_another_guests_session_cannot_be_ended_by_its_number_alone(tmp_path: Path) -> None:
    """PreviousSessionId is heard only from who has logged in."""
    with serving(tmp_path, **SECRET) as server:
        guest = server.guest
        guest.negotiate(0x210)
        guest.log_in("open sesame")
        guest.connect()
        victim, key, tree = guest.session, guest.key, guest.tree
        guest.session, guest.key = 0, b""
        body = raw.setup(raw.NOBODY, previous=victim)
        assert guest.ask(raw.SESSION_SETUP, body).status != raw.SUCCESS
        guest.session, guest.key, guest.tree = victim, key, tree
        guest.open("still there")
        server.check()

"""Oplocks and leases: what clients may keep, and how it is asked back ([MS-SMB2] 3.3.4.7)."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from quicksand_smb import kernel

from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Answer, Client

READ, HANDLE, WRITE = 1, 2, 4
ALL = READ | HANDLE | WRITE
BATCH, EXCLUSIVE, LEVEL_II, LEASE = 9, 8, 1, 0xFF
BREAK = 18
PENDING, VIOLATION, INVALID = 0x103, 0xC0000043, 0xC000000D
KEY, OTHER = b"a" * 16, b"b" * 16
OVERWRITE = 4


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Client, Client]:
    server = c.server(tmp_path, leases="all")
    one, two = Client(server), Client(server)
    two.guid = b"another client--"
    return one.begin(0x210), two.begin(0x210)


def state_of(answer: Answer) -> int:
    """The lease that a CREATE response tells."""
    assert answer.status == 0, answer.name
    assert answer.body[2] == LEASE
    at = answer.raw.index(b"RqLs") + 8
    return int(struct.unpack_from("<I", answer.raw, at + 16)[0])


def open_lease(client: Client, key: bytes, state: int, *, name: str = "a") -> Answer:
    request = c.create(name, oplock=LEASE, contexts=c.lease(key, state))
    return client.ask(c.CREATE, request)


def break_of(answer: Answer) -> tuple[int, int, bool]:
    """What was held, what is left, and whether an answer is wanted."""
    assert answer.command == BREAK
    assert answer.message_id == (1 << 64) - 1
    flags = struct.unpack_from("<I", answer.body, 4)[0]
    now, then = struct.unpack_from("<II", answer.body, 24)
    return now, then, bool(flags)


def answer_lease(client: Client, key: bytes, state: int) -> list[Answer]:
    body = struct.pack("<HHI16sIQ", 36, 0, 0, key, state, 0)
    return client.frame(client.message(BREAK, body))


@pytest.mark.parametrize(
    ("wanted", "given"), [(0, 0), (READ, READ), (HANDLE, 0), (WRITE, 0), (READ | WRITE, 5), (7, 7)]
)
def test_who_is_alone_gets_what_makes_sense(
    pair: tuple[Client, Client], wanted: int, given: int
) -> None:
    assert state_of(open_lease(pair[0], KEY, wanted)) == given


def test_nothing_is_given_where_the_configuration_says_so(tmp_path: Path) -> None:
    client = Client(c.server(tmp_path)).begin(0x210)
    assert open_lease(client, KEY, ALL).body[2] == 0
    assert client.ask(c.CREATE, c.create("b", oplock=BATCH)).body[2] == 0


def test_an_open_waits_until_what_was_written_is_given_back(pair: tuple[Client, Client]) -> None:
    one, two = pair
    open_lease(one, KEY, ALL)
    interim = open_lease(two, OTHER, ALL)
    assert interim.status == PENDING
    assert [break_of(told) for told in one.hear()] == [(ALL, READ | HANDLE, True)]
    assert answer_lease(one, KEY, READ | HANDLE)[0].status == 0
    (late,) = two.hear()
    assert state_of(late) == READ | HANDLE


def test_the_same_key_disturbs_nobody(pair: tuple[Client, Client]) -> None:
    one, _ = pair
    open_lease(one, KEY, ALL)
    assert state_of(open_lease(one, KEY, READ)) == ALL
    assert not one.hear()


def test_a_key_belongs_to_one_file(pair: tuple[Client, Client]) -> None:
    one, _ = pair
    open_lease(one, KEY, READ)
    assert open_lease(one, KEY, READ, name="b").status == INVALID


def test_who_only_looks_disturbs_nobody(pair: tuple[Client, Client]) -> None:
    one, two = pair
    open_lease(one, KEY, ALL)
    assert two.ask(c.CREATE, c.create("a", access=0x80)).status == 0
    assert not one.hear()


def test_a_write_takes_from_others_what_they_have_read(pair: tuple[Client, Client]) -> None:
    one, two = pair
    open_lease(one, KEY, READ)
    file = two.open("a")
    two.ask(c.WRITE, c.write(file, 0, b"new"))
    assert [break_of(told) for told in one.hear()] == [(READ, 0, False)]


def test_a_file_kept_open_for_nobody_is_closed_for_who_cannot_share(
    pair: tuple[Client, Client],
) -> None:
    one, two = pair
    body = c.create("a", sharing=0, oplock=LEASE, contexts=c.lease(KEY, READ | HANDLE))
    file = one.ask(c.CREATE, body).body[64:80]
    assert two.ask(c.CREATE, c.create("a")).status == PENDING
    assert [break_of(told) for told in one.hear()] == [(READ | HANDLE, READ, True)]
    one.close(file)
    assert [late.status for late in two.hear()] == [0]


def test_a_batch_oplock_is_broken_and_acknowledged(pair: tuple[Client, Client]) -> None:
    one, two = pair
    opened = one.ask(c.CREATE, c.create("a", oplock=BATCH))
    assert opened.body[2] == BATCH
    file = opened.body[64:80]
    assert two.ask(c.CREATE, c.create("a", oplock=BATCH)).status == PENDING
    (told,) = one.hear()
    assert told.body[2] == LEVEL_II
    assert told.body[8:24] == file
    done = one.frame(one.message(BREAK, struct.pack("<HBBI", 24, LEVEL_II, 0, 0) + file))
    assert [answer.status for answer in done] == [0]
    (late,) = two.hear()
    assert late.status == 0
    assert late.body[2] == LEVEL_II


def test_a_chain_waits_as_a_whole(pair: tuple[Client, Client]) -> None:
    one, two = pair
    open_lease(one, KEY, ALL)
    answers = two.chain(
        (c.CREATE, c.create("a")), (c.READ, c.read(c.SAME, 0, 1)), (c.CLOSE, c.close(c.SAME))
    )
    assert [answer.status for answer in answers] == [PENDING]
    one.hear()
    answer_lease(one, KEY, READ | HANDLE)
    assert [answer.status for answer in two.hear()] == [0, 0xC0000011, 0]


def test_nobody_waits_for_one_who_is_gone(pair: tuple[Client, Client]) -> None:
    one, two = pair
    open_lease(one, KEY, ALL)
    assert two.ask(c.CREATE, c.create("a")).status == PENDING
    with one.server.lock:
        one.connection.end()
    assert [late.status for late in two.hear()] == [0]


def test_nobody_waits_forever(pair: tuple[Client, Client]) -> None:
    one, two = pair
    open_lease(one, KEY, ALL)
    assert two.ask(c.CREATE, c.create("a")).status == PENDING
    (grant,) = one.server.leases.values()
    with one.server.lock:
        grant.time_out()
    assert [late.status for late in two.hear()] == [0]
    assert answer_lease(one, KEY, READ)[-1].status == 0xC0000001


def test_one_who_waits_and_leaves_opens_nothing(pair: tuple[Client, Client]) -> None:
    one, two = pair
    open_lease(one, KEY, ALL)
    assert two.ask(c.CREATE, c.create("a")).status == PENDING
    with two.server.lock:
        two.connection.end()
    answer_lease(one, KEY, READ)
    (file,) = one.server.shares["RW"].files.values()
    assert len(file.handles) == 1


def test_more_than_is_left_cannot_be_kept(pair: tuple[Client, Client]) -> None:
    one, two = pair
    open_lease(one, KEY, ALL)
    two.ask(c.CREATE, c.create("a"))
    one.hear()
    assert answer_lease(one, KEY, ALL)[-1].status == 0xC00000D0
    assert answer_lease(one, b"c" * 16, 0)[-1].status == 0xC0000034


def test_emptying_a_file_takes_everything(pair: tuple[Client, Client]) -> None:
    one, two = pair
    open_lease(one, KEY, READ | HANDLE)
    assert two.ask(c.CREATE, c.create("a", disposition=OVERWRITE)).status == 0
    assert [break_of(told)[:2] for told in one.hear()] == [(READ | HANDLE, 0)]


# What the host changes


@pytest.fixture
def reader(tmp_path: Path) -> Client:
    (tmp_path / "a").write_bytes(b"old")
    return Client(c.server(tmp_path, leases="read")).begin(0x210)


def open_read(client: Client, key: bytes = KEY) -> Answer:
    request = c.create("a", access=0x81, oplock=LEASE, contexts=c.lease(key, ALL))
    return client.ask(c.CREATE, request)


def wait_for_break(client: Client) -> Answer:
    end = time.monotonic() + 10
    rung = threading.Event()
    client.connection.on_output = rung.set
    while not client.connection.outbox:
        assert rung.wait(end - time.monotonic()), "nothing was asked back"
        rung.clear()
    (told,) = client.hear()
    return told


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"new"),
        lambda path: path.chmod(0o600),
        lambda path: path.rename(path.with_name("b")),
        lambda path: path.unlink(),
        lambda path: os.utime(path, (1, 1)),
        lambda path: os.truncate(path, 1),
    ],
)
def test_the_host_s_change_ends_what_was_kept(
    reader: Client, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    assert state_of(open_read(reader)) == READ
    change(tmp_path / "a")
    assert break_of(wait_for_break(reader)) == (READ, 0, False)


def test_what_a_client_writes_is_kept_by_nobody(reader: Client) -> None:
    assert state_of(open_read(reader)) == READ
    answers = reader.frame(
        reader.message(c.CREATE, c.create("a", oplock=LEASE, contexts=c.lease(KEY, ALL)))
    )
    assert break_of(answers[0]) == (READ, 0, False)
    assert state_of(answers[1]) == 0
    assert state_of(open_read(reader, OTHER)) == 0


def test_reading_changes_nothing(reader: Client) -> None:
    file = open_read(reader).body[64:80]
    assert reader.ask(c.READ, c.read(file, 0, 10)).status == 0
    assert state_of(open_read(reader)) == READ


def test_a_file_that_was_closed_is_watched_no_more(reader: Client, tmp_path: Path) -> None:
    reader.close(open_read(reader).body[64:80])
    (tmp_path / "a").write_bytes(b"new")
    assert state_of(open_read(reader)) == READ
    (tmp_path / "a").write_bytes(b"newer")
    assert break_of(wait_for_break(reader)) == (READ, 0, False)


def test_without_watches_nothing_is_kept(reader: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "no watches left")

    monkeypatch.setattr(kernel, "inotify_add", refuse)
    assert state_of(open_read(reader)) == 0
    monkeypatch.undo()


def test_the_key_of_a_file_is_none_for_a_directory(
    pair: tuple[Client, Client], tmp_path: Path
) -> None:
    client, _ = pair
    (tmp_path / "d").mkdir()
    open_lease(client, KEY, ALL)
    body = c.create("d", disposition=1, access=0x81, oplock=0xFF, contexts=c.lease(KEY, ALL))
    assert client.ask(c.CREATE, body).status == 0xC000000D
    other = c.create("d", disposition=1, access=0x81, oplock=0xFF, contexts=c.lease(OTHER, ALL))
    answer = client.ask(c.CREATE, other)
    assert (answer.status, answer.body[2]) == (0, 0), "nothing is kept of it"

"""What clients keep of files that they write, and how the host's programs wait for it."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest
from quicksand_smb import hostlease
from quicksand_smb.house import House

from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Answer, Client
from tests.unit.smb_protocol.test_leases import (
    ALL,
    BREAK,
    KEY,
    OTHER,
    PENDING,
    READ,
    VIOLATION,
    WRITE,
    answer_lease,
    break_of,
    open_lease,
    state_of,
)

DEADLINE_S = 20.0
SET_OWNER, SET_OWNER_THREAD = 15, 0
"""F_SETOWN_EX and F_OWNER_TID, asm-generic/fcntl.h."""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = c.house(tmp_path, leases="coherent")
    yield made
    made.end()


@pytest.fixture
def client(house: House) -> Client:
    return Client(house).begin(0x311)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as made:
        yield made


def wait_until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < end
        threading.Event().wait(0.005)


def keep(client: Client, name: str = "a", key: bytes = KEY) -> Answer:
    """Open to write, as Linux does. The first time, the thread that listens has to come up."""
    answers: list[Answer] = []

    def is_kept() -> bool:
        answer = open_lease(client, key, ALL, name=name)
        if state_of(answer):
            answers.append(answer)
            return True
        client.ask(c.CLOSE, c.close(handle_of(answer)))
        return False

    wait_until(is_kept)
    return answers[0]


def handle_of(answer: Answer) -> bytes:
    return answer.body[64:80]


def told(client: Client) -> Answer:
    """The next message that answers nothing."""
    heard: list[Answer] = []

    def is_heard() -> bool:
        heard.extend(client.hear())
        return bool(heard)

    wait_until(is_heard)
    assert len(heard) == 1
    return heard[0]


def take_lease(file: BinaryIO) -> None:
    """As another program would, which hears nothing when it is asked for."""
    init = 1
    owner = struct.pack("=ii", SET_OWNER_THREAD, init)
    fcntl.fcntl(file, SET_OWNER, owner)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)


def test_what_a_client_alone_writes_it_may_keep_but_not_its_handle(client: Client) -> None:
    assert state_of(keep(client)) == READ | WRITE


def test_a_program_that_reads_waits_for_what_was_written(
    client: Client, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    answer = keep(client)
    reading: Future[bytes] = pool.submit((tmp_path / "a").read_bytes)
    assert break_of(told(client)) == (READ | WRITE, 0, True)
    assert not reading.done()
    client.ask(c.WRITE, c.write(handle_of(answer), 0, b"late"))
    assert answer_lease(client, KEY, 0)[0].status == 0
    assert reading.result(DEADLINE_S) == b"late"


def test_a_program_that_only_looks_waits_for_nothing(client: Client, tmp_path: Path) -> None:
    keep(client)
    assert (tmp_path / "a").stat().st_size == 0
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "b").unlink()
    assert not client.hear()


def test_a_program_waits_for_a_silent_client_only_for_a_while(
    client: Client, tmp_path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostlease, "PATIENCE_S", 0.05)
    keep(client)
    assert pool.submit((tmp_path / "a").read_bytes).result(DEADLINE_S) == b""
    assert told(client).command == BREAK


def test_closing_lets_the_program_go_on(
    client: Client, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    answer = keep(client)
    reading = pool.submit((tmp_path / "a").read_bytes)
    told(client)
    client.ask(c.CLOSE, c.close(handle_of(answer)))
    assert reading.result(DEADLINE_S) == b""


def test_the_end_of_the_connection_lets_the_program_go_on(
    client: Client, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    keep(client)
    reading = pool.submit((tmp_path / "a").read_bytes)
    told(client)
    with client.house.lock:
        client.connection.end()
    assert reading.result(DEADLINE_S) == b""


def test_nothing_is_kept_of_a_file_that_a_program_has_open(client: Client, tmp_path: Path) -> None:
    keep(client, "other")
    with (tmp_path / "a").open("wb"):
        assert state_of(open_lease(client, OTHER, ALL)) == 0
    with (tmp_path / "b").open("wb"):
        pass
    with (tmp_path / "b").open("rb"):
        assert state_of(open_lease(client, b"c" * 16, ALL, name="b")) == 0


def test_who_only_reads_keeps_nothing(client: Client, tmp_path: Path) -> None:
    keep(client, "other")
    (tmp_path / "a").write_bytes(b"")
    request = c.create("a", access=0x81, oplock=0xFF, contexts=c.lease(OTHER, ALL))
    assert state_of(client.ask(c.CREATE, request)) == 0


def test_another_open_of_the_same_client_takes_the_lease_away(
    client: Client, tmp_path: Path
) -> None:
    keep(client)
    # The break is told before the answer; the client may send what it has when it likes.
    body = c.create("a", oplock=0xFF, contexts=c.lease(KEY, ALL))
    told_break, opened = client.frame(client.message(c.CREATE, body))
    assert break_of(told_break) == (READ | WRITE, 0, True)
    assert opened.status == 0
    assert (tmp_path / "a").read_bytes() == b"", "nobody has to wait"


def test_another_client_waits_for_what_was_written(client: Client, house: House) -> None:
    keep(client)
    two = Client(house)
    two.guid = b"another client--"
    two.begin(0x311)
    assert open_lease(two, OTHER, ALL).status == PENDING
    assert break_of(told(client)) == (READ | WRITE, 0, True)
    answer_lease(client, KEY, 0)
    (late,) = two.hear()
    assert late.status == 0


def test_who_looks_at_attributes_takes_nothing_away(client: Client, tmp_path: Path) -> None:
    answer = keep(client)
    seen = client.ask(c.CREATE, c.create("a", access=0x80))
    assert seen.status == 0
    client.ask(c.CLOSE, c.close(handle_of(seen)))
    assert not client.hear()
    with pytest.raises(BlockingIOError):
        os.open(tmp_path / "a", os.O_RDONLY | os.O_NONBLOCK)
    told(client)
    client.ask(c.CLOSE, c.close(handle_of(answer)))


def test_the_lease_goes_with_the_handle_that_writes(client: Client, tmp_path: Path) -> None:
    answer = keep(client)
    body = c.create("a", access=0x80, oplock=0xFF, contexts=c.lease(KEY, READ))
    assert client.ask(c.CREATE, body).status == 0
    told_break, closed = client.frame(client.message(c.CLOSE, c.close(handle_of(answer))))
    assert break_of(told_break)[1] == 0
    assert closed.status == 0
    assert (tmp_path / "a").read_bytes() == b"", "nobody has to wait"


def test_there_are_only_so_many(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostlease, "MOST", 1)
    answer = keep(client)
    assert state_of(open_lease(client, OTHER, ALL, name="b")) == 0
    client.ask(c.CLOSE, c.close(handle_of(answer)))
    assert state_of(open_lease(client, b"c" * 16, ALL, name="d")) == READ | WRITE


def test_an_open_waits_for_the_lease_of_another_program(client: Client, tmp_path: Path) -> None:
    at = tmp_path / "a"
    with at.open("wb") as file:
        take_lease(file)
        assert open_lease(client, KEY, READ).status == PENDING
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    assert told(client).status == 0


def test_an_open_does_not_wait_for_ever(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quicksand_smb.commands.granting.TRIES", 1)
    at = tmp_path / "a"
    with at.open("wb") as file:
        take_lease(file)
        assert open_lease(client, KEY, READ).status == PENDING
        assert told(client).status == VIOLATION


def test_opens_that_wait_are_bounded(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quicksand_smb.house.MOST_SOON", 0)
    with (tmp_path / "a").open("wb") as file:
        take_lease(file)
        answers = client.frame(client.message(c.CREATE, c.create("a")))
        assert [one.status for one in answers] == [VIOLATION]

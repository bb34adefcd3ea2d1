"""CHANGE_NOTIFY: what those who watch a directory are told ([MS-SMB2] 3.3.5.19)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Answer, Client

PENDING, GONE = 0x103, 0xC0000056
EVERYTHING = 0xFFF
ADDED, REMOVED, MODIFIED = 1, 2, 3


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Client, Client]:
    server = c.server(tmp_path)
    return Client(server).begin(), Client(server).begin()


def watch(client: Client, file: bytes, *, most: int = 4096) -> Answer:
    return client.ask(c.NOTIFY, struct.pack("<HHI", 32, 0, most) + file + _rest())


def _rest() -> bytes:
    return struct.pack("<II", EVERYTHING, 0)


def told(answer: Answer) -> list[tuple[int, str]]:
    data = c.output(answer)
    found = []
    while data:
        following, action, length = struct.unpack_from("<III", data)
        found.append((action, data[12 : 12 + length].decode("utf-16-le")))
        data = data[following:] if following else b""
    return found


def test_what_happens_is_told_to_another_client(pair: tuple[Client, Client]) -> None:
    one, two = pair
    directory = one.open("d", options=1)
    assert watch(one, directory).status == PENDING
    file = two.open("d\\new")
    assert [told(answer) for answer in one.hear()] == [[(ADDED, "new")]]
    assert watch(one, directory).status == PENDING
    two.ask(c.WRITE, c.write(file, 0, b"x"))
    assert [told(answer) for answer in one.hear()] == [[(MODIFIED, "new")]]


def test_what_happened_between_two_questions_is_told_with_the_second(
    pair: tuple[Client, Client],
) -> None:
    one, two = pair
    directory = one.open("d", options=1)
    watch(one, directory)
    two.close(two.open("d\\a"))
    one.hear()
    two.close(two.open("d\\b"))
    two.close(two.open("d\\b", options=0x1000))
    interim, answer = one.frame(
        one.message(c.NOTIFY, struct.pack("<HHI", 32, 0, 4096) + directory + _rest())
    )
    assert interim.status == PENDING
    assert told(answer) == [(ADDED, "b"), (REMOVED, "b")]


def test_a_directory_that_is_going_ends_its_watches(pair: tuple[Client, Client]) -> None:
    one, two = pair
    assert watch(one, one.open("d", options=1)).status == PENDING
    other = two.open("d", options=1)
    assert two.ask(c.SET, c.set_info(other, 13, b"\1")).status == 0
    assert [answer.status for answer in one.hear()] == [GONE]


def test_a_watch_that_comes_too_late_is_told_that_the_directory_is_going(
    pair: tuple[Client, Client],
) -> None:
    one, two = pair
    directory = one.open("d", options=1)
    other = two.open("d", options=1)
    assert two.ask(c.SET, c.set_info(other, 13, b"\1")).status == 0
    assert watch(one, directory).status == GONE
    two.close(other)
    assert watch(one, directory).status == GONE

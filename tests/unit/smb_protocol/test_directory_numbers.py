"""Linux gives up all numbers of a mount when it is told of one directory at two paths."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import pytest
from quicksand_smb import directory_numbers, dispatch, posix
from quicksand_smb.directory_numbers import MOST_PLACES, DirectoryNumbers
from quicksand_smb.ledger import Ledger

from tests.each import each
from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Client

NO_MODE = 0xFFFF
DIRECTORY = 1


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(c.server(tmp_path)).begin(0x311, posix=True)


def looked(client: Client, name: str) -> int:
    """The number that a look by a path tells."""
    opened = c.create(name, disposition=1, access=0x80, contexts=c.posix_context(NO_MODE))
    asked = c.query(c.SAME, 1, posix.LEVEL)
    answers = client.chain((c.CREATE, opened), (c.QUERY, asked), (c.CLOSE, c.close(c.SAME)))
    assert [one.status for one in answers] == [0, 0, 0]
    return int(struct.unpack_from("<Q", c.output(answers[1]), 52)[0])


def opened(client: Client, name: str, **options: int) -> bytes:
    wanted = {"disposition": 1, "access": 0x81, "options": DIRECTORY} | options
    return client.open(name, contexts=c.posix_context(NO_MODE), **wanted)


def listed(client: Client, directory: str) -> dict[str, int]:
    """The numbers that a listing tells, but for those of itself and of the one above."""
    handle = opened(client, directory)
    data = c.output(client.ask(c.FIND, c.find(handle, level=posix.LEVEL)))
    client.close(handle)
    found, at = {}, 0
    while True:
        (following,) = struct.unpack_from("<I", data, at)
        (inode,) = struct.unpack_from("<Q", data, at + 60)
        start = at + 8 + 68 + 12 + 2 * 16 + 4
        (length,) = struct.unpack_from("<I", data, start - 4)
        found[data[start : start + length].decode("utf-16-le")] = inode
        at += following
        if not following:
            return {name: number for name, number in found.items() if name.strip(".")}


def queried(client: Client, name: str, level: int, at: int) -> int:
    """The number that is told of an open directory."""
    handle = opened(client, name)
    answer = client.ask(c.QUERY, c.query(handle, 1, level))
    client.close(handle)
    return int(struct.unpack_from("<Q", c.output(answer), at)[0])


def rename(client: Client, old: str, new: str) -> None:
    handle = opened(client, old, access=0x10000)
    assert client.ask(c.SET, c.set_info(handle, 10, c.rename(new))).status == 0
    client.close(handle)


def remove(client: Client, name: str) -> None:
    client.close(opened(client, name, access=0x10080, options=0x1001))


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_directory_has_one_number_at_one_path_however_it_is_asked(
    client: Client, tmp_path: Path, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_fast:
        monkeypatch.setattr(dispatch, "answer_stat_compound", lambda *_: None)
    (tmp_path / "a" / "b").mkdir(parents=True)
    inode = os.stat(tmp_path / "a" / "b").st_ino
    for path, is_moved in (("a", False), ("c", True), ("a", False), ("c", True)):
        if not (tmp_path / path).exists():
            next(tmp_path.iterdir()).rename(tmp_path / path)
        number = looked(client, f"{path}/b")
        assert listed(client, path) == {"b": number}
        assert queried(client, f"{path}/b", posix.LEVEL, 52) == number
        assert queried(client, f"{path}/b", 18, 64) == number
        assert queried(client, f"{path}/b", 6, 0) == number
        assert (number != inode) == is_moved


def test_what_the_host_moves_has_other_numbers_with_all_directories_below(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "f").touch()
    before = [looked(client, name) for name in ("a", "a/b", "a/f")]
    assert before == [os.stat(tmp_path / name).st_ino for name in ("a", "a/b", "a/f")]
    (tmp_path / "a").rename(tmp_path / "c")
    after = [looked(client, name) for name in ("c", "c/b", "c/f")]
    assert not {*before[:2]} & {*after[:2]}
    assert after[2] == before[2], "a file's number is its own"


def test_a_directory_that_is_given_the_inode_of_one_that_the_host_removed_has_another_number(
    tmp_path: Path,
) -> None:
    known = DirectoryNumbers(Ledger())
    assert known.number(7, "old") == 7
    assert known.number(7, "x/new") != 7
    assert known.number(7, "old") == 7
    assert known.inode(known.number(7, "x/new")) == 7


def test_what_a_client_moves_keeps_its_numbers(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "ab").mkdir()
    before = [looked(client, name) for name in ("a", "a/b", "ab")]
    rename(client, "a", "c")
    assert [looked(client, name) for name in ("c", "c/b", "ab")] == before
    # Linux goes on with them, so that no other path may have them.
    (tmp_path / "c").rename(tmp_path / "a")
    assert not {looked(client, "a"), looked(client, "a/b")} & {*before}


def test_what_a_client_removes_leaves_no_trace(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    looked(client, "a")
    remove(client, "a")
    assert not (tmp_path / "a").exists()
    (share,) = client.server.shares.values()
    assert share.directory_numbers.number(1 << 40, "b") == 1 << 40
    share.directory_numbers.removed(1 << 40, "b")
    assert not share.directory_numbers._places


@each("path", ["", "a"])
def test_what_is_mounted_at_two_places_of_a_share_has_stable_numbers(path: str) -> None:
    known = DirectoryNumbers(Ledger())
    for _ in range(3):
        told = [known.number(7, path), known.number(7, "a/again")]
        assert told == [7, 7 ^ 1 << 55]


def test_of_what_a_client_removes_only_that_path_is_forgotten() -> None:
    known = DirectoryNumbers(Ledger())
    told = [known.number(7, name) for name in "abc"]
    known.removed(7, "a")
    assert known.number(7, "a") not in told
    assert [known.number(7, name) for name in "bc"] == told[1:]


def test_temporary_directories_that_reuse_one_inode_have_a_number_each() -> None:
    ledger = Ledger()
    whole = ledger.left
    known = DirectoryNumbers(ledger)
    names = [f"tmp/{number}" + "x" * (number % 7) for number in range(5 * MOST_PLACES // 2)]
    told = []
    for name in names:
        told.append(known.number(7, name))
        assert known.number(7, name) == told[-1]
        assert known.inode(told[-1]) == 7
    # The first one keeps the inode's own number, and the others are known by their age.
    remembered = [names[0], *names[1 - MOST_PLACES :]]
    last = [told[0], *told[1 - MOST_PLACES :]]
    assert len(set(last)) == MOST_PLACES
    assert [known.number(7, name) for name in remembered] == last
    assert {known.inode(number) for number in last} == {7}
    known.end()
    assert ledger.left == whole


def test_where_bytes_run_out_an_inode_gives_the_oldest_of_its_numbers_to_the_next_path() -> None:
    ledger = Ledger(4 * (directory_numbers.PLACE_COST + sys.getsizeof("0")))
    whole = ledger.left
    known = DirectoryNumbers(ledger)
    told = [known.number(7, name) for name in "012345678"]
    assert [told.index(number) for number in told] == [0, 1, 2, 3, 1, 2, 3, 1, 2]
    assert [known.number(7, name) for name in "0678"] == [told[0], *told[-3:]]
    long = "x" * 99
    assert known.number(7, long) == known.number(7, long) not in told
    assert [known.number(7, name) for name in "0678"] == [told[0], *told[-3:]]
    known.end()
    assert ledger.left == whole


def test_what_the_host_moves_and_a_client_moves_back_keeps_the_number_that_the_client_saw(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "b" / "x").mkdir(parents=True)
    before = [looked(client, name) for name in ("b", "b/x")]
    (tmp_path / "b").rename(tmp_path / "a")
    seen = [looked(client, name) for name in ("a", "a/x")]
    assert not {*before} & {*seen}
    rename(client, "a", "b")
    assert [looked(client, name) for name in ("b", "b/x")] == seen
    assert listed(client, "b") == {"x": seen[1]}
    remove(client, "b/x")
    remove(client, "b")
    (share,) = client.server.shares.values()
    assert [*share.directory_numbers._moved.values()] == [["/", "/"]] * 2


def test_without_posix_extensions_numbers_are_those_of_the_host(tmp_path: Path) -> None:
    client = Client(c.server(tmp_path)).begin(0x311)
    (tmp_path / "a").mkdir()
    inode = os.stat(tmp_path / "a").st_ino
    for name in ("a", "b"):
        handle = client.open(name, disposition=1, access=0x81, options=DIRECTORY)
        told = c.output(client.ask(c.QUERY, c.query(handle, 1, 6)))
        assert told == inode.to_bytes(8, "little")
        client.close(handle)
        if name == "a":
            (tmp_path / "a").rename(tmp_path / "b")


def test_what_is_known_has_a_bound_in_number_and_in_bytes() -> None:
    ledger = Ledger()
    known = DirectoryNumbers(ledger)
    whole = ledger.left
    for inode in range(2 * directory_numbers.MOST):
        known.number(inode, f"{inode}")
        known.number(inode, f"{inode}/moved")
    assert len(known._moved) == directory_numbers.MOST_MOVED
    for inode in range(2 * directory_numbers.MOST):
        known.number(-inode, f"{inode}")
    assert len(known._places) == directory_numbers.MOST
    assert whole - ledger.left < directory_numbers.COST
    for inode in range(1000):
        known.number(inode + 10**6, "/".join(["x" * 255] * 200))
    assert whole - ledger.left <= directory_numbers.COST
    known.renamed("x" * 255, "/".join(["y" * 255] * 100))
    assert whole - ledger.left <= directory_numbers.COST
    for number in range(1000):
        known.number(3, f"{number}")
    assert known.number(3, "999") == known.number(3, "999") != 3
    assert whole - ledger.left <= directory_numbers.COST
    known.end()
    assert ledger.left == whole


def test_where_no_bytes_are_left_directories_have_their_own_numbers() -> None:
    ledger = Ledger(100)
    known = DirectoryNumbers(ledger)
    assert [known.number(7, "a"), known.number(7, "b")] == [7, 7]
    assert ledger.left == 100

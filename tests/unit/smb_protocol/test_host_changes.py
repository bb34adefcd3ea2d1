"""What the host changes is told to the agent that asks (`quicksand_smb.host_changes`)."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from quicksand_smb import host_changes, host_search, kernel
from quicksand_smb.host_changes import guest_path
from quicksand_smb.server_state import ServerState
from quicksand_smb.wire import from_filetime

from tests.conftest import wait_for
from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Answer, Client

CODE = 0x00096944
READS = 0x100081
INVALID, NO_MEMORY, DENIED, PROTECTED = 0xC000000D, 0xC000009A, 0xC0000022, 0xC00000A2
LONG_AGO = 10**9


class Agent:
    """As the guest's agent asks."""

    def __init__(self, server: ServerState) -> None:
        self.client = Client(server).begin(0x311, posix=True)
        self._numbers = iter(range(1, 1000, 2))
        self.number = 0
        self.inodes: list[int] = []

    def ask_raw(self, question: bytes, most: int = 15 << 10) -> Answer:
        root = self.client.open("", access=READS)
        answer = self.client.ask(c.IOCTL, c.ioctl(root, CODE, question, most))
        self.client.close(root)
        return answer

    def ask(self, first: int | None = None, inodes: list[int] | None = None) -> tuple[int, bytes]:
        first = len(self.inodes) if first is None else first
        head = struct.pack("<QII", self.number, first, len(self.inodes))
        answer = self.ask_raw(head + struct.pack(f"<{len(inodes or [])}Q", *inodes or []))
        assert answer.status == 0, answer.name
        at, length = struct.unpack_from("<II", answer.body, 32)
        data = answer.raw[at : at + length]
        return struct.unpack_from("<I", data)[0], data[8:]

    def watch(self, *paths: Path, ago: int | None = None) -> None:
        """Tell what is watched, and wait until it is. It may have been for `ago` tenths of a
        second, which older agents do not tell."""
        self.number, self.inodes = next(self._numbers), [path.stat().st_ino for path in paths]
        if ago is not None:
            self.number = self.number << 9 | ago << 1
        assert self.ask() == (0, b"")
        share = self.client.server.shares["RW"]
        assert share.host_changes is not None
        share.host_changes._search_s = 0.0
        assert self.ask(0, self.inodes)[0] == 1
        known = share.host_changes._inodes
        wait_for(lambda: all(known.values()), what="the files to be found")

    def told(self) -> dict[str, int]:
        """Paths, and their times of writing as the protocol has them."""
        known, data = self.ask()
        assert known == 1
        found = {}
        while data:
            ticks, length = struct.unpack_from("<QH", data)
            found[data[10 : 10 + length].decode()] = ticks
            data = data[10 + length :]
        return found

    def touch(self, path: str, ticks: int) -> int:
        """As Linux sets a time of writing, which tells the time of the change, too."""
        opened = self.client.ask(c.CREATE, c.create(path, access=0x100100, disposition=1))
        if opened.status:
            return opened.status
        handle = opened.body[64:80]
        data = struct.pack("<QQQQII", 0, 0, ticks, ticks + 5, 0, 0)
        answer = self.client.ask(c.SET, c.set_info(handle, 4, data))
        self.client.close(handle)
        return answer.status


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(c.server(tmp_path))


def test_what_the_host_makes_edits_renames_and_removes_is_told_once(
    agent: Agent, tmp_path: Path
) -> None:
    for name in ("edited", "moved", "removed", "replaced"):
        (tmp_path / name).write_text(name)
    agent.watch(tmp_path)
    assert agent.told() == {}
    for _ in range(5):
        (tmp_path / "edited").write_text("again")
    assert agent.told().keys() == {"edited"}
    assert agent.told() == {}
    (tmp_path / "made").write_text("")
    assert agent.told().keys() == {"made", ""}
    (tmp_path / "moved").rename(tmp_path / "there")
    assert agent.told().keys() == {"there", ""}
    (tmp_path / "new").write_text("x")
    (tmp_path / "new").rename(tmp_path / "replaced")
    assert agent.told().keys() == {"replaced", ""}
    (tmp_path / "removed").unlink()
    assert agent.told().keys() == {""}
    (tmp_path / "edited").chmod(0o600)
    assert agent.told().keys() == {"edited"}
    assert agent.told() == {}


def test_what_the_guest_does_is_not_told(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    (tmp_path / "directory").mkdir()
    agent.watch(tmp_path, tmp_path / "directory")
    client = agent.client
    made = client.open("made", disposition=2)
    assert client.ask(c.WRITE, c.write(made, 0, b"data")).status == 0
    assert client.ask(c.SET, c.set_info(made, 10, c.rename("directory\\moved"))).status == 0
    assert client.ask(c.SET, c.set_info(made, 11, c.rename("second"))).status == 0
    assert client.close(made).status == 0
    there = client.open("there")
    assert client.ask(c.SET, c.set_info(there, 20, bytes(8))).status == 0
    assert client.ask(c.SET, c.set_info(there, 13, b"\1")).status == 0
    assert client.close(there).status == 0
    second = client.open("second")
    assert client.ask(c.SET, c.set_info(second, 13, b"\1")).status == 0
    assert client.close(second).status == 0
    client.close(client.open("d", disposition=2, options=1))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["d", "directory", "moved"]
    assert agent.told() == {}
    (tmp_path / "directory/moved").write_text("the host's")
    assert agent.told().keys() == {"directory/moved"}


def test_the_agents_touch_changes_nothing_on_the_host(agent: Agent, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("x")
    agent.watch(tmp_path)
    file.write_text("y")
    ticks = agent.told()["f"]
    file.write_text("newer than what was told")
    os.utime(file, (LONG_AGO, LONG_AGO))
    before = file.stat()
    assert agent.touch("f", ticks) == 0
    now = file.stat()
    assert (now.st_mtime_ns, now.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
    assert agent.told().keys() == {"f"}
    assert agent.touch("f", ticks + 10**7) == 0
    assert file.stat().st_mtime_ns == from_filetime(ticks + 10**7)
    assert agent.told() == {}, "another time that the guest sets is a change of its own"


def test_of_a_read_only_share_what_was_told_may_be_touched_and_nothing_else(tmp_path: Path) -> None:
    agent = Agent(c.server(tmp_path, read_only=True))
    for name in ("f", "other"):
        (tmp_path / name).write_text("x")
    agent.watch(tmp_path)
    (tmp_path / "f").write_text("y")
    ticks = agent.told()["f"]
    before = (tmp_path / "f").stat()
    assert agent.touch("f", ticks) == 0
    assert agent.touch("f", ticks + 10**7) == PROTECTED
    assert agent.touch("other", ticks) == PROTECTED
    assert (tmp_path / "f").stat().st_ctime_ns == before.st_ctime_ns


def test_what_the_host_changed_just_before_is_told_and_not_what_the_guest_did(
    agent: Agent, tmp_path: Path
) -> None:
    for name in ("directory", "other"):
        (tmp_path / name).mkdir()
    for name in ("directory/f", "file", "unwatched", "other/f"):
        (tmp_path / name).touch()
    made = agent.client.open("directory\\guests", disposition=2)
    assert agent.client.ask(c.WRITE, c.write(made, 0, b"x")).status == 0
    told: set[str] = set()

    def is_told(*names: str) -> bool:
        told.update(agent.told())
        return told.issuperset(names)

    watched = tmp_path / "directory", tmp_path / "file"
    agent.watch(*watched, ago=20)
    wait_for(lambda: is_told("directory/f", "file"), what="what was changed before")
    # A program that begins anew because of that is not told of it once more.
    agent.number, agent.inodes = 2, []
    agent.ask()
    told.clear()
    (tmp_path / "directory/g").touch()
    agent.watch(*watched, ago=20)
    wait_for(lambda: is_told("directory/g"), what="what was changed since")
    assert told == {"directory/g"}
    # An older agent does not say how long the watch may have been there.
    agent.watch(tmp_path / "other")
    (tmp_path / "other/g").touch()
    assert agent.told().keys() == {"other/g", "other"}


def test_only_what_is_watched_is_told(agent: Agent, tmp_path: Path) -> None:
    deep = tmp_path / "a/b"
    deep.mkdir(parents=True)
    for path in (tmp_path / "one", tmp_path / "two", deep / "three"):
        path.write_text("x")
    agent.watch(tmp_path / "one", deep)
    for path in (tmp_path / "one", tmp_path / "two", deep / "three", tmp_path / "four"):
        path.write_text("y")
    assert agent.told().keys() == {"one", "a/b/three"}
    agent.watch(deep)
    (tmp_path / "one").write_text("z")
    assert agent.told() == {}


def test_a_directory_that_was_moved_is_found_again(agent: Agent, tmp_path: Path) -> None:
    below = tmp_path / "a/b"
    below.mkdir(parents=True)
    agent.watch(below)
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "c/b/f").write_text("x")
    agent.told()
    share = agent.client.server.shares["RW"]
    assert share.host_changes is not None
    share.host_changes._search_s = 0.0
    number = 0

    def is_told() -> bool:
        nonlocal number
        number += 1
        (tmp_path / "c/b/f").write_text(str(number))
        return "c/b/f" in agent.told()

    wait_for(is_told, what="the directory to be found")


def test_of_much_only_the_directory_is_told_and_nothing_is_lost(
    agent: Agent, tmp_path: Path
) -> None:
    below = tmp_path / ("d" * 200)
    below.mkdir()
    agent.watch(tmp_path, below)
    for number in range(host_changes.MOST_TOLD + 10):
        (tmp_path / f"{number}").touch()
    found = agent.told()
    assert len(found) == host_changes.MOST_TOLD + 1
    assert "" in found
    assert agent.told() == {}
    for number in range(100):
        (below / f"{number}{'x' * 200}").touch()
    (tmp_path / "last").touch()
    told = [agent.told() for _ in range(3)]
    assert sum(map(len, told)) > 30
    assert any(below.name in one for one in told)
    assert any("last" in one for one in told)


def test_names_that_the_guest_sees_otherwise_are_told_by_their_directory(
    agent: Agent, tmp_path: Path
) -> None:
    agent.watch(tmp_path)
    (tmp_path / os.fsdecode(b"\xff")).touch()
    assert agent.told().keys() == {""}
    assert guest_path(("a", "\uf022")) is None
    assert guest_path(("a:b", "ä")) == "a:b/ä".encode()


def test_after_another_server_has_begun_it_is_told_anew_what_is_watched(tmp_path: Path) -> None:
    first, second = Agent(c.server(tmp_path)), Agent(c.server(tmp_path))
    first.watch(tmp_path)
    second.number, second.inodes = first.number, first.inodes
    assert second.ask() == (0, b"")
    second.watch(tmp_path)
    (tmp_path / "f").touch()
    assert second.told().keys() == {"f", ""}


def test_watching_ends_with_the_last_watch_and_gives_everything_back(
    agent: Agent, tmp_path: Path
) -> None:
    server = agent.client.server
    share, left = server.shares["RW"], server.ledger.left
    agent.watch(tmp_path)
    assert server.ledger.left == left - host_changes.COST
    agent.number, agent.inodes = 77, []
    assert agent.ask() == (1, b"")
    assert share.host_changes is None
    assert server.ledger.left == left
    assert agent.ask() == (1, b""), "nothing is begun for it"
    assert share.host_changes is None


def test_bad_questions_are_refused(agent: Agent, tmp_path: Path) -> None:
    inode = tmp_path.stat().st_ino
    for question in (
        b"",
        b"x" * 15,
        struct.pack("<QII", 0, 0, 1),
        struct.pack("<QII", 1, 0, host_changes.MOST + 1),
        struct.pack("<QII", 1, 1, 1) + inode.to_bytes(8, "little"),
        struct.pack("<QII", 1, 0, 1) + b"1234",
        struct.pack("<QII", 1, 0xFFFFFFFF, 1),
    ):
        assert agent.ask_raw(question).status == INVALID, question
    # Parts that do not follow each other are not taken.
    agent.number, agent.inodes = 5, [inode, 1, 2, 3]
    assert agent.ask(0, [inode])[0] == 0
    assert agent.ask(2, [1, 2])[0] == 0
    assert agent.ask(1, [1, 2, 3])[0] == 1
    writes = agent.client.open("f", access=0x100102, disposition=3)
    head = struct.pack("<QII", 5, 4, 4)
    assert agent.client.ask(c.IOCTL, c.ioctl(writes, CODE, head)).status == DENIED


def test_without_memory_or_watches_it_is_refused(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = agent.client.server
    question = struct.pack("<QIIQ", 1, 0, 1, tmp_path.stat().st_ino)
    taken = server.ledger.left - 4096
    server.ledger.take(taken)
    assert agent.ask_raw(question).status == NO_MEMORY
    server.ledger.give_back(taken)
    left = server.ledger.left

    def refuse() -> int:
        raise OSError(24, "too many")

    monkeypatch.setattr(kernel, "inotify", refuse)
    assert agent.ask_raw(question).status == 0xC00000BB
    assert server.ledger.left == left


def test_what_is_looked_for_is_looked_for_within_bounds(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "near").mkdir()
    deep = tmp_path.joinpath(*"abcdef")
    deep.mkdir(parents=True)
    for number in range(20):
        (tmp_path / "a" / f"{number}").touch()
    store = agent.client.server.shares["RW"].store
    wanted = {path.stat().st_ino for path in (tmp_path, tmp_path / "near", deep)}
    assert {names for names, _ in host_search.find(store, wanted).values()} == {
        (), ("near",), tuple("abcdef"),
    }  # fmt: skip
    monkeypatch.setattr(host_search, "MOST_NAMES", 10)
    assert {names for names, _ in host_search.find(store, wanted).values()} == {(), ("near",)}

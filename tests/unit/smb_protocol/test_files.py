"""Files through a connection: opening, reading, writing, renaming, deleting, listing, locking."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from quicksand_smb.config import Config, ShareConfig
from quicksand_smb.server_state import ServerState

from tests.each import each
from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Client

NOT_FOUND = 0xC0000034
COLLISION = 0xC0000035
DENIED = 0xC0000022
CLOSED = 0xC0000128
PROTECTED = 0xC00000A2
DELETE_ON_CLOSE = 0x1000
EXCLUSIVE, SHARED, UNLOCK, AT_ONCE = 2, 1, 4, 0x10


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(c.server(tmp_path)).begin()


def unix(tmp_path: Path) -> Client:
    return Client(c.server(tmp_path)).begin(0x311, posix=True)


@each("dialect", [0x202, 0x210, 0x300, 0x302, 0x311])
def test_every_dialect_reads_what_it_wrote(tmp_path: Path, dialect: int) -> None:
    client = Client(c.server(tmp_path)).begin(dialect)
    file = client.open("a")
    assert client.ask(c.WRITE, c.write(file, 0, b"hello")).status == 0
    answer = client.ask(c.READ, c.read(file, 1, 100))
    assert answer.status == 0
    assert answer.body[16:] == b"ello"
    assert client.close(file).status == 0
    assert (tmp_path / "a").read_bytes() == b"hello"


def test_a_closed_handle_is_closed(client: Client) -> None:
    file = client.open("a")
    client.close(file)
    assert client.close(file).status == CLOSED
    assert client.ask(c.READ, c.read(file, 0, 1)).status == CLOSED


def test_reading_behind_the_end_says_so(client: Client) -> None:
    file = client.open("a")
    assert client.ask(c.READ, c.read(file, 0, 1)).status == 0xC0000011


def test_a_large_read_is_moved_by_the_kernel(client: Client, tmp_path: Path) -> None:
    data = os.urandom(1 << 20)
    (tmp_path / "big").write_bytes(data)
    client.connection.can_send_files = True
    file = client.open("big")
    answer = client.ask(c.READ, c.read(file, 0, 2 << 20), charge=32)
    assert answer.body[16:] == data


def test_a_read_pays_for_its_size(client: Client) -> None:
    file = client.open("a")
    assert client.ask(c.READ, c.read(file, 0, 65537), charge=1).status == 0xC000000D


def test_a_chain_of_open_query_and_close(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    answers = client.chain(
        (c.CREATE, c.create("a", disposition=1, access=0x80)),
        (c.QUERY, c.query(c.SAME, 1, 18)),
        (c.CLOSE, c.close(c.SAME)),
    )
    assert [one.status for one in answers] == [0, 0, 0]
    assert struct.unpack_from("<Q", c.output(answers[1]), 48)[0] == 5


def test_the_error_of_an_open_is_the_error_of_its_chain(client: Client) -> None:
    answers = client.chain(
        (c.CREATE, c.create("none", disposition=1)),
        (c.QUERY, c.query(c.SAME, 1, 18)),
        (c.CLOSE, c.close(c.SAME)),
    )
    assert [one.status for one in answers] == [NOT_FOUND] * 3


def test_a_rename_goes_from_the_root_of_the_share(client: Client, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_text("a")
    file = client.open("d\\a")
    assert client.ask(c.SET, c.set_info(file, 10, c.rename("d\\b"))).status == 0
    assert (tmp_path / "d" / "b").read_text() == "a"


def test_an_open_directory_is_renamed_again_and_again(client: Client, tmp_path: Path) -> None:
    """Each time to a longer name than it was opened by."""
    (tmp_path / "d").mkdir()
    file = client.open("d")
    for number in range(3):
        wish = c.rename("d" + "x" * (number + 1))
        assert client.ask(c.SET, c.set_info(file, 10, wish)).status == 0
    (tmp_path / "dxxx" / "f").touch()
    inner = client.open("dxxx\\f")
    assert client.ask(c.SET, c.set_info(file, 10, c.rename("e"))).status == DENIED
    client.ask(c.CLOSE, c.close(inner))
    assert client.ask(c.SET, c.set_info(file, 10, c.rename("e"))).status == 0
    assert (tmp_path / "e" / "f").exists()


def test_a_rename_over_a_file_must_be_asked_for(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    file = client.open("a")
    assert client.ask(c.SET, c.set_info(file, 10, c.rename("b"))).status == COLLISION
    assert client.ask(c.SET, c.set_info(file, 10, c.rename("b", replace=True))).status == 0
    assert (tmp_path / "b").read_text() == "a"


@pytest.mark.parametrize("target", ["..\\x", "\\..\\x", "a\\..\\..\\x", "/etc/x", "", "."])
def test_a_second_path_is_walked_as_the_first(client: Client, tmp_path: Path, target: str) -> None:
    (tmp_path / "a").write_text("a")
    file = client.open("a")
    for level in (10, 11):
        assert client.ask(c.SET, c.set_info(file, level, c.rename(target))).status >= 0xC0000000
    assert (tmp_path / "a").read_text() == "a"
    assert not (tmp_path.parent / "x").exists()


def test_a_file_of_unix_goes_while_it_is_open(tmp_path: Path) -> None:
    client = unix(tmp_path)
    file = client.open("a")
    client.close(client.open("a", options=DELETE_ON_CLOSE))
    assert not (tmp_path / "a").exists()
    assert client.ask(c.WRITE, c.write(file, 0, b"still")).status == 0
    assert client.ask(c.CREATE, c.create("a", disposition=2)).status == 0


def test_a_file_of_windows_goes_with_its_last_handle(client: Client, tmp_path: Path) -> None:
    file = client.open("a")
    client.close(client.open("a", options=DELETE_ON_CLOSE))
    assert client.ask(c.CREATE, c.create("a")).status == 0xC0000056
    client.close(file)
    assert not (tmp_path / "a").exists()


def test_a_directory_with_files_is_not_marked_for_deletion(client: Client, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").touch()
    file = client.open("d", options=1)
    assert client.ask(c.SET, c.set_info(file, 13, b"\1")).status == 0xC0000101


def test_a_listing_has_every_name_once(client: Client, tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"file-{number:03}").touch()
    directory = client.open("", options=1)
    found: list[str] = []
    while (answer := client.ask(c.FIND, c.find(directory, most=4096))).status == 0:
        found += c.names(answer)
    assert answer.status == 0x80000006
    assert sorted(found) == sorted([".", "..", *os.listdir(tmp_path)])


def test_a_search_that_finds_nothing_says_so(client: Client) -> None:
    directory = client.open("", options=1)
    assert client.ask(c.FIND, c.find(directory, "no*")).status == 0xC000000F


def test_modes_and_owners_of_unix(tmp_path: Path) -> None:
    client = unix(tmp_path)
    file = client.open("a", contexts=c.posix_context(0o640))
    data = c.output(client.ask(c.QUERY, c.query(file, 1, 100)))
    links, tag, mode = struct.unpack_from("<III", data, 68)
    assert (links, tag, mode) == (1, 0, 0o640)
    # What is the user's is root's in the guest.
    assert struct.unpack_from("<I", data, 80 + 12)[0] == 0


def test_a_symlink_is_told_and_not_followed(client: Client, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    answer = client.ask(c.CREATE, c.create("link", disposition=1))
    assert answer.status == 0x8000002D
    assert "/etc/passwd".encode("utf-16-le") in answer.body
    file = client.open("link", disposition=1, options=0x200000, access=0x80)
    answer = client.ask(c.IOCTL, c.ioctl(file, 0x900A8))
    assert answer.status == 0
    assert "/etc/passwd".encode("utf-16-le") in answer.body


def test_two_handles_do_not_lock_one_range(client: Client) -> None:
    first, second = client.open("a"), client.open("a")
    assert client.ask(c.LOCK, c.lock(first, (0, 10, EXCLUSIVE | AT_ONCE))).status == 0
    assert client.ask(c.LOCK, c.lock(second, (5, 1, SHARED | AT_ONCE))).status == 0xC0000055
    assert client.ask(c.LOCK, c.lock(second, (10, 1, SHARED | AT_ONCE))).status == 0
    assert client.ask(c.LOCK, c.lock(first, (0, 10, UNLOCK))).status == 0
    assert client.ask(c.LOCK, c.lock(first, (0, 10, UNLOCK))).status == 0xC000007E


def test_a_lock_that_must_wait_is_answered_twice(client: Client) -> None:
    first, second = client.open("a"), client.open("a")
    client.ask(c.LOCK, c.lock(first, (0, 10, EXCLUSIVE)))
    interim = client.ask(c.LOCK, c.lock(second, (0, 10, EXCLUSIVE)))
    assert interim.status == 0x103
    assert interim.flags & 2
    answers = client.frame(client.message(c.LOCK, c.lock(first, (0, 10, UNLOCK))))
    assert sorted(one.status for one in answers) == [0, 0]
    assert interim.message_id in [one.message_id for one in answers]


def test_a_cancel_ends_what_waits_and_has_no_answer(client: Client) -> None:
    directory = client.open("", options=1)
    body = struct.pack("<HHI", 32, 0, 4096) + directory + struct.pack("<II", 0x1F, 0)
    interim = client.ask(c.NOTIFY, body)
    assert interim.status == 0x103
    cancel = client.message(c.CANCEL, struct.pack("<HH", 4, 0), message_id=interim.message_id)
    assert [one.status for one in client.frame(cancel)] == [0xC0000120]
    assert client.frame(cancel) == []


def test_one_who_watches_is_told_of_a_new_file(client: Client) -> None:
    directory = client.open("", options=1)
    body = struct.pack("<HHI", 32, 0, 4096) + directory + struct.pack("<II", 0x1F, 0)
    client.ask(c.NOTIFY, body)
    answers = client.frame(client.message(c.CREATE, c.create("new")))
    told = next(one for one in answers if one.command == c.NOTIFY)
    assert "new".encode("utf-16-le") in c.output(told)


def test_a_copy_on_the_server(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    source, target = client.open("a"), client.open("b")
    key = client.ask(c.IOCTL, c.ioctl(source, 0x140078)).body[48:72]
    chunk = key + struct.pack("<II", 1, 0) + struct.pack("<QQII", 2, 0, 5, 0)
    assert client.ask(c.IOCTL, c.ioctl(target, 0x1480F2, chunk)).status == 0
    assert (tmp_path / "b").read_bytes() == b"23456"


class TestReadOnly:
    """The guest's own mount option is no protection: the server refuses."""

    @pytest.fixture
    def reader(self, tmp_path: Path) -> Client:
        (tmp_path / "a").write_text("kept")
        (tmp_path / "d").mkdir()
        return Client(c.server(tmp_path, read_only=True)).begin(0x311, posix=True)

    @pytest.mark.parametrize("disposition", [0, 4, 5])
    def test_no_file_is_emptied(self, reader: Client, tmp_path: Path, disposition: int) -> None:
        answer = reader.ask(c.CREATE, c.create("a", disposition=disposition, access=0x120089))
        assert answer.status == PROTECTED
        assert (tmp_path / "a").read_text() == "kept"

    @pytest.mark.parametrize("options", [0, 1])
    @pytest.mark.parametrize("disposition", [2, 3])
    def test_nothing_is_made(
        self, reader: Client, tmp_path: Path, disposition: int, options: int
    ) -> None:
        body = c.create("new", disposition=disposition, options=options, access=0x120089)
        assert reader.ask(c.CREATE, body).status == PROTECTED
        assert sorted(os.listdir(tmp_path)) == ["a", "d"]

    def test_nothing_is_removed(self, reader: Client, tmp_path: Path) -> None:
        body = c.create("a", options=DELETE_ON_CLOSE, access=0x02000000)
        assert reader.ask(c.CREATE, body).status >= 0xC0000000
        file = reader.open("a", access=0x02000000, disposition=1)
        assert reader.ask(c.SET, c.set_info(file, 13, b"\1")).status == PROTECTED
        reader.close(file)
        assert (tmp_path / "a").exists()

    @pytest.mark.parametrize(
        ("level", "data"),
        [
            (4, bytes(40)),
            (10, c.rename("b")),
            (11, c.rename("b")),
            (15, bytes(12)),
            (19, bytes(8)),
            (20, bytes(8)),
        ],
    )
    def test_nothing_is_changed(
        self, reader: Client, tmp_path: Path, level: int, data: bytes
    ) -> None:
        file = reader.open("a", access=0x02000000, disposition=1)
        assert reader.ask(c.SET, c.set_info(file, level, data)).status == PROTECTED
        assert reader.ask(c.WRITE, c.write(file, 0, b"x")).status == PROTECTED
        assert (
            reader.ask(c.IOCTL, c.ioctl(file, 0x980C8, bytes(8) + b"\4" + bytes(7))).status
            == PROTECTED
        )
        assert (tmp_path / "a").read_text() == "kept"


def test_a_share_that_is_taken_away_is_dead_at_once(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    file = client.open("a")
    with client.server.lock:
        client.server.reload(Config(()))
    assert client.ask(c.READ, c.read(file, 0, 1)).status == 0xC00000C9
    assert client.ask(c.CREATE, c.create("a")).status == 0xC00000C9
    assert client.connect().status == 0xC00000CC
    assert client.ask(c.ECHO, struct.pack("<HH", 4, 0)).status == 0


def test_a_search_that_takes_long_tells_what_it_has_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(200):
        (tmp_path / f"a file {number}").touch()
    client = Client(c.server(tmp_path)).begin()
    directory = client.open("", disposition=1, options=1)
    monkeypatch.setattr("quicksand_smb.commands.directory.SEARCH_S", -1)
    first = client.ask(c.FIND, c.find(directory, "?"))
    assert first.status == 0
    assert c.names(first) == ["."]
    assert client.ask(c.FIND, c.find(directory, "?")).status == 0xC000009A
    monkeypatch.undo()
    assert client.ask(c.FIND, c.find(directory, "?")).status == 0x80000006


def test_a_share_that_is_to_be_protected_is_protected_after_a_reload(tmp_path: Path) -> None:
    server = c.server(tmp_path)
    client = Client(server).begin()
    client.open(".envrc")
    (share,) = server.config.shares
    with server.lock:
        server.reload(server.config._replace(shares=(share._replace(is_protected=True),)))
    assert client.ask(c.CREATE, c.create(".envrc")).status == 0xC00000C9
    client.connect()
    assert client.ask(c.CREATE, c.create(".envrc")).status == PROTECTED
    client.open("other")


def test_a_reload_opens_nothing_by_the_number_of_a_descriptor(tmp_path: Path) -> None:
    """It was closed at the start, and is another's by now."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    (mine / "a").touch()
    number = os.open(mine, os.O_RDONLY)
    share = ShareConfig("RW", str(tmp_path / "moved"), False, directory=number)
    server = ServerState(Config((share,)))
    c.SERVERS.append(server)
    assert os.open(other, os.O_RDONLY) == number
    try:
        read_only = share._replace(is_read_only=True)
        more = share._replace(name="MORE")
        with server.lock:
            server.reload(server.config._replace(shares=(read_only, more)))
        client = Client(server).begin()
        assert client.ask(c.CREATE, c.create("a", access=1, disposition=1)).status == 0
        assert client.ask(c.CREATE, c.create("b")).status == PROTECTED
        assert set(server.shares) == {"RW"}
    finally:
        os.close(number)


def test_the_answers_of_one_frame_are_together_no_larger_than_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(6 << 20))
    client = Client(c.server(tmp_path)).begin()
    file = client.open("file", disposition=1)
    frame = b""
    for number in range(3):
        body = c.read(file, 0, 3 << 20)
        body += bytes(-len(body) % 8)
        following = 64 + len(body) if number < 2 else 0
        frame += client.message(c.READ, body, charge=48, following=following, asked=512)
    first, second, third = client.frame(frame)
    assert (first.status, second.status) == (c.SUCCESS, c.SUCCESS)
    assert third.status == 0xC000009A, third.name
    assert client.ask(c.READ, c.read(file, 0, 3 << 20), charge=48).status == c.SUCCESS

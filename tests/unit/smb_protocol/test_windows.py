"""What clients of Windows have and Unix has not: named streams, and lists of who may do what."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from quicksand_smb import access, posix
from quicksand_smb.access import Descriptor, Entry

from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Client

DENIED, NOT_FOUND, COLLISION, BAD_NAME = 0xC0000022, 0xC0000034, 0xC0000035, 0xC0000033
NO_DIRECTORY, READ_ONLY, TOO_LARGE = 0xC0000103, 0xC00000A2, 0xC000009A
OPEN, CREATE, OVERWRITE_IF = 1, 2, 5
DACL = 4
ME = access.user()


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(c.server(tmp_path)).begin()


def set_security(file: bytes, data: bytes, which: int = DACL) -> bytes:
    return struct.pack("<HBBIHHI", 33, 3, 0, len(data), 96, 0, which) + file + data


def only(mask: int, *, flags: int = 0) -> bytes:
    """A list that allows the user so much, and nothing else."""
    entries = (Entry(0, flags, mask, ME),)
    return access.encode(Descriptor(4, ME, b"", entries), DACL)


# Streams


def test_a_stream_is_kept_beside_the_data(client: Client, tmp_path: Path) -> None:
    file, stream = client.open("a"), client.open("a:zone")
    client.ask(c.WRITE, c.write(file, 0, b"data"))
    client.ask(c.WRITE, c.write(stream, 2, b"note"))
    answer = client.ask(c.READ, c.read(stream, 0, 100))
    assert answer.body[16:] == b"\0\0note"
    assert (tmp_path / "a").read_bytes() == b"data"
    listed = c.output(client.ask(c.QUERY, c.query(file, 1, 22))).decode("utf-16-le", "replace")
    assert "::$DATA" in listed
    assert ":zone:$DATA" in listed


def test_a_stream_s_name_has_no_case_and_a_kind(client: Client) -> None:
    client.close(client.open("a:Zone"))
    client.close(client.open("a:zONE:$DATA", disposition=OPEN))
    assert client.ask(c.CREATE, c.create("a:zone", disposition=CREATE)).status == COLLISION
    assert client.ask(c.CREATE, c.create("a:other", disposition=OPEN)).status == NOT_FOUND


def test_the_unnamed_stream_is_the_file(client: Client, tmp_path: Path) -> None:
    file = client.open("a::$DATA")
    client.ask(c.WRITE, c.write(file, 0, b"x"))
    assert (tmp_path / "a").read_bytes() == b"x"
    assert client.ask(c.CREATE, c.create("a::$DATA", options=1)).status == NO_DIRECTORY


@pytest.mark.parametrize("name", ["a:", ":b", "a:b:$INDEX", "a:b:c:d", "a:" + "x" * 201, "a:b/c"])
def test_other_names_are_no_streams(client: Client, name: str) -> None:
    assert client.ask(c.CREATE, c.create(name)).status == BAD_NAME


def test_deleting_a_stream_leaves_the_file(client: Client, tmp_path: Path) -> None:
    client.close(client.open("a:zone"))
    client.close(client.open("a:zone", options=0x1000))
    assert client.ask(c.CREATE, c.create("a:zone", disposition=OPEN)).status == NOT_FOUND
    assert (tmp_path / "a").exists()


def test_a_file_written_anew_has_lost_its_streams(client: Client) -> None:
    client.close(client.open("a:zone"))
    client.close(client.open("a", disposition=OVERWRITE_IF))
    assert client.ask(c.CREATE, c.create("a:zone", disposition=OPEN)).status == NOT_FOUND


def test_a_stream_that_went_away_can_be_closed(client: Client) -> None:
    stream = client.open("a:zone")
    client.close(client.open("a", disposition=OVERWRITE_IF))
    assert client.ask(c.READ, c.read(stream, 0, 1)).status == NOT_FOUND
    assert client.ask(c.CLOSE, c.close(stream, attributes=True)).status == 0


def test_a_stream_of_a_share_that_is_only_read_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    client = Client(c.server(tmp_path, read_only=True)).begin()
    request = c.create("a:zone", access=0x80)
    assert client.ask(c.CREATE, request).status in (READ_ONLY, NOT_FOUND)


def test_a_stream_does_not_grow_without_bounds(client: Client) -> None:
    stream = client.open("a:zone")
    assert client.ask(c.WRITE, c.write(stream, 1 << 40, b"x")).status == 0xC000007F
    assert (
        client.ask(c.SET, c.set_info(stream, 20, struct.pack("<Q", 1 << 40))).status == 0xC000007F
    )


# Who may do what


def test_a_list_is_told_as_it_was_set(client: Client) -> None:
    file = client.open("a")
    assert client.ask(c.SET, set_security(file, only(0x1F01FF))).status == 0
    told = c.output(client.ask(c.QUERY, c.query(file, 3, 0)))
    assert access.decode(told).entries == (Entry(0, 0, 0x1F01FF, ME),)


def test_what_the_list_does_not_allow_is_refused(client: Client) -> None:
    file = client.open("a")
    client.ask(c.SET, set_security(file, only(0x120089)))
    client.close(file)
    assert client.ask(c.CREATE, c.create("a", access=0x2)).status == DENIED
    assert client.ask(c.CREATE, c.create("a", access=0x1)).status == 0
    everything = client.ask(c.CREATE, c.create("a", access=0x02000000))
    assert client.ask(c.WRITE, c.write(everything.body[64:80], 0, b"x")).status == DENIED


def test_the_owner_can_always_change_the_list(client: Client) -> None:
    file = client.open("a")
    client.ask(c.SET, set_security(file, only(0)))
    client.close(file)
    again = client.open("a", access=0x40000)
    assert client.ask(c.SET, set_security(again, only(0x1F01FF))).status == 0
    assert client.ask(c.CREATE, c.create("a", access=0x2)).status == 0


def test_a_directory_hands_its_list_on(client: Client) -> None:
    directory = client.open("d", options=1)
    inherited_by_files = 1
    client.ask(c.SET, set_security(directory, only(0x1F01FF & ~0x2, flags=inherited_by_files)))
    assert client.ask(c.CREATE, c.create("d\\new")).status == DENIED
    client.ask(c.SET, set_security(directory, only(0x1F01FF & ~0x4, flags=inherited_by_files)))
    client.close(client.open("d\\new"))
    assert client.ask(c.CREATE, c.create("d\\new", access=0x4)).status == DENIED


def test_a_new_file_has_the_list_it_was_made_with(client: Client) -> None:
    request = c.create("a", contexts=c.context(b"SecD", only(0x120089)))
    client.close(client.ask(c.CREATE, request).body[64:80])
    assert client.ask(c.CREATE, c.create("a", access=0x2)).status == DENIED


def test_a_linux_client_s_mode_is_set_on_the_host(client: Client, tmp_path: Path) -> None:
    file = client.open("a")
    mode = Entry(0, 0, 0, posix.sid(5, 88, 3, 0o640))
    data = access.encode(Descriptor(4, b"", b"", (mode,)), DACL)
    assert client.ask(c.SET, set_security(file, data)).status == 0
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert client.ask(c.CREATE, c.create("a", access=0x2)).status == 0


def test_a_list_larger_than_is_kept_is_refused(client: Client) -> None:
    file = client.open("a")
    data = access.encode(Descriptor(4, b"", b"", (Entry(0, 0, 1, ME),) * 300), DACL)
    assert client.ask(c.SET, set_security(file, data)).status == TOO_LARGE


def test_lists_of_audits_are_for_the_privileged(client: Client) -> None:
    assert client.ask(c.CREATE, c.create("a", access=0x01000001)).status == 0xC0000061


# Chains


def test_a_related_request_takes_session_and_tree_from_the_one_before(client: Client) -> None:
    body = c.create("a")
    body += bytes(-len(body) % 8)
    frame = client.message(c.CREATE, body, following=64 + len(body))
    nobody = (1 << 64) - 1
    frame += client.message(c.CLOSE, c.close(c.SAME), flags=4, session=nobody, tree=0xFFFFFFFF)
    assert [answer.status for answer in client.frame(frame)] == [0, 0]


def test_an_unrelated_request_begins_anew(client: Client) -> None:
    body = c.create("a")
    body += bytes(-len(body) % 8)
    closing = c.close(c.SAME)
    frame = client.message(c.CREATE, body, following=64 + len(body))
    frame += client.message(c.CLOSE, closing, following=64 + len(closing))
    frame += client.message(c.CLOSE, closing, flags=4)
    assert [answer.status for answer in client.frame(frame)] == [0, 0xC0000128, 0xC0000128]


def test_what_follows_one_without_a_session_is_no_request(client: Client) -> None:
    closing = c.close(c.SAME)
    frame = client.message(c.CLOSE, closing, following=64 + len(closing), session=77)
    frame += client.message(c.CLOSE, closing, flags=4)
    assert [answer.status for answer in client.frame(frame)] == [0xC0000203, 0xC000000D]

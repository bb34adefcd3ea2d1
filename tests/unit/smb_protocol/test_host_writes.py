"""What the host writes to a file that a client has open for writing, which keeps pages and its end
without a lease, as Linux does (`quicksand_smb.host_writes`)."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import cast

import pytest
from quicksand_smb import host_watch, kernel, open_file, own_changes, windows_metadata
from quicksand_smb.host_writes import Guard
from quicksand_smb.ledger import GUARD_COST, HANDLE_COST, WRITTEN_COST
from quicksand_smb.node import Node
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import Stat

from tests.conftest import wait_for
from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Answer, Client
from tests.unit.smb_protocol.test_leases import LEASE, READ, answer_lease

KEY = b"k" * 16
WRITES = 0x120196
LONG_AGO = 10**9
INVALID, TOO_MANY = 0xC000000D, 0xC000011F


@pytest.fixture
def client(tmp_path: Path) -> Client:
    file = tmp_path / "f"
    file.write_bytes(b"0123456789")
    os.utime(file, (LONG_AGO, LONG_AGO))
    return Client(c.server(tmp_path, leases="directories")).begin(0x311, posix=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "f"


def open_to_write(client: Client, *, access: int = WRITES, disposition: int = 1) -> bytes:
    """As Linux does it, which asks for a lease."""
    lease = c.lease(KEY, READ, epoch=0)
    lease += bytes(-len(lease) % 8)
    contexts = len(lease).to_bytes(4, "little") + lease[4:] + c.posix_context(0o644)
    wanted = c.create("f", access=access, oplock=LEASE, contexts=contexts, disposition=disposition)
    answer = client.ask(c.CREATE, wanted)
    assert answer.status == 0
    return answer.body[64:80]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as opened:
        opened.write(data)


def write(client: Client, handle: bytes, offset: int, data: bytes) -> list[bytes]:
    """The keys of what the client is asked to drop, after its write has been answered."""
    answers = client.frame(client.message(c.WRITE, c.write(handle, offset, data)))
    (told,) = [one for one in answers if one.command == c.WRITE]
    assert told.status == 0
    assert int.from_bytes(told.body[4:8], "little") == len(data)
    return [one.body[8:24] for one in answers if one.command == 18]


def wait_for_question(client: Client) -> Answer:
    found: list[Answer] = []

    def hear() -> bool:
        found.extend(client.hear())
        return bool(found)

    wait_for(hear, what="a question to drop what is kept")
    (one,) = found
    assert (one.command, one.body[8:24]) == (18, KEY)
    assert one.body[4] == 1, "it has to be answered"
    return one


def drop(client: Client) -> bool:
    """The client says that it keeps nothing of the file. Whether it is asked once more."""
    told = answer_lease(client, KEY, 0)
    assert told[-1].status == 0
    return len(told) > 1


def test_what_is_appended_goes_to_the_real_end(client: Client, file: Path) -> None:
    handle = open_to_write(client)
    write(client, handle, 10, b"a")
    append(file, b"host")
    assert write(client, handle, 11, b"b") == [KEY]
    append(file, b"again")
    write(client, handle, 12, b"c")
    assert file.read_bytes() == b"0123456789ahostbagainc"


def test_a_file_that_the_host_has_cut_does_not_come_back(client: Client, file: Path) -> None:
    handle = open_to_write(client)
    write(client, handle, 10, b"a")
    file.write_bytes(b"new\n")
    # The client sends the page, from its beginning, with what it had kept of it.
    assert write(client, handle, 0, b"0123456789ab") == [KEY]
    assert write(client, handle, 12, b"c") == []
    assert file.read_bytes() == b"new\nbc"


def test_the_client_is_asked_to_drop_what_it_keeps(client: Client, file: Path) -> None:
    open_to_write(client)
    with file.open("r+b") as opened:
        opened.write(b"host")
    wait_for_question(client)


def test_what_it_keeps_counts_again_once_it_has_dropped_the_old(
    client: Client, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quicksand_smb.host_writes.TAKEN_IN_S", 0)
    handle = open_to_write(client)
    file.write_bytes(b"host")
    wait_for_question(client)
    write(client, handle, 0, b"0123456789a")
    assert file.read_bytes() == b"hosta"
    assert drop(client), "it was given another place since it was asked"
    assert not drop(client)
    write(client, handle, 0, b"HOSTA" + bytes(6) + b"b")
    assert file.read_bytes() == b"HOSTAb"


def test_what_the_client_writes_itself_is_no_change_of_the_host_s(
    client: Client, file: Path
) -> None:
    handle = open_to_write(client)
    for number in range(50):
        assert write(client, handle, 10 + number, b"x") == []
    assert write(client, handle, 0, b"y" * 70) == []
    end = (20).to_bytes(8, "little")
    assert client.ask(c.SET, c.set_info(handle, 20, end)).status == 0
    assert write(client, handle, 20, b"z") == []
    assert write(client, handle, 100, b"z") == []
    assert write(client, handle, 50, b"z") == []
    again = open_to_write(client, disposition=5)
    assert write(client, again, 0, b"anew") == []
    client.close(again)
    client.close(handle)
    open_to_write(client)
    # What inotify tells comes in its order: had it told of the above, it would before this.
    append(file, b"host")
    wait_for_question(client)


def test_large_writes_in_any_order_stay_where_they_belong(client: Client, file: Path) -> None:
    handle = open_to_write(client, disposition=5)
    parts = [bytes([65 + n]) * 65_536 for n in range(4)]
    for number in (1, 0, 3, 2):
        assert write(client, handle, number * 65_536, parts[number]) == []
    assert file.read_bytes() == b"".join(parts)


def test_a_client_that_is_told_the_new_end_appends_there(client: Client, file: Path) -> None:
    handle = open_to_write(client)
    append(file, b"host")
    wait_for_question(client)
    assert client.ask(c.QUERY, c.query(handle, 1, 18)).status == 0
    # It takes what it had not known for zeros.
    write(client, handle, 0, b"0123456789" + bytes(4) + b"a")
    assert file.read_bytes() == b"0123456789hosta"
    # It had sent this before it took in what it was told.
    append(file, b"more")
    assert client.ask(c.QUERY, c.query(handle, 1, 18)).status == 0
    write(client, handle, 15, b"b")
    assert file.read_bytes() == b"0123456789hostamoreb"


def test_what_the_host_has_just_appended_is_no_zeros(client: Client, file: Path) -> None:
    append(file, b"host")
    handle = open_to_write(client)
    write(client, handle, 0, b"0123456789" + bytes(4) + b"a")
    assert file.read_bytes() == b"0123456789hosta"
    client.close(handle)
    handle = open_to_write(client)  # what has changed since is its own
    write(client, handle, 0, b"0123456789" + bytes(5) + b"b")
    assert file.read_bytes() == b"0123456789" + bytes(5) + b"b"


def test_a_file_that_the_host_has_just_written_may_be_written_anew(
    client: Client, file: Path
) -> None:
    file.write_bytes(b"host's own")
    handle = open_to_write(client)
    write(client, handle, 0, b"all of it by the guest")
    assert file.read_bytes() == b"all of it by the guest"


def test_without_a_watch_the_size_tells(
    client: Client, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_watch, "MOST_WRITTEN", 0)
    handle = open_to_write(client)
    append(file, b"host")
    assert write(client, handle, 10, b"a") == [KEY]
    assert file.read_bytes() == b"0123456789hosta"


def test_without_inotify_files_are_written_as_the_client_says(
    client: Client, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise OSError(24, "no more instances")

    monkeypatch.setattr(kernel, "inotify", refuse)
    handle = open_to_write(client)
    assert write(client, handle, 10, b"a") == []
    assert file.read_bytes() == b"0123456789a"


def test_a_closed_file_leaves_nothing(client: Client, file: Path) -> None:
    handle = open_to_write(client)
    assert len(client.server.guards) == 1
    client.close(handle)
    assert not client.server.guards
    assert file.read_bytes() == b"0123456789"


# What is open of it, paid for and told


def set_reparse(client: Client, handle: bytes) -> int:
    text = "to".encode("utf-16-le")
    link = struct.pack("<IHHHHHHI", 0xA000000C, 12 + 8, 0, 0, 4, 4, 4, 1) + text + text
    return client.ask(c.IOCTL, c.ioctl(handle, 0x000900A4, link)).status


@pytest.mark.parametrize("is_full", [False, True])
def test_a_file_that_becomes_a_link_leaves_nothing(
    client: Client, file: Path, *, is_full: bool
) -> None:
    ledger = client.server.ledger
    client.close(open_to_write(client))  # listens from now on, and remembers the file
    before, descriptors = ledger.left, os.listdir("/proc/self/fd")
    for _ in range(3):
        file.unlink(missing_ok=True)
        file.touch()
        handle = open_to_write(client)
        spare = ledger.left if is_full else 0
        ledger.take(spare)
        assert set_reparse(client, handle) == 0
        assert os.readlink(file) == "to"
        assert not client.server.guards
        ledger.give_back(spare)
        assert client.close(handle).status == 0
        assert ledger.left == before
        assert {*os.listdir("/proc/self/fd")} <= {*descriptors}
    host = client.server._host
    assert host is not None
    assert (host._written, host._files) == (0, {})


def test_a_guard_is_paid_for_and_given_back(client: Client, file: Path) -> None:
    ledger = client.server.ledger
    before = ledger.left
    handle = open_to_write(client)
    assert before - ledger.left == HANDLE_COST + GUARD_COST + len("f")
    client.close(handle)
    assert before - ledger.left == WRITTEN_COST, "what the client had last seen is remembered"
    client.server.end()
    assert ledger.left == before + own_changes.COST


def test_where_there_is_no_memory_for_it_nothing_is_emptied_nor_watched(
    client: Client, file: Path
) -> None:
    ledger = client.server.ledger
    ledger.take(ledger.left - HANDLE_COST - GUARD_COST)
    lease = c.lease(KEY, READ, epoch=0)
    lease += bytes(-len(lease) % 8)
    contexts = len(lease).to_bytes(4, "little") + lease[4:] + c.posix_context(0o644)
    for name, disposition in (("f", 5), ("new", 3)):
        wanted = c.create(
            name, access=WRITES, oplock=LEASE, contexts=contexts, disposition=disposition
        )
        assert client.ask(c.CREATE, wanted).status == TOO_MANY
    assert file.read_bytes() == b"0123456789"
    assert os.listdir(file.parent) == ["f"]
    assert not client.server.guards
    assert ledger.left == HANDLE_COST + GUARD_COST
    client.server.end()


def test_a_lease_that_cannot_be_read_opens_nothing(client: Client) -> None:
    before = client.server.ledger.left
    lease = c.context(b"RqLs", b"short")
    lease += bytes(-len(lease) % 8)
    contexts = len(lease).to_bytes(4, "little") + lease[4:] + c.posix_context(0o644)
    wanted = c.create("f", access=WRITES, oplock=LEASE, contexts=contexts, disposition=1)
    assert client.ask(c.CREATE, wanted).status == INVALID
    (session,) = client.server.sessions.values()
    assert not session.handles
    assert client.server.ledger.left == before


def test_an_open_that_fails_late_leaves_no_handle(
    client: Client, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError(Reason.GONE)

    wanted = c.create("f", access=0x1F01FF, disposition=1, options=0x1000)  # to be deleted
    with monkeypatch.context() as patch:
        patch.setattr(windows_metadata.WindowsMetadata, "view", fail)
        assert client.ask(c.CREATE, wanted).status != 0
    (session,) = client.server.sessions.values()
    assert not session.handles
    assert file.exists()


# What goes wrong while the host is heard


def test_what_happens_while_the_host_is_heard_is_for_the_next_time(
    client: Client, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_write(client)
    host = client.server._host
    assert host is not None
    heard = 0
    hear = host_watch.HostWatch._heard

    def hear_and_write(self: host_watch.HostWatch, data: bytes) -> dict[open_file.File, int]:
        nonlocal heard
        heard += 1
        assert heard < 10, "it never ends"
        append(file, b"more")
        return hear(self, data)

    with client.server.lock:
        monkeypatch.setattr(host_watch.HostWatch, "_heard", hear_and_write)
        append(file, b"host")
        host.hear()
        monkeypatch.undo()
    assert heard == 1


def test_an_error_does_not_end_the_listening(
    client: Client, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_write(client)
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("is told")

        told: list[int] = []
        patch.setattr(client.server._host, "_log_error", lambda: told.append(1))
        patch.setattr(Guard, "heard", fail)
        append(file, b"host")
        wait_for(lambda: bool(told), what="a complaint")
    append(file, b"host")
    wait_for_question(client)


class Broken:
    """A file that cannot be looked at."""

    def stat(self) -> Stat:
        raise StoreError(Reason.GONE)


def test_a_change_that_cannot_begin_is_not_under_way(client: Client, file: Path) -> None:
    handle = open_to_write(client)
    (guard,) = client.server.guards.values()
    with client.server.lock, pytest.raises(StoreError):
        guard.begin(cast("Node", Broken()))
    append(file, b"host")
    assert write(client, handle, 10, b"a") == [KEY]
    assert file.read_bytes() == b"0123456789hosta"


def test_the_host_is_heard_again_after_a_change_that_cannot_be_looked_at(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_write(client)
    (guard,) = client.server.guards.values()
    heard: list[Broken] = []
    monkeypatch.setattr(host_watch.WrittenWatch, "unmute", lambda _, node: heard.append(node))
    node = Broken()
    with client.server.lock, pytest.raises(StoreError):
        guard._busy += 1
        guard.finish_sizing(cast("Node", node))
    assert heard == [node]

"""Leases of directories: what a client may keep of them, and when it is told to look again."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from quicksand_smb import host_watch, kernel
from quicksand_smb.commands import lease_grants
from quicksand_smb.commands.basic import DIRECTORY_LEASING
from quicksand_smb.ledger import GRANT_COST, HANDLE_COST

from tests.each import each
from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Answer, Client
from tests.unit.smb_protocol.test_leases import (
    HANDLE,
    LEASE,
    READ,
    break_of,
    open_lease,
    state_of,
    wait_for_break,
)

DIRECTORY = 0x1
TOO_MANY = 0xC000011F
KEYS = [bytes([n]) * 16 for n in range(1, 10)]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "a").write_bytes(b"old")
    return Client(c.server(tmp_path, leases="directories")).begin(0x311, posix=True)


def keep(client: Client, name: str, key: bytes = KEYS[0], *, wanted: int = READ | HANDLE) -> Answer:
    """Open a directory as Linux does that wants to keep it."""
    contexts = c.lease(key, wanted, epoch=0)
    request = c.create(name, access=0x81, options=DIRECTORY, oplock=LEASE, contexts=contexts)
    return client.ask(c.CREATE, request)


def handle_of(answer: Answer) -> bytes:
    return answer.body[64:80]


def breaks(client: Client, command: int, body: bytes) -> tuple[list[bytes], list[Answer]]:
    """The keys of the leases asked back before the answers to a request, and the answers."""
    answers = client.frame(client.message(command, body))
    told = [one for one in answers if one.command == 18]
    assert answers[: len(told)] == told, "the client must hear it before the answer"
    return [one.body[8:24] for one in told], answers[len(told) :]


def test_a_directory_may_be_kept_but_not_its_handle_nor_a_file(client: Client) -> None:
    assert state_of(keep(client, "d")) == READ
    assert state_of(keep(client, "", KEYS[1])) == READ
    assert open_lease(client, KEYS[2], READ, name="d\\a").body[2] == 0


@each(("leases", "can"), [("directories", True), ("read", False), ("all", False)])
def test_a_client_is_told_whether_it_can(tmp_path: Path, leases: str, *, can: bool) -> None:
    new = Client(c.server(tmp_path, leases=leases)).begin(0x311)
    assert bool(new.connection.negotiated.capabilities & DIRECTORY_LEASING) == can


def test_nothing_is_kept_by_who_does_not_ask_to_read(client: Client) -> None:
    assert state_of(keep(client, "d", wanted=HANDLE)) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda at: (at / "d" / "new").write_bytes(b""),
        lambda at: (at / "d" / "a").write_bytes(b"newer"),
        lambda at: os.truncate(at / "d" / "a", 1),
        lambda at: (at / "d" / "a").chmod(0o600),
        lambda at: os.utime(at / "d" / "a", (1, 1)),
        lambda at: (at / "d" / "a").unlink(),
        lambda at: (at / "d" / "a").rename(at / "d" / "b"),
        lambda at: (at / "d" / "a").rename(at / "b"),
        lambda at: (at / "d" / "e").rmdir(),
        lambda at: (at / "d" / "link").symlink_to("a"),
        lambda at: (at / "d").rename(at / "was"),
        lambda at: (at / "d").chmod(0o700),
    ],
)
def test_the_host_s_change_ends_what_was_kept(
    client: Client, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    keep(client, "d")
    change(tmp_path)
    assert break_of(wait_for_break(client)) == (READ, 0, False)


def test_a_directory_above_that_the_host_moves_ends_it_too(client: Client, tmp_path: Path) -> None:
    keep(client, "d\\e")
    (tmp_path / "d").rename(tmp_path / "was")
    assert wait_for_break(client).body[8:24] == KEYS[0]


def test_what_was_written_by_a_mapping_is_known_when_the_file_is_closed(
    client: Client, tmp_path: Path
) -> None:
    keep(client, "d")
    file = (tmp_path / "d" / "a").open("r+b")
    with mmap.mmap(file.fileno(), 3) as mapping:
        mapping[0] = 1
    assert not client.hear()
    file.close()
    wait_for_break(client)


def test_looking_changes_nothing(client: Client, tmp_path: Path) -> None:
    keep(client, "d")
    assert sorted(os.listdir(tmp_path / "d")) == ["a", "e"]
    (tmp_path / "d" / "a").read_bytes()
    # inotify tells things in their order: had the above been told, it would come before this.
    keep(client, "", KEYS[1])
    (tmp_path / "new").write_bytes(b"")
    assert wait_for_break(client).body[8:24] == KEYS[1]
    assert not client.hear()


@pytest.fixture
def deaf(client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Its server does not hear what inotify tells, so what it says it knows by itself."""
    monkeypatch.setattr(host_watch.HostWatch, "_heard", lambda *_: {})
    return client


def test_the_guest_s_own_names_are_told_before_the_answer(deaf: Client) -> None:
    keep(deaf, "d")
    keep(deaf, "", KEYS[1])
    told, (made,) = breaks(deaf, c.CREATE, c.create("d\\new", disposition=2))
    assert (told, made.status) == ([KEYS[0]], 0)
    deaf.close(handle_of(made))
    keep(deaf, "d", KEYS[2])
    request = c.create("d\\new", access=0x10081, options=0x1000)
    told, (opened,) = breaks(deaf, c.CREATE, request)
    assert (told, opened.status) == ([], 0)
    told, (closed,) = breaks(deaf, c.CLOSE, c.close(handle_of(opened)))
    assert (told, closed.status) == ([KEYS[2]], 0)


def test_where_there_is_no_memory_for_it_a_directory_is_not_watched(client: Client) -> None:
    ledger = client.server.ledger
    ledger.take(ledger.left - HANDLE_COST - GRANT_COST)
    assert keep(client, "d").status == TOO_MANY
    assert ledger.left == HANDLE_COST + GRANT_COST
    (share,) = client.server.shares.values()
    assert (len(share.files), len(share.directory_leases)) == (0, 0)
    host = client.server._host
    assert host is None or not host._files


def test_a_renamed_file_is_told_in_both_directories(deaf: Client) -> None:
    keep(deaf, "d")
    keep(deaf, "d\\e", KEYS[1])
    keep(deaf, "", KEYS[2])
    file = deaf.open("d\\a", access=0x10080)
    told, (answer,) = breaks(deaf, c.SET, c.set_info(file, 10, c.rename("d\\e\\a")))
    assert (sorted(told), answer.status) == ([KEYS[0], KEYS[1]], 0)


def test_a_renamed_directory_takes_those_below_with_it(deaf: Client) -> None:
    for key, name in zip(KEYS, ("", "d", "d\\e"), strict=False):
        keep(deaf, name, key)
    # As Linux does it: Windows renames no directory in which something is open.
    request = c.create("d", access=0x10080, options=DIRECTORY, contexts=c.posix_context(0o755))
    file = handle_of(deaf.ask(c.CREATE, request))
    told, (answer,) = breaks(deaf, c.SET, c.set_info(file, 10, c.rename("was")))
    assert (sorted(told), answer.status) == (KEYS[:3], 0)


def test_a_hard_link_is_told_where_it_is_made(deaf: Client) -> None:
    keep(deaf, "d\\e")
    file = deaf.open("d\\a", access=0x10080)
    told, (answer,) = breaks(deaf, c.SET, c.set_info(file, 11, c.rename("d\\e\\a")))
    assert (told, answer.status) == ([KEYS[0]], 0)


def test_a_file_that_the_guest_empties_is_told_before_the_answer(deaf: Client) -> None:
    keep(deaf, "d")
    told, (answer,) = breaks(deaf, c.CREATE, c.create("d\\a", disposition=5))
    assert (told, answer.status) == ([KEYS[0]], 0)


def test_a_file_of_several_names_that_is_opened_is_looked_at_again(
    deaf: Client, tmp_path: Path
) -> None:
    (tmp_path / "twin").hardlink_to(tmp_path / "d" / "a")
    keep(deaf, "d")
    told, (answer,) = breaks(deaf, c.CREATE, c.create("d\\a", access=0x80))
    assert (told, answer.status) == ([], 0)
    told, (answer,) = breaks(deaf, c.CREATE, c.create("d\\a", access=0x81))
    assert (told, answer.status) == ([KEYS[0]], 0)


@pytest.mark.parametrize(
    ("command", "body"),
    [
        (c.WRITE, lambda file: c.write(file, 0, b"new")),
        (c.SET, lambda file: c.set_info(file, 20, bytes(8))),
        (c.SET, lambda file: c.set_info(file, 4, b"\1" + bytes(39))),
    ],
    ids=["bytes", "size", "times"],
)
def test_what_the_guest_changes_of_a_file_is_told_before_the_answer(
    deaf: Client, command: int, body: Callable[[bytes], bytes]
) -> None:
    file = deaf.open("d\\a")
    keep(deaf, "d")
    keep(deaf, "", KEYS[1])
    told, (answer,) = breaks(deaf, command, body(file))
    assert (told, answer.status) == ([KEYS[0]], 0)


def test_a_directory_that_was_moved_is_kept_under_its_new_path_only_when_opened_anew(
    client: Client, tmp_path: Path
) -> None:
    first = keep(client, "d")
    (tmp_path / "d").rename(tmp_path / "was")
    wait_for_break(client)
    second = keep(client, "was", KEYS[1])
    assert state_of(second) == 0
    client.close(handle_of(second))
    client.close(handle_of(first))
    assert state_of(keep(client, "was", KEYS[2])) == READ


def test_a_closed_directory_is_watched_no_more(client: Client, tmp_path: Path) -> None:
    share = client.server.shares["RW"]
    client.close(handle_of(keep(client, "d\\e")))
    assert not len(share.directory_leases)
    (tmp_path / "d" / "e" / "new").write_bytes(b"")
    assert state_of(keep(client, "d\\e")) == READ
    (tmp_path / "d" / "e" / "newer").write_bytes(b"")
    wait_for_break(client)


def test_what_others_may_change_unseen_is_not_kept(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    nfs = 0x6969
    monkeypatch.setattr(kernel, "file_system", lambda _: nfs)
    assert state_of(keep(client, "d")) == 0


def test_without_watches_nothing_is_kept(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = kernel.inotify_add, 0

    def refuse_the_second(descriptor: int, path: bytes, mask: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "no watches left")
        return real(descriptor, path, mask)

    monkeypatch.setattr(kernel, "inotify_add", refuse_the_second)
    assert state_of(keep(client, "d\\e")) == 0
    monkeypatch.undo()
    assert not len(client.server.shares["RW"].directory_leases)


def test_there_is_a_bound(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_watch, "MOST", 2)
    assert state_of(keep(client, "d")) == READ
    assert state_of(keep(client, "d\\e", KEYS[1])) == 0  # with the directory above it
    assert state_of(keep(client, "", KEYS[2])) == READ
    monkeypatch.undo()
    monkeypatch.setattr(lease_grants, "DEEPEST", 1)
    assert state_of(keep(client, "d\\e", KEYS[3])) == 0

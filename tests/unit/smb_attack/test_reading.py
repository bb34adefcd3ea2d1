"""The server never stops reading: QEMU writes to its socket while the whole machine waits."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from quicksand_smb import server as servers
from quicksand_smb.config import Config, ShareConfig
from quicksand_smb.server_state import ServerState

from tests.unit.smb_attack import raw
from tests.unit.smb_attack.guest import Guest, Server, StreamEnded


class Disk:
    """A share on a disk that can be made to hang."""

    def __init__(self, root: Path, *, resynchronise: bool = True) -> None:
        shares = (ShareConfig("RW", str(root), False),)
        self.server = ServerState(Config(shares, resynchronise=resynchronise))
        self.works = threading.Event()
        self.works.set()
        self.is_hanging = threading.Event()
        store = self.server.shares["RW"].store
        self._real = store.open
        store.open = self._open  # type: ignore[method-assign, assignment]
        ours, theirs = socket.socketpair()
        self.stream = servers.Stream(theirs, self.server)
        self._thread = threading.Thread(target=self.stream.serve, daemon=True)
        self._thread.start()
        self.guest = Guest(ours)

    def _open(self, *arguments: object) -> object:
        self.is_hanging.set()
        assert self.works.wait(60)
        return self._real(*arguments)  # type: ignore[arg-type]

    def hang(self) -> None:
        """From now on; and one request waits for it."""
        self.is_hanging.clear()
        self.works.clear()
        self.guest.send(self.guest.message(raw.CREATE, raw.create("file")))
        assert self.is_hanging.wait(60)

    def end(self) -> None:
        self.works.set()
        self.guest.stream.close()
        self._thread.join(60)
        self.server.end()
        assert not self._thread.is_alive()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    made.end()


def takes(guest: Guest, data: bytes, seconds: float) -> bool:
    """Whether the server takes all of it within a time."""
    guest.stream.settimeout(seconds)
    try:
        guest.stream.sendall(data)
    except TimeoutError:
        return False
    finally:
        guest.stream.settimeout(60)
    return True


def test_while_a_disk_hangs_everything_is_read(disk: Disk) -> None:
    guest = disk.guest.begin()
    file = guest.open("other")
    disk.hang()
    writes = [guest.message(raw.WRITE, raw.write(file, 0, bytes(65536))) for _ in range(100)]
    assert takes(guest, b"".join(map(raw.frame, writes)), 10)
    disk.works.set()
    heard = [guest.hear()[0] for _ in range(101)]
    assert {one.status for one in heard} == {raw.SUCCESS}
    guest.echo()


def test_that_fails_for_who_has_nobody_standing_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers.Stream, "_stand_by", lambda self, _: self._ended.acquire())
    disk = Disk(tmp_path)
    try:
        guest = disk.guest.begin()
        file = guest.open("other")
        disk.hang()
        writes = [guest.message(raw.WRITE, raw.write(file, 0, bytes(65536))) for _ in range(100)]
        assert not takes(guest, b"".join(map(raw.frame, writes)), 1)
    finally:
        disk.end()


def test_reading_changes_hands_again_and_again(disk: Disk) -> None:
    guest = disk.guest.begin()
    for _ in range(4):
        disk.hang()
        guest.send(guest.message(raw.ECHO, raw.NOTHING))
        # What a reader takes who cannot answer goes to a worker.
        deadline = threading.Event()
        while not disk.stream._delayed:
            assert not deadline.wait(0.01)
        disk.works.set()
        assert {guest.hear()[0].command, guest.hear()[0].command} == {raw.CREATE, raw.ECHO}
        guest.echo()
    assert disk.stream._threads <= 2 + servers.MOST_WORKERS


def test_who_floods_a_hanging_disk_is_cut_off(disk: Disk) -> None:
    guest = disk.guest.begin()
    disk.hang()
    one = raw.frame(guest.message(raw.WRITE, raw.write(bytes(16), 0, bytes(1 << 20)), charge=16))
    with pytest.raises((StreamEnded, ConnectionError)):
        for _ in range(100):
            assert takes(guest, one, 10)
    assert disk.stream._waiting <= servers.MOST_WAITING


def test_where_a_stream_has_an_end_a_flood_only_waits(tmp_path: Path) -> None:
    disk = Disk(tmp_path, resynchronise=False)
    try:
        guest = disk.guest.begin()
        file = guest.open("other")
        # As many credits as there are: none has to be granted while the disk hangs.
        while guest.done(raw.ECHO, raw.NOTHING, asked=8192).credits > 1:
            pass
        disk.hang()
        writes = [
            guest.message(raw.WRITE, raw.write(file, 0, bytes(1 << 20)), charge=16)
            for _ in range(40)
        ]
        sender = threading.Thread(target=guest.send, args=writes)
        sender.start()
        disk.works.set()
        heard = [guest.hear()[0] for _ in range(41)]
        sender.join()
        assert {one.status for one in heard} == {raw.SUCCESS}
    finally:
        disk.end()


def flood(server: Server, message: Callable[[], bytes], most: int) -> None:
    """Ask and never read: it goes on taking requests until it cuts the stream."""
    guest = server.guest
    with pytest.raises((StreamEnded, ConnectionError)):
        for _ in range(most):
            assert takes(guest, message(), 10)
            server.memory()
    server.wait_until(server.has_ended)


def test_who_never_reads_replies_is_cut_off(server: Server) -> None:
    guest = server.guest.begin()
    (server.share / "big").write_bytes(bytes(65535))
    file = guest.open("big")

    def message() -> bytes:
        return raw.frame(guest.message(raw.READ, raw.read(file, 0, 65535)))

    flood(server, message, 2000)


def test_echoes_that_nobody_hears_end_the_stream(server: Server) -> None:
    guest = server.guest.begin()

    def message() -> bytes:
        return b"".join(
            raw.frame(guest.message(raw.ECHO, raw.NOTHING, asked=1)) for _ in range(500)
        )

    flood(server, message, 1000)


def test_a_guest_that_pauses_hears_all_when_it_goes_on(server: Server) -> None:
    """As a paused machine does: what it has credits for is kept for it."""
    (server.share / "big").write_bytes(bytes(range(256)) * 4096)
    guest = server.guest.begin()
    file = guest.open("big")
    for _ in range(4):
        guest.echo()
    asked = [guest.message(raw.READ, raw.read(file, 0, 1 << 20), charge=16) for _ in range(8)]
    guest.send(*asked, guest.message(raw.ECHO, raw.NOTHING))
    # The server sends what fits, and keeps the rest.
    assert not guest.is_silent(5)
    heard = [guest.hear()[0] for _ in range(9)]
    assert sorted(one.command for one in heard) == [raw.READ] * 8 + [raw.ECHO]
    assert all(len(one.data) == 1 << 20 for one in heard if one.command == raw.READ)
    guest.echo()


@pytest.mark.parametrize("parts", [1, 8])
def test_large_answers_in_chains_that_nobody_hears_end_the_stream(
    server: Server, parts: int
) -> None:
    """Those are in memory, and several workers make them at once."""
    with (server.share / "big").open("wb") as file:
        for _ in range(8):
            file.write(bytes(1 << 20))
    guest = server.guest.begin()
    while guest.done(raw.ECHO, raw.NOTHING, asked=8192).credits > 1:
        pass
    opened = guest.open("big")
    count = (8 << 20) // parts
    charge = count >> 16

    def message() -> bytes:
        reads = [
            guest.message(raw.READ, raw.read(opened, 0, count), charge=charge, asked=8192)
            for _ in range(parts)
        ]
        # A request counts as answered, and gives credits for the next, though nobody has heard it.
        server.wait_until(server.is_idle)
        return raw.frame(raw.chain(*reads, guest.message(raw.ECHO, raw.NOTHING, asked=8192)))

    flood(server, message, 100)

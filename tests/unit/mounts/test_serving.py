"""A share's server beside something that stands for QEMU: it listens on the share's socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from quicksand import SandboxConfig
from quicksand.base.errors import MountError, StateError
from quicksand.base.files import is_locked
from quicksand.base.paths import Paths
from quicksand.base.processes import is_process, start_of
from quicksand.mounts import mounting, shares
from quicksand.mounts.at_start import MountsAtStart
from quicksand.mounts.directories import check_directory
from quicksand.mounts.share_server import start_server
from quicksand.mounts.shares import Share, traffic_of
from quicksand.records.layout import SHARES, MachineDir
from quicksand.records.mount import Mount
from quicksand.things.sandbox_facts import GuestTraffic
from quicksand_smb import HANG_UP, supervisor

from tests.conftest import blank_record, our_processes, wait_for
from tests.unit.smb_attack import raw
from tests.unit.smb_attack.guest import Guest

# A frame of four bytes of length, and the header of a NEGOTIATE with one dialect, 3.1.1 without its
# contexts replaced by 2.1 ([MS-SMB2] 2.2.1, 2.2.3).
NEGOTIATE = (
    b"\xfeSMB" + (64).to_bytes(2, "little") + bytes(8) + (1).to_bytes(2, "little") + bytes(48)
    + (36).to_bytes(2, "little") + (1).to_bytes(2, "little") + (1).to_bytes(2, "little")
    + bytes(30) + (0x0210).to_bytes(2, "little")
)  # fmt: skip


class Qemu:
    """The other side of every share's stream."""

    def __init__(self, machine: MachineDir) -> None:
        self.listeners = {}
        for number in range(SHARES):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(machine.share_socket(number)))
            listener.listen(16)
            listener.settimeout(60)
            self.listeners[number] = listener

    def accept(self, number: int = 0) -> socket.socket:
        stream, _ = self.listeners[number].accept()
        stream.settimeout(60)
        return stream

    def end(self) -> None:
        for listener in self.listeners.values():
            listener.close()


@pytest.fixture
def machine(places: Paths) -> Iterator[MachineDir]:
    root = places.runtime / "m"
    root.mkdir(parents=True)
    yield MachineDir(root)
    for path in root.iterdir():
        path.unlink()
    root.rmdir()


@pytest.fixture
def qemu(machine: MachineDir) -> Iterator[Qemu]:
    qemu = Qemu(machine)
    yield qemu
    qemu.end()
    wait_for(lambda: not our_processes(str(machine.root)), what="the servers' end")


@pytest.fixture
def data(tmp_path: Path) -> Mount:
    (tmp_path / "data").mkdir()
    return Mount(str(tmp_path / "data"), "/mnt/data")


def greets(stream: socket.socket) -> bool:
    """Whether a server answers on a stream."""
    stream.sendall(len(NEGOTIATE).to_bytes(4, "big") + NEGOTIATE)
    return stream.recv(8)[4:] == b"\xfeSMB"


def heard(stream: socket.socket, count: int) -> bytes:
    """The next ``count`` bytes of a stream, fewer if it ends."""
    found = b""
    while len(found) < count and (more := stream.recv(count - len(found))):
        found += more
    return found


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_server_outlives_its_starter_and_ends_with_qemu(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    share = await start_server(machine, data, "secret")
    with qemu.accept() as stream:
        assert share.is_served
        assert greets(stream)
        assert os.getsid(share.pid) == share.pid, "it has a session of its own"
        qemu.end()
    wait_for(lambda: not share.is_served, what="the server's end")


def test_an_engine_from_before_an_upgrade_starts_servers_by_a_former_name(
    machine: MachineDir, qemu: Qemu, data: Mount, tmp_path: Path
) -> None:
    config = {"shares": {"A": {"path": data.host}}, "resynchronise": True}
    (tmp_path / "config").write_text(json.dumps(config))
    command = [sys.executable, "-m", "quicksand_smb", "--config", str(tmp_path / "config")]
    command += ["--attend", str(machine.share_socket(0))]
    started = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert started.stdout.startswith("ready "), started.stderr
    with qemu.accept() as stream:
        assert greets(stream)


async def test_a_server_that_is_killed_is_begun_anew_and_the_guest_told(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    share = await start_server(machine, data, "secret")
    stream = qemu.accept()
    for _ in range(3):
        (server,) = children_of(share.pid)
        os.kill(server, signal.SIGKILL)
        with contextlib.closing(stream):
            while stream.recv(4096):  # the rest of an answer
                pass
        stream = qemu.accept()
        assert heard(stream, len(HANG_UP)) == HANG_UP
        assert greets(stream)
    assert share.is_served
    stream.close()


async def test_one_that_is_begun_anew_serves_the_directory_that_was_mounted(
    machine: MachineDir, qemu: Qemu, data: Mount, tmp_path: Path
) -> None:
    """Its name leads elsewhere by now, to what the server may neither serve nor reach."""
    Path(data.host, "file").write_text("mounted")
    share = await start_server(machine, data, "secret")
    stream = qemu.accept()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "private").touch()
    Path(data.host).rename(tmp_path / "moved")
    Path(data.host).symlink_to(tmp_path / "other")
    (server,) = children_of(share.pid)
    os.kill(server, signal.SIGKILL)
    stream.close()
    with qemu.accept() as stream:
        assert heard(stream, len(HANG_UP)) == HANG_UP
        guest = Guest(stream)
        guest.negotiate(0x210)
        guest.log_in("secret")
        guest.connect(share.name)
        guest.open("file", disposition=raw.OPEN)
        guest.open("new", disposition=raw.NEW)
    assert sorted(os.listdir(tmp_path / "moved")) == ["file", "new"]
    share.end()


async def test_what_a_stream_carries_is_counted_by_whichever_server(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    machine.share_traffic(0).write_bytes(b"\xff" * 16)  # a mount before this one
    share = await start_server(machine, data, "secret")
    stream = qemu.accept()
    assert traffic_of(machine, 0) == GuestTraffic(received=0, sent=0)
    greeting = 4 + len(NEGOTIATE)
    assert greets(stream)
    wait_for(lambda: traffic_of(machine, 0).received > 64, what="the answer is counted")  # type: ignore[union-attr]
    first = traffic_of(machine, 0)
    assert first is not None
    assert first.sent == greeting
    (server,) = children_of(share.pid)
    files = {os.readlink(link) for link in Path(f"/proc/{server}/fd").iterdir()}
    assert str(machine.share_traffic(0)) not in files, "it writes nothing else there"
    os.kill(server, signal.SIGKILL)
    stream.close()
    with qemu.accept() as stream:
        assert heard(stream, len(HANG_UP)) == HANG_UP
        assert greets(stream)
        twice = GuestTraffic(received=2 * first.received, sent=2 * greeting)
        wait_for(lambda: traffic_of(machine, 0) == twice, what="both are counted")
    share.end()


async def test_a_stream_whose_bytes_cannot_be_counted_is_served(
    machine: MachineDir, qemu: Qemu, data: Mount, tmp_path: Path
) -> None:
    """The name is a link: nothing of ours, and nothing is written there."""
    (tmp_path / "other").write_text("theirs")
    machine.share_traffic(0).symlink_to(tmp_path / "other")
    share = await start_server(machine, data, "secret")
    with qemu.accept() as stream:
        assert greets(stream)
    assert (tmp_path / "other").read_text() == "theirs"
    assert traffic_of(machine, 0) is None
    share.end()


async def test_without_its_attendant_there_is_no_server(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    share = await start_server(machine, data, "secret")
    with qemu.accept() as stream:
        (server,) = children_of(share.pid)
        started = start_of(server)
        share.end()
        assert stream.recv(1) == b""
    wait_for(lambda: not is_process(server, started), what="its end")
    share.end()  # once more: nothing happens


def test_a_server_whose_attendant_has_ended_before_it_began_serves_nobody() -> None:
    """By then its parent is another, whose end tells nothing."""
    code = """
import os
from quicksand_smb import supervisor
supervisor._die_with({})
os.write(1, b"serves")
"""
    for parent, said in (("os.getppid()", "serves"), ("os.getpid()", "")):
        command = [sys.executable, "-c", code.format(parent)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == said, done.stderr


async def test_a_server_that_ends_again_and_again_is_given_up(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    share = await start_server(machine, data, "secret")
    qemu.listeners[0].settimeout(0.1)
    while share.is_served:
        with contextlib.suppress(TimeoutError):
            qemu.accept().close()
    wait_for(lambda: not share.is_served, what="the end of it")


async def test_the_secret_is_in_no_file_and_on_no_command_line(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    secret = "d" * 32
    share = await start_server(machine, data, secret)
    with qemu.accept():
        for pid in (share.pid, *children_of(share.pid)):
            for name in ("cmdline", "environ"):
                assert secret.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        shares.note(machine, share)
        assert secret not in machine.share_record(0).read_text()
        share.end()


@pytest.mark.parametrize("what", ["missing", "file"])
async def test_what_is_no_directory_is_refused(
    machine: MachineDir, qemu: Qemu, tmp_path: Path, what: str, places: Paths
) -> None:
    if what == "file":
        (tmp_path / what).touch()
    mount = Mount(str(tmp_path / what), "/mnt/data")
    with pytest.raises(MountError, match=what):
        check_directory(mount, places)
    with pytest.raises(MountError, match=what):
        await start_server(machine, mount, "secret")


async def test_a_machine_without_streams_is_told_of(machine: MachineDir, data: Mount) -> None:
    with pytest.raises(StateError, match="no way to the host"):
        await start_server(machine, data, "secret")


async def test_a_machine_that_has_ended_is_told_of(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    qemu.end()
    with pytest.raises(MountError, match="refused"):
        await start_server(machine, data, "secret")


async def test_a_start_that_is_cancelled_leaves_no_server(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    for wait in (0.0, 0.01, 0.03, 0.1):
        start = asyncio.create_task(start_server(machine, data, "secret"))
        await asyncio.wait((start,), timeout=wait)
        start.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            (await start).end()
        wait_for(lambda: not our_processes(str(machine.root)), what="its end")


async def test_one_missing_directory_and_none_is_served(
    machine: MachineDir, qemu: Qemu, data: Mount, places: Paths, tmp_path: Path
) -> None:
    known = check_directory(data, places)
    (tmp_path / "missing").mkdir()
    missing = Mount(str(tmp_path / "missing"), "/mnt/missing")
    gone = check_directory(missing, places)
    (tmp_path / "missing").rmdir()
    with pytest.raises(MountError, match="missing"):
        await mounting.serve_all(machine, [(data, known), (missing, gone)])
    wait_for(lambda: not our_processes(str(machine.root)), what="their end")
    served = await mounting.serve_all(machine, [(data, known)] * 3, avoid={0, 2})
    assert sorted(share.number for share, _ in served) == [1, 3, 4]
    assert len({secret for _, secret in served}) == 3
    for share, _ in served:
        share.end()


def test_quicksands_own_files_are_not_given_to_a_guest_to_change(places: Paths) -> None:
    places.data.mkdir(parents=True, exist_ok=True)
    inside = places.data / "sandboxes"
    inside.mkdir(exist_ok=True)
    for path in (places.data.parent, places.runtime.parent):
        with pytest.raises(MountError, match="own files"):
            check_directory(Mount(str(path), "/mnt"), places)
        check_directory(Mount(str(path), "/mnt", readonly=True), places)
    for path in (places.data, inside):
        for readonly in (False, True):
            with pytest.raises(MountError, match="own directories"):
                check_directory(Mount(str(path), "/mnt", readonly=readonly), places)


# Records


def share_of(number: int, mount: Mount) -> Share:
    return Share(
        number=number,
        name="S",
        mount=mount,
        pid=os.getpid(),
        started=start_of(os.getpid()),
    )


def test_a_record_counts_as_long_as_its_server_lives(machine: MachineDir, data: Mount) -> None:
    share = share_of(3, data)
    shares.note(machine, share)
    assert shares.list_shares(machine) == [share]
    shares.note(machine, Share(number=5, name="S", mount=data, pid=share.pid, started="long ago"))
    assert shares.list_shares(machine) == [share]


def test_streams_are_taken_in_turn_those_to_be_avoided_last(machine: MachineDir) -> None:
    with contextlib.ExitStack() as taken:
        order = [taken.enter_context(shares.a_stream(machine, {0, 2}))[0] for _ in range(SHARES)]
        assert order == [1, *range(3, SHARES), 0, 2]
        with pytest.raises(StateError, match="16 directories"):
            taken.enter_context(shares.a_stream(machine))
    with shares.a_stream(machine) as (number, _):
        assert number == 0


async def test_what_a_killed_client_left_is_ended(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    known = await start_server(machine, data, "secret")
    shares.note(machine, known)
    left = await start_server(machine, data, "secret")
    assert (known.number, left.number) == (0, 1)
    shares.end_unknown(machine)
    wait_for(lambda: not left.is_served, what="the end of the one without a record")
    assert known.is_served
    wait_for(lambda: not is_locked(machine.share_lock(1)), what="its lock")
    with shares.a_stream(machine) as (number, _):
        assert number == 1
    known.end()


def remove(name: str) -> Callable[[dict[str, object]], None]:
    return lambda record: record.__delitem__(name)


@pytest.mark.parametrize(
    "change",
    [
        remove("pid"),
        remove("mount"),
        lambda record: record.update(number=7),
        lambda record: record.update(mount={"host": 1, "guest": 2}),
        lambda record: record.update(pid="x"),
    ],
)
def test_a_damaged_record_is_passed_over(
    machine: MachineDir, data: Mount, change: Callable[[dict[str, object]], None]
) -> None:
    shares.note(machine, share_of(0, data))
    path = machine.share_record(0)
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    assert shares.list_shares(machine) == []
    path.write_text("no JSON")
    assert shares.list_shares(machine) == []


async def test_the_last_words_of_a_server_are_kept_and_bounded(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    share = await start_server(machine, data, "secret")
    stream = qemu.accept()
    assert shares.last_words(machine, 0) == ""
    for _ in range(2):
        wait_for(lambda: children_of(share.pid), what="its server")
        (server,) = children_of(share.pid)
        os.kill(server, signal.SIGSEGV)
        with contextlib.closing(stream):
            while stream.recv(4096):
                pass
        stream = qemu.accept()
        wait_for(lambda: machine.share_log(0).exists(), what="its last words")
    # The server that is there now would end, and say so, with its stream.
    wait_for(lambda: "signal 11" in shares.last_words(machine, 0), what="how it ended")
    stream.close()
    assert machine.share_log(0).stat().st_mode & 0o777 == 0o600


def test_what_servers_said_is_one_line_that_can_be_shown(machine: MachineDir) -> None:
    log = machine.share_log(0)
    log.write_text("old\n2026-01-01 00:00:00 the server ended, status 1\nTraceback\nE: \x1b[2J\n")
    assert (
        shares.last_words(machine, 0) == "2026-01-01 00:00:00 the server ended, status 1: E: ?[2J"
    )
    log.write_text("x" * 100_000)
    assert len(shares.last_words(machine, 0)) == shares.WORDS_MAX


def test_the_log_of_servers_stays_small_and_is_no_link(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for number in range(20):
        supervisor._write(str(log), b"%d" % number + b"x" * supervisor.WORDS_MAX)
    assert log.stat().st_size == supervisor.LOG_MAX
    assert log.read_bytes().endswith(b"19" + b"x" * supervisor.WORDS_MAX)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    supervisor._write(str(link), b"words")
    assert not (tmp_path / "elsewhere").exists()


def test_of_what_is_written_the_end_is_heard() -> None:
    heard, said = os.pipe()
    os.write(said, b"a" * 10_000 + b"the end")
    os.close(said)
    assert supervisor._hear_out(heard) == (b"a" * 10_000 + b"the end")[-supervisor.WORDS_MAX :]


async def test_a_machine_remembers_that_its_guest_may_have_mounts(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    assert not shares.may_be_mounted(machine)
    share = await start_server(machine, data, "secret")
    shares.forget(machine, share)
    assert shares.may_be_mounted(machine), "whether it is unmounted only the guest knows"
    wait_for(lambda: not share.is_served, what="the server's end")


@pytest.mark.parametrize("is_past", [True, False])
async def test_a_guest_is_asked_for_old_mounts_only_if_there_can_be_some(
    machine: MachineDir, qemu: Qemu, places: Paths, is_past: bool
) -> None:
    asked: list[str] = []

    async def ask(method: str, _params: dict[str, Any], _seconds: float) -> dict[str, Any]:
        asked.append(method)
        return {"shares": []}

    record = blank_record(SandboxConfig.parse({"image": "x"}))
    mounts = MountsAtStart(record, places, is_past=is_past)
    mounts.note(machine)
    assert shares.may_be_mounted(machine) == is_past
    await mounts.begin(machine)
    await mounts.finish(machine, ask)
    # What is mounted, and what its kernel keeps beside that.
    assert asked == ["shares", "shares"] * is_past
    assert not shares.may_be_mounted(machine), "they are detached"


async def test_a_qemu_gets_only_so_many_servers(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    machine.share_starts.write_bytes(b"\n" * (shares.STARTS_MAX - 1))
    share = await start_server(machine, data, "secret")
    for _ in range(2):
        with pytest.raises(StateError, match="1000 directories were mounted"):
            await start_server(machine, data, "secret")
    assert share.is_served

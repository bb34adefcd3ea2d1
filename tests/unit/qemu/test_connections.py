"""Connections of a process that are ended from outside, as those of a running QEMU."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from quicksand.base import borrowing
from quicksand.base.errors import MachineError, QemuDiedError
from quicksand.qemu.disconnecting import end_forwarded, end_streams, why_not

from tests.conftest import wait_for

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can do that")

SERVER = """
import json, os, selectors, socket, sys

paths, dials = json.loads(sys.argv[1])
loop, kept = selectors.DefaultSelector(), []

def listen(listener):
    listener.listen(64)
    loop.register(listener, selectors.EVENT_READ, accept)

def accept(listener):
    one, _ = listener.accept()
    one.sendall(b"hello")
    loop.register(one, selectors.EVENT_READ, answer)

def answer(one):
    data = b""
    try:
        data = one.recv(4096)
        one.sendall(data)
    except OSError:
        data = b""
    if not data:
        loop.unregister(one)
        one.close()

for path in paths:
    one = socket.socket(socket.AF_UNIX)
    one.bind(bytes.fromhex(path))
    listen(one)
ports = []
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    one = socket.socket(family)
    one.bind((address, 0))
    ports.append(one.getsockname()[1])
    listen(one)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("127.0.0.1", 0))
loop.register(datagrams, selectors.EVENT_READ, lambda one: one.sendto(*one.recvfrom(100)))
for port in dials:
    loop.register(socket.create_connection(("127.0.0.1", port)), selectors.EVENT_READ, answer)
pair = socket.socketpair()
print(json.dumps([*ports, datagrams.getsockname()[1]]), flush=True)
while True:
    for key, _ in loop.select():
        key.data(key.fileobj)
"""  # noqa: E501


@dataclass
class Server:
    """A process that answers at sockets as QEMU does."""

    process: subprocess.Popen[bytes]
    ports: tuple[int, int, int]
    """Two of 127.0.0.1, one of ::1."""
    datagrams: int

    @property
    def pid(self) -> int:
        return self.process.pid


@contextlib.contextmanager
def serving(*paths: str | Path, dials: tuple[int, ...] = ()) -> Iterator[Server]:
    words = json.dumps([[os.fsencode(path).hex() for path in paths], dials])
    with subprocess.Popen([sys.executable, "-c", SERVER, words], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            *ports, datagrams = json.loads(process.stdout.readline())
            yield Server(process, (ports[0], ports[1], ports[2]), datagrams)
        finally:
            process.kill()


def connect(to: Any) -> socket.socket:
    """A connection that the server has accepted."""
    if isinstance(to, tuple):
        one = socket.create_connection(to, timeout=60)
    else:
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(60)
        one.connect(str(to))
    assert one.recv(5) == b"hello"
    return one


def lives(one: socket.socket) -> bool:
    try:
        one.sendall(b"x")
        return one.recv(1) == b"x"
    except OSError:
        return False


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runtime directory with the directories of two machines and a hard name."""
    found = tmp_path_factory.mktemp("r") / "a b\nc\udcff"
    for number in ("1", "2"):
        (found / number).mkdir(parents=True)
    return found


def test_only_connections_at_the_named_sockets_of_that_sandbox_are_ended(
    root: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "1"
    other.mkdir(parents=True)
    ended = [root / "1" / "agent0.sock", root / "2" / "smb3.sock"]
    stay = [root / "1" / "qmp0.sock", root / "1" / "vnc.sock", root / "agent0.sock",
            other / "agent0.sock"]  # fmt: skip
    names = {"agent0.sock", "agent1.sock", "smb3.sock"}
    with serving(*ended, *stay) as server, contextlib.ExitStack() as stack:
        gone = [stack.enter_context(connect(path)) for path in ended]
        kept = [stack.enter_context(connect(path)) for path in stay]
        kept.append(stack.enter_context(connect(("127.0.0.1", server.ports[0]))))
        assert end_streams(server.pid, root, names) == ["agent0.sock", "smb3.sock"]
        assert [one.recv(1) for one in gone] == [b"", b""]
        assert [lives(one) for one in kept] == [True] * len(kept)
        # It listens there as before.
        assert [lives(stack.enter_context(connect(path))) for path in ended] == [True, True]
        assert end_streams(server.pid, root, []) == []


def test_a_connection_has_the_name_its_socket_was_bound_to_wherever_that_lies_now(
    root: Path,
) -> None:
    """A machine's directory is replaced by one with hard links of its sockets."""
    bound, now = root / "1" / "agent0.sock", root / "3" / "agent0.sock"
    with serving(bound) as server:
        now.parent.mkdir()
        now.hardlink_to(bound)
        bound.unlink()
        bound.parent.rmdir()
        with connect(now) as one:
            assert end_streams(server.pid, root, ["agent0.sock"]) == ["agent0.sock"]
            assert one.recv(1) == b""


def test_the_runtime_directory_may_be_named_by_another_path(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    path = root / "1" / "agent0.sock"
    with serving(path) as server, connect(path) as one:
        assert end_streams(server.pid, link, ["agent0.sock"]) == ["agent0.sock"]
        assert one.recv(1) == b""


def test_a_client_that_reads_nothing_is_ended_too(root: Path) -> None:
    path = root / "1" / "agent0.sock"
    with serving(path) as server, connect(path) as one:
        one.settimeout(0.2)
        with pytest.raises(TimeoutError):
            while True:
                one.sendall(bytes(100_000))  # the answers fill their buffer
        assert end_streams(server.pid, root, ["agent0.sock"]) == ["agent0.sock"]
        with connect(path) as other:
            assert lives(other)


def test_what_goes_through_forwarded_ports_is_ended_both_ways(root: Path) -> None:
    path = root / "1" / "agent0.sock"
    with (
        socket.create_server(("127.0.0.1", 0)) as peer,
        serving(path, dials=(peer.getsockname()[1],)) as server,
        contextlib.ExitStack() as stack,
    ):
        peer.settimeout(60)
        outwards = stack.enter_context(peer.accept()[0])
        outwards.settimeout(60)
        viewer_port, forward, forward6 = server.ports
        addresses = [("127.0.0.1", forward), ("::1", forward6)]
        gone = [outwards, *(stack.enter_context(connect(address)) for address in addresses)]
        stay = [stack.enter_context(connect(at)) for at in (("127.0.0.1", viewer_port), path)]
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.settimeout(60)
        datagrams.connect(("127.0.0.1", server.datagrams))
        assert all(lives(one) for one in (*gone[1:], *stay, datagrams))
        assert end_forwarded(server.pid, keep=[viewer_port]) == 3
        assert [one.recv(1) for one in gone] == [b"", b"", b""]
        assert all(lives(one) for one in (*stay, datagrams))
        assert all(lives(stack.enter_context(connect(address))) for address in addresses)


def test_connections_of_other_processes_stay(root: Path) -> None:
    with serving() as server, serving() as other, connect(("127.0.0.1", other.ports[0])) as one:
        assert end_forwarded(server.pid, keep=[]) == 0
        assert lives(one)


def test_a_qemu_that_has_ended_is_an_error(root: Path) -> None:
    with serving() as server:
        assert why_not(server.pid) == ""
        server.process.kill()
        # Until it is waited for, the system knows a process that has ended.
        wait_for(
            lambda: Path(f"/proc/{server.pid}/stat").read_text().split(") ")[1][0] == "Z",
            what="its end",
        )
        for _ in range(2):
            assert "has ended" in why_not(server.pid)
            with pytest.raises(QemuDiedError, match="has ended"):
                end_forwarded(server.pid, keep=[])
            with pytest.raises(QemuDiedError, match="has ended"):
                end_streams(server.pid, root, ["agent0.sock"])
            server.process.wait()


def test_a_kernel_that_refuses_is_known_beforehand(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server, connect(("127.0.0.1", server.ports[0])) as one:
        assert why_not(server.pid) == ""
        assert lives(one), "nothing is ended to find out"
        with monkeypatch.context() as patch:
            patch.setattr(borrowing, "PIDFD_GETFD", 10_000)  # as where a filter refuses the call
            assert "pidfd_getfd: Function not implemented" in why_not(server.pid)
            with pytest.raises(MachineError, match="pidfd_getfd"):
                end_forwarded(server.pid, keep=[])
        with monkeypatch.context() as patch:
            patch.delattr(os, "pidfd_open")
            assert why_not(server.pid) == "QEMU's connections can be ended on Linux only"
            with pytest.raises(MachineError, match="on Linux only"):
                end_streams(server.pid, root, ["agent0.sock"])
        assert lives(one)

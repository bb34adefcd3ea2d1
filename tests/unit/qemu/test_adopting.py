"""What a new keeper waits for before a QEMU gets its forwards back, and how it sees one end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.qemu.keeper_parts.adopting import _await_port, _is_anothers
from quicksand.qemu.keeper_parts.bounds import MemoryWatch
from quicksand.qemu.keeper_parts.full_disk import SpaceWatch
from quicksand.qemu.keeper_parts.machines import Machine

from tests.conftest import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it takes /proc")

LISTENER = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that listens, and its port."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def test_a_port_is_waited_for_while_another_process_has_it(
    other: tuple[subprocess.Popen[str], int],
) -> None:
    process, port = other
    waiting = threading.Thread(target=_await_port, args=(port, os.getpid(), time.monotonic() + 90))
    waiting.start()
    assert _is_anothers(port, os.getpid())
    assert waiting.is_alive()
    process.kill()
    waiting.join(timeout=60)
    assert not waiting.is_alive()
    wait_for(lambda: not _is_anothers(port, os.getpid()), what="the port to be free")


def test_one_that_a_stranger_keeps_is_given_up_at_the_deadline(
    other: tuple[subprocess.Popen[str], int],
) -> None:
    _, port = other
    _await_port(port, os.getpid(), time.monotonic() - 1)
    assert _is_anothers(port, os.getpid())


def test_one_that_it_has_itself_or_nobody_has_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not _is_anothers(port, os.getpid())
    assert not _is_anothers(port, os.getpid())


def test_a_qemu_that_has_ended_belongs_to_nobody_else() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        assert not _is_anothers(80, process.pid)


@pytest.mark.parametrize(("last_words", "code"), [(b'{"event": "SHUTDOWN"}\n', 0), (b"", None)])
def test_a_machine_whose_last_words_nobody_has_read_yet_has_ended_as_they_say(
    tmp_path: Path, last_words: bytes, code: int | None
) -> None:
    ours, qemus = socket.socketpair()
    with ours, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        space = SpaceWatch(ours, str(tmp_path), str(tmp_path))
        memory = MemoryWatch(process.pid, None, space, str(tmp_path))
        machine = Machine("1", process.pid, {}, space, memory, str(tmp_path))
        machine.pidfd = os.pidfd_open(process.pid)
        try:
            assert not machine.look()
            qemus.sendall(b'{"event": "RTC_CHANGE"}\n' * 5000 + last_words)
            qemus.close()
            process.kill()
            wait_for(machine.look, what="its end")
            assert machine.code == code
        finally:
            os.close(machine.pidfd)

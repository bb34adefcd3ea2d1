"""A burst of connections to a forwarded port."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from quicksand.base import borrowing
from quicksand.qemu.keeper_successor import widen_backlogs

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can do that")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """One as QEMU's network has it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen(1)
        yield found


def waiting(port: int, wanted: int) -> list[socket.socket]:
    """Connections that the kernel lets wait, of as many as are wanted."""
    made = []
    for _ in range(wanted):
        one = socket.socket()
        one.settimeout(0.2)
        made.append(one)
        try:
            one.connect(("127.0.0.1", port))
        except TimeoutError:
            break
    return made


def test_as_many_as_come_at_once_wait_until_qemu_takes_them(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    few = waiting(port, 20)
    assert len(few) < 5, "the kernel drops the rest"
    assert widen_backlogs(os.getpid(), [port]) == 1
    many = waiting(port, 100)
    assert len(many) == 100
    assert many[-1].getpeername()[1] == port
    for one in (*few, *many):
        one.close()


def test_other_ports_and_processes_are_left_alone(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert widen_backlogs(os.getpid(), []) == 0
    assert widen_backlogs(os.getpid(), [1]) == 0
    assert widen_backlogs(2**22 + 1, [listener.getsockname()[1]]) == 0
    monkeypatch.setattr(borrowing, "PIDFD_GETFD", 10_000)  # as where a filter refuses the call
    assert widen_backlogs(os.getpid(), [listener.getsockname()[1]]) == 0

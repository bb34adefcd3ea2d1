"""The ports of a start, without a guest."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.background import StandBy, receive
from quicksand.base.errors import HostError, PortInUseError
from quicksand.base.files import is_locked, try_named_lock
from quicksand.life.forwarder import match_sockets
from quicksand.records.dialled import ForwarderFiles
from quicksand.records.layout import RuntimeDir
from quicksand.records.port_forwards import PortForward, Protocol
from quicksand.warm import publishing
from quicksand.warm.publishing import ForwarderCheck, Published


class Process:
    """Stands in for the process that carries ports; `end` is its stdin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends: list[socket.socket] = []

        async def start(_: str) -> StandBy:
            ours, theirs = socket.socketpair()
            self.ends.append(theirs)
            return StandBy(ours)

        monkeypatch.setattr(StandBy, "start", start)

    def given(self) -> tuple[Any, list[int]]:
        with self.ends.pop() as end:
            return receive(end.fileno())


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(monkeypatch)


@pytest.fixture
def runtime(tmp_path: Path) -> RuntimeDir:
    return RuntimeDir(root=tmp_path, of=tmp_path)


def lock_of(runtime: RuntimeDir) -> Path:
    return ForwarderFiles(runtime.root).lock


def connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


def told(published: Published) -> list[list[Any]]:
    return [[one.host, one.guest, one.protocol.value] for one in published.forwards]


async def test_ports_listen_from_the_beginning_and_go_on_with_the_process(
    process: Process, runtime: RuntimeDir
) -> None:
    published = Published.listen([PortForward(0, 80), PortForward(0, 81)])
    ports = [one.host for one in published.forwards]
    assert [one.guest for one in published.forwards] == [80, 81]
    assert all(map(connects, ports))
    await published.begin()
    published.claim(runtime.root)
    published.hand_over("a")
    value, passed = process.given()
    assert value == {"id": "a", "forwards": told(published)}
    assert is_locked(lock_of(runtime)), "nobody starts a second one"
    assert all(map(connects, ports))
    for descriptor in passed:
        os.close(descriptor)
    assert not is_locked(lock_of(runtime))
    assert not any(map(connects, ports))


async def test_a_start_that_fails_leaves_neither_port_nor_process(
    process: Process, runtime: RuntimeDir
) -> None:
    published = Published.listen([PortForward(0, 80)])
    (port,) = (one.host for one in published.forwards)
    await published.begin()
    published.claim(runtime.root)
    published.close()
    published.close()
    with pytest.raises(ValueError):
        process.given()
    assert not is_locked(lock_of(runtime))
    Published.listen([PortForward(port, 80)]).close()


async def test_nothing_is_started_for_no_ports(process: Process, runtime: RuntimeDir) -> None:
    published = Published.listen([])
    await published.begin()
    published.claim(runtime.root)
    published.hand_over("a")
    assert not process.ends
    assert not lock_of(runtime).exists()


def test_if_one_is_taken_none_is_left_listening() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        wanted = [PortForward(port, 80), PortForward(taken.getsockname()[1], 81)]
        with pytest.raises(PortInUseError, match=str(taken.getsockname()[1])):
            Published.listen(wanted)
    assert not connects(port)


async def test_a_process_that_was_killed_is_replaced_with_its_ports(
    process: Process, runtime: RuntimeDir
) -> None:
    check = ForwarderCheck()
    before = Published.listen([PortForward(0, 80)])
    before.close()
    held = try_named_lock(lock_of(runtime))
    assert held is not None
    await check.ensure(runtime, "a", before.forwards)
    assert not process.ends, "it lives"
    os.close(held)
    await check.ensure(runtime, "a", ())
    assert not process.ends, "it was started with none"
    await check.ensure(runtime, "a", before.forwards)
    value, passed = process.given()
    assert value["forwards"] == told(before)
    assert connects(before.forwards[0].host)
    for descriptor in passed:
        os.close(descriptor)


async def test_it_is_not_tried_all_the_time(process: Process, runtime: RuntimeDir) -> None:
    check = ForwarderCheck()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = [PortForward(taken.getsockname()[1], 80)]
        await check.ensure(runtime, "a", wanted)
    await check.ensure(runtime, "a", wanted)
    assert not process.ends


async def test_a_port_of_tcp_and_one_of_udp_may_have_the_same_number(
    process: Process, runtime: RuntimeDir
) -> None:
    with Published.listen([PortForward(0, 80)]) as first:
        (port,) = (one.host for one in first.forwards)
        wanted = PortForward(port, 53, Protocol.UDP)
        with Published.listen([wanted]) as second:
            assert (second.pairs(Protocol.TCP), second.pairs(Protocol.UDP)) == ((), ((port, 53),))
            with pytest.raises(PortInUseError, match=f"{port}/udp"):
                Published.listen([wanted])
    both = [PortForward(port, 80), wanted]
    with Published.listen(both) as published:
        await published.begin()
        published.claim(runtime.root)
        published.hand_over("a")
    value, passed = process.given()
    lock, *rest = passed
    os.close(lock)
    carried = match_sockets(value["forwards"], rest)
    assert [forward for forward, _ in carried] == both
    kinds = [{one.type for one in sockets} for _, sockets in carried]
    assert kinds == [{socket.SOCK_STREAM}, {socket.SOCK_DGRAM}]
    for _, sockets in carried:
        for one in sockets:
            one.close()


async def test_two_cannot_carry_the_ports_of_one_sandbox(
    process: Process, runtime: RuntimeDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "LOCK_WAIT_S", 0.01)
    held = try_named_lock(lock_of(runtime))
    assert held is not None
    published = Published.listen([PortForward(0, 80)])
    await published.begin()
    with pytest.raises(HostError, match="another process"):
        await asyncio.to_thread(published.claim, runtime.root)
    published.close()
    os.close(held)
    process.ends.pop().close()

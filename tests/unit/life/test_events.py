"""Events of a machine, from a QMP server that the test plays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from qemu.qmp import QMPClient, Runstate
from quicksand.base.errors import MachineError, QemuDiedError, StateError
from quicksand.base.files import try_lock, write_json
from quicksand.base.paths import Paths
from quicksand.life.qmp_events import Event, EventKind, watch_events
from quicksand.qemu.qmp import EVENTS_MAX, Monitor, wait_for_event
from quicksand.records.layout import QMP_MONITORS, MachineDir, RuntimeDir, runtime_dir, sandbox_dir
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import new_id
from quicksand.records.trash import remove_tree

from tests.unit.records.making import RECORD, RUN

GREETING = {"QMP": {"version": {"qemu": {"major": 9, "minor": 0, "micro": 0}}, "capabilities": []}}


class FakeQemu:
    """A running sandbox as clients see it: a locked directory and QMP sockets."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.id = new_id()
        self.lock: int | None = registry.create(replace(RECORD, id=self.id))
        self.runtime: RuntimeDir = runtime_dir(registry.paths, self.id)
        self.machine: MachineDir = self.runtime.make("1")
        self.runtime.current_link.symlink_to("1")
        self.commands: list[str] = []
        self.mute = False
        """Accept connections, and say nothing."""
        self.holds = ""
        """A command that is answered by `let_go` only."""
        self.held: list[Callable[[], None]] = []
        self.holding = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._clients: list[asyncio.StreamWriter] = []
        self.connected = asyncio.Event()
        self.continued = asyncio.Event()

    async def start(self) -> None:
        for number in range(QMP_MONITORS):
            path = str(self.machine.qmp_socket(number))
            self._servers.append(await asyncio.start_unix_server(self._serve, path))
        publish_state(self.machine, RUN)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.append(writer)
        if self.mute:
            return
        self._send(GREETING, writer)
        received = ""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4096):
                received = (received + data.decode()).lstrip()
                while message := self._take(received):
                    received = received[message.pop("length") :]
                    self._answer(message, writer)

    @staticmethod
    def _take(text: str) -> dict[str, Any]:
        """The first message, and its length: a stream of JSON without anything in between."""
        try:
            message, length = json.JSONDecoder().raw_decode(text)
        except ValueError:
            return {}
        return {**message, "length": length}

    def _answer(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.commands.append(message["execute"])
        reply = {"id": message["id"]} if "id" in message else {}
        if message["execute"] == self.holds:
            self.held.append(lambda: self._send({"return": {}, **reply}, writer))
            self.holding.set()
            return
        self._send({"return": {}, **reply}, writer)
        if message["execute"] == "qmp_capabilities":
            self.connected.set()
        if message["execute"] == "cont":
            self.continued.set()

    def let_go(self) -> None:
        """Answer what was held."""
        self.holds = ""
        for answer in self.held:
            answer()

    @staticmethod
    def _send(message: dict[str, Any], *clients: asyncio.StreamWriter) -> None:
        for client in clients:
            client.write(json.dumps(message).encode() + b"\r\n")

    def emit(self, name: str, **data: Any) -> None:
        """An event, to all who are connected."""
        stamp = {"seconds": 1, "microseconds": 0}
        self._send({"event": name, "data": data, "timestamp": stamp}, *self._clients)

    def hang_up(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()

    def end(self, *, code: int = 0, asked: bool = False) -> None:
        """Die, as QEMU and keeper would leave things."""
        place = sandbox_dir(self.registry.paths, self.id)
        write_json(place.exit, {"code": code, "asked": asked})
        remove_tree(self.runtime.root)
        self.unlock()
        self.hang_up()

    def unlock(self) -> None:
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    async def close(self) -> None:
        self.unlock()
        self.hang_up()
        for server in self._servers:
            server.close()
            await server.wait_closed()
        remove_tree(self.runtime.root)

    def watch(self) -> AsyncIterator[Event]:
        return watch_events(self.registry, self.id)


@pytest.fixture
async def qemu(places: Paths) -> AsyncIterator[FakeQemu]:
    fake = FakeQemu(Registry(places))
    await fake.start()
    yield fake
    await fake.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=60)
    assert not [task for task in others if not task.done()], "a task was left behind"


async def collect(stream: AsyncIterator[Event]) -> list[Event]:
    async with asyncio.timeout(60):
        return [event async for event in stream]


def kinds(found: list[Event]) -> list[EventKind]:
    return [event.kind for event in found]


async def watching(qemu: FakeQemu) -> asyncio.Task[list[Event]]:
    """A watcher that is connected."""
    task = asyncio.create_task(collect(qemu.watch()))
    await asyncio.wait_for(qemu.connected.wait(), 60)
    return task


async def test_events_come_in_their_order_and_the_last_says_how_it_ended(qemu: FakeQemu) -> None:
    watcher = await watching(qemu)
    for name in ("STOP", "RESUME", "RESET", "NIC_RX_FILTER_CHANGED", "GUEST_PANICKED"):
        qemu.emit(name)
    qemu.emit("BLOCK_IO_ERROR", nospace=False, reason="Input/output error")
    qemu.end(code=0)
    found = await watcher
    assert kinds(found) == [
        EventKind.PAUSED,
        EventKind.RESUMED,
        EventKind.RESET,
        EventKind.PANICKED,
        EventKind.DISK_ERROR,
        EventKind.STOPPED,
    ]
    assert found[4].detail == "Input/output error"
    assert [event.time for event in found] == sorted(event.time for event in found)


async def test_a_revert_in_the_qemu_that_runs_is_told_when_it_happens(qemu: FakeQemu) -> None:
    """Its monitors stay connected."""
    events = qemu.watch()
    first = asyncio.ensure_future(anext(events))
    await asyncio.wait_for(qemu.connected.wait(), 60)
    qemu.emit("STOP")
    assert (await first).kind is EventKind.PAUSED
    machine = qemu.runtime.make("2")
    for number in range(QMP_MONITORS):
        machine.qmp_socket(number).hardlink_to(qemu.machine.qmp_socket(number))
    publish_state(machine, replace(RUN, origin="clean"))
    (qemu.runtime.root / "next").symlink_to("2")
    (qemu.runtime.root / "next").replace(qemu.runtime.current_link)
    qemu.emit("RESUME")
    told, resumed = [await asyncio.wait_for(anext(events), 60) for _ in range(2)]
    assert (told.kind, told.detail) == (EventKind.REVERTED, "clean")
    assert resumed.kind is EventKind.RESUMED
    qemu.end(asked=True)
    assert kinds(await collect(events)) == [EventKind.STOPPED]


async def test_a_crash_says_why(qemu: FakeQemu) -> None:
    watcher = await watching(qemu)
    qemu.end(code=-11)
    (last,) = await watcher
    assert (last.kind, last.detail) == (EventKind.CRASHED, "QEMU was ended by SIGSEGV")


async def test_the_end_is_told_when_the_keeper_is_done_not_before(qemu: FakeQemu) -> None:
    """The connection ends with QEMU; how it ended is known a moment later."""
    watcher = await watching(qemu)
    qemu.hang_up()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not watcher.done()
    qemu.end(code=1)
    assert kinds(await watcher) == [EventKind.CRASHED]


async def test_a_stopped_sandbox_has_one_event(qemu: FakeQemu) -> None:
    qemu.end(asked=True)
    assert kinds(await collect(qemu.watch())) == [EventKind.STOPPED]


async def test_one_that_is_gone_has_one_event(qemu: FakeQemu) -> None:
    qemu.end()
    qemu.registry.remove(qemu.id)
    assert kinds(await collect(qemu.watch())) == [EventKind.STOPPED]


async def test_two_watchers_see_the_same(qemu: FakeQemu) -> None:
    watchers = [await watching(qemu)]
    qemu.connected.clear()
    watchers.append(await watching(qemu))
    qemu.emit("STOP")
    qemu.end()
    for watcher in watchers:
        assert kinds(await watcher) == [EventKind.PAUSED, EventKind.STOPPED]


async def test_a_slow_reader_gets_the_latest_events_and_memory_stays_bounded(
    qemu: FakeQemu,
) -> None:
    monitor = await Monitor.connect(qemu.machine)
    for number in range(EVENTS_MAX + 500):
        qemu.emit("X", number=number)
    # Answered after the events: all of them have been received by then.
    await monitor.execute("query-status")
    stream = monitor.events()
    numbers = [(await anext(stream))["data"]["number"] for _ in range(EVENTS_MAX)]
    assert numbers == list(range(500, EVENTS_MAX + 500)), "the oldest went, the order stayed"
    waiting = asyncio.ensure_future(anext(stream))
    qemu.emit("X", number=-1)
    assert (await asyncio.wait_for(waiting, 60))["data"]["number"] == -1
    assert isinstance(stream, AsyncGenerator)
    await stream.aclose()
    await monitor.close()


async def test_events_that_came_before_the_end_are_told_also_after_it(qemu: FakeQemu) -> None:
    monitor = await Monitor.connect(qemu.machine)
    for number in range(5):
        qemu.emit("X", number=number)
    await monitor.execute("query-status")
    qemu.hang_up()
    with pytest.raises(QemuDiedError):
        await asyncio.wait_for(monitor.execute("query-status"), 60)
    async with asyncio.timeout(60):
        found = [event["data"]["number"] async for event in monitor.events()]
    assert found == list(range(5))
    await monitor.close()
    await monitor.close()


async def test_an_event_that_is_listened_for_is_not_missed_and_others_are_not_kept(
    qemu: FakeQemu,
) -> None:
    monitor = await Monitor.connect(qemu.machine)
    with monitor.listen("JOB_STATUS_CHANGE", "MIGRATION") as events:
        for number in range(2 * EVENTS_MAX):
            qemu.emit("X", number=number)
            if number == 0:
                qemu.emit("MIGRATION", status="completed")
        # Answered after the events: all of them have been received by then.
        await monitor.execute("query-status")
        found = await wait_for_event(events, lambda step: "status" in step, doing="a test")
    assert found == {"status": "completed"}
    await monitor.close()


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_an_event_that_qemu_does_not_live_to_send_is_an_error(
    qemu: FakeQemu, when: str
) -> None:
    monitor = await Monitor.connect(qemu.machine)
    with monitor.listen("MIGRATION") as events:
        qemu.emit("MIGRATION", status="active")
        if when == "before":
            qemu.hang_up()
            with pytest.raises(QemuDiedError):
                await asyncio.wait_for(monitor.execute("query-status"), 60)
        waiting = asyncio.ensure_future(
            wait_for_event(events, lambda step: step["status"] == "completed", doing="a load")
        )
        await asyncio.sleep(0)
        qemu.hang_up()
        with pytest.raises(QemuDiedError, match="during a load"):
            await asyncio.wait_for(waiting, 60)
    await monitor.close()


@pytest.mark.parametrize("taken", ["waiting", "busy"])
async def test_who_stops_watching_leaves_neither_task_nor_monitor_behind(
    qemu: FakeQemu, taken: str
) -> None:
    for _ in range(QMP_MONITORS + 2):
        qemu.connected.clear()
        stream = qemu.watch()
        first = asyncio.ensure_future(anext(stream))
        await asyncio.wait_for(qemu.connected.wait(), 60)
        if taken == "busy":
            qemu.emit("STOP")
            assert (await first).kind is EventKind.PAUSED
            assert isinstance(stream, AsyncGenerator)
            await stream.aclose()
        else:
            first.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await first


async def test_when_all_monitors_are_in_use_it_is_not_taken_for_an_end(
    qemu: FakeQemu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Monitor.connect.__func__.__kwdefaults__, "timeout", 0.05)  # type: ignore[attr-defined]
    locks = [
        try_lock(qemu.machine.qmp_socket(number).with_suffix(".lock"))
        for number in range(QMP_MONITORS)
    ]
    with pytest.raises(StateError, match="all 8 QMP monitors"):
        await collect(qemu.watch())
    for lock in locks:
        assert lock is not None
        os.close(lock)


async def test_a_qemu_that_hangs_is_not_taken_for_an_end(
    qemu: FakeQemu, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu.mute = True
    monkeypatch.setitem(Monitor.connect.__func__.__kwdefaults__, "timeout", 0.05)  # type: ignore[attr-defined]
    with pytest.raises(MachineError, match="did not answer"):
        await collect(qemu.watch())


async def test_what_the_guest_can_cause_is_no_way_to_long_texts(qemu: FakeQemu) -> None:
    watcher = await watching(qemu)
    qemu.emit("BLOCK_IO_ERROR", reason="x" * 10_000)
    qemu.emit("BLOCK_IO_ERROR", reason=None)
    qemu.end()
    found = await watcher
    assert [len(event.detail) <= 200 for event in found] == [True] * 3


async def test_a_full_host_disk_is_told_and_left_to_the_keeper(qemu: FakeQemu) -> None:
    watcher = await watching(qemu)
    qemu.emit("BLOCK_IO_ERROR", nospace=True, reason="No space left on device")
    qemu.emit("RESUME")
    qemu.end()
    found = await watcher
    assert kinds(found) == [EventKind.DISK_FULL, EventKind.RESUMED, EventKind.STOPPED]
    assert "cont" not in qemu.commands


async def test_a_qemu_that_dies_as_soon_as_it_has_answered_is_named(
    qemu: FakeQemu, monkeypatch: pytest.MonkeyPatch
) -> None:
    establish = QMPClient._establish_session

    async def and_die(self: QMPClient) -> None:
        await establish(self)
        qemu.hang_up()
        if self.runstate is Runstate.RUNNING:
            await self.runstate_changed()

    monkeypatch.setattr(QMPClient, "_establish_session", and_die)
    with pytest.raises(QemuDiedError, match="QEMU ended before it answered on QMP"):
        await Monitor.connect(qemu.machine)
    monkeypatch.undo()
    await (await Monitor.connect(qemu.machine)).close()


async def test_nothing_is_sent_while_qemu_takes_a_descriptor(
    qemu: FakeQemu, tmp_path: Path
) -> None:
    """Two of its threads look after a monitor's descriptors, and one more message ends it."""
    monitor = await Monitor.connect(qemu.machine)
    qemu.holds = "add-fd"
    descriptor = os.open(tmp_path / "screen", os.O_WRONLY | os.O_CREAT)
    dump = asyncio.ensure_future(monitor.execute_with_file(descriptor, "filename", "screendump"))
    while "add-fd" not in qemu.commands:
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert qemu.commands[-1] == "add-fd"
    qemu.let_go()
    await asyncio.wait_for(dump, 60)
    assert qemu.commands[-3:] == ["add-fd", "screendump", "remove-fd"]
    os.close(descriptor)
    await monitor.close()

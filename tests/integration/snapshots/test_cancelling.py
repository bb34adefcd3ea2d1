"""Operations that are cancelled at each of their requests to QEMU and to the keeper (Ctrl-C, a
timeout): the sandbox goes on, as it was or as it was to be, and nothing is left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths
from quicksand.base.processes import ProcessKind, processes_of
from quicksand.life import machinery
from quicksand.qemu.keeper_link import KeeperLink
from quicksand.qemu.qemu_hypervisor import DISK, OURS
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.registry import Registry
from quicksand.snapshots import reverting
from quicksand.snapshots.history import History
from quicksand.warm import starting

from tests.cancelling import Awaits
from tests.conftest import our_processes, wait_for
from tests.integration.disks import file_of_stopped
from tests.integration.guests import say

pytestmark = pytest.mark.vm

MOST = 90
"""Requests of one operation; none makes so many."""


class Requests:
    """Counts the requests of a task and cancels it at one of them."""

    def __init__(self) -> None:
        self.at = 0
        """The number of the request at which `task` is cancelled; 0 for none."""
        self.made = 0
        self.last = ""
        self.task: asyncio.Task[Any] | None = None

    def note(self, what: str) -> None:
        self.made += 1
        if self.made == self.at and self.task is not None:
            self.last = what
            loop = asyncio.get_running_loop()
            loop.call_soon(self.task.cancel)
            # Pressed twice, by somebody in a hurry.
            loop.call_later(0.003, self.task.cancel)

    async def cancel(self, work: Awaitable[object], at: int) -> bool:
        """Run ``work`` and cancel it at its request number ``at``; False if it makes fewer."""
        self.made, self.at, self.last = 0, at, ""
        self.task = asyncio.ensure_future(work)
        try:
            await self.task
        except asyncio.CancelledError:
            assert self.last
        finally:
            self.at, self.task = 0, None
        return bool(self.last)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[Requests]:
    found = Requests()
    execute, exchange = Monitor.execute, KeeperLink._exchange

    async def noted(self: Monitor, command: str, **arguments: Any) -> Any:
        found.note(command)
        return await execute(self, command, **arguments)

    async def noted_too(self: KeeperLink, message: bytes, descriptors: Any) -> Any:
        found.note(message.decode()[:30])
        return await exchange(self, message, descriptors)

    monkeypatch.setattr(Monitor, "execute", noted)
    monkeypatch.setattr(KeeperLink, "_exchange", noted_too)
    yield found


async def check(vm: Sandbox, places: Paths, *, disk: set[str]) -> str:
    """One QEMU runs, the head names what it writes to, and the guest answers; returns what is in
    its memory. ``disk``: what may be on its disk."""
    place, runtime = sandbox_dir(places, vm.id), runtime_dir(places, vm.id)

    def is_quiet() -> bool:
        qemus = [one for one in processes_of(place.root) if one.kind is ProcessKind.QEMU]
        machines = [name for name in runtime.names() if name.isdigit()]
        return len(qemus) == len(machines) == 1

    await asyncio.to_thread(wait_for, is_quiet, what="the end of the others")
    entry = Registry(places).find("box")
    assert entry.run is not None, (entry.status, entry.error)
    monitor = await Monitor.connect(runtime.current())
    try:
        assert (await monitor.execute("query-status"))["running"]
        drive = str(await monitor.execute("qom-get", path=DISK, property="drive"))
    finally:
        await monitor.close()
    history = History(place)
    async with history.locked():
        history.settle(runtime.current().name)  # as the next operation does
        head = history.head()
    if drive.startswith(OURS):
        layer = drive.removeprefix(OURS)
        assert layer in (head.top, *head.layers[-1:])
        assert place.layer(layer).exists()
    assert not history.broken()
    on_disk, in_memory = (await say(vm, "cat /root/f /dev/shm/f")).split()
    assert on_disk in disk
    return in_memory


async def prepare(vm: Sandbox) -> None:
    await say(vm, "echo one > /root/f; echo one > /dev/shm/f; sync")
    await vm.checkpoint("one")
    await say(vm, "echo two > /root/f; echo two > /dev/shm/f; sync")


async def sweep(
    vm: Sandbox,
    places: Paths,
    requests: Requests,
    work: Callable[[], Awaitable[object]],
) -> None:
    """Cancel ``work`` at each of its requests; after each, the sandbox is whole."""
    for number in range(1, MOST):
        fired = await requests.cancel(work(), number)
        where = f"request {number}: {requests.last}"
        try:
            memory = await check(vm, places, disk={"one", "two"})
        except Exception as error:
            raise AssertionError(f"cancelled at {where}") from error
        if memory == "one":
            await say(vm, "echo two > /root/f; echo two > /dev/shm/f; sync")
        if not fired:
            return
    pytest.fail("it never came to its end")


async def test_a_revert(vm: Sandbox, places: Paths, requests: Requests) -> None:
    await prepare(vm)
    await sweep(vm, places, requests, lambda: vm.revert("one"))


async def test_a_revert_in_a_new_qemu(
    vm: Sandbox, places: Paths, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def why_not(*_: object) -> str:
        return "it is to be so"

    monkeypatch.setattr(reverting, "why_not", why_not)
    await prepare(vm)
    await sweep(vm, places, requests, lambda: vm.revert("one"))


async def test_a_checkpoint(vm: Sandbox, places: Paths, requests: Requests) -> None:
    await prepare(vm)
    await sweep(vm, places, requests, lambda: vm.checkpoint("two", replace=True))
    assert [made.tag for made in vm.checkpoints()] == ["one", "two"]


async def test_a_save(vm: Sandbox, places: Paths, requests: Requests, tmp_path: Path) -> None:
    await prepare(vm)

    async def work() -> None:
        await vm.save("kept", workspace=tmp_path)

    await sweep(vm, places, requests, work)
    await say(vm, "echo later > /root/f; sync")
    await vm.stop()
    assert file_of_stopped(places, vm, "/root/f") == b"later\n"


async def test_a_clone(vm: Sandbox, places: Paths, requests: Requests) -> None:
    await prepare(vm)

    async def work() -> None:
        await asyncio.gather(*(clone.kill() for clone in await vm.clone(2)))

    for number in range(1, MOST):
        fired = await requests.cancel(work(), number)
        assert await check(vm, places, disk={"two"}) == "two", requests.last
        left = [entry.name for entry in Sandbox.list() if entry.name != "box"]
        if not fired:
            break
        assert not [name for name in left if Registry(places).find(name).run is not None]
        for name in left:
            Registry(places).remove(Registry(places).find(name).id)
    assert [made.tag for made in vm.checkpoints()] == ["one"]


async def test_a_start_at_a_checkpoint(vm: Sandbox, places: Paths, requests: Requests) -> None:
    """The disk before it stays the sandbox's, until its machine runs."""
    await prepare(vm)
    await vm.stop()
    for number in range(1, MOST):
        if not await requests.cancel(vm.start(at="one"), number):
            break
        await asyncio.to_thread(
            wait_for, lambda: not our_processes(str(places.data)), what="its processes to end"
        )
        assert Registry(places).find("box").run is None, requests.last
        assert History(sandbox_dir(places, vm.id)).broken() == {}
    assert await check(vm, places, disk={"one"}) == "one"
    await vm.stop()
    kept = next(made for made in vm.checkpoints() if made.auto)
    await vm.start(at=kept.id)
    assert await say(vm, "cat /root/f") == "two"


@pytest.mark.parametrize("step", ["_memory_notice", "expect_next"])
async def test_the_end_of_a_start(
    places: Paths, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It is cancelled when its guest has answered already, at a step that needs no request."""
    reached, over = threading.Event(), threading.Event()

    def notice(*_: object) -> tuple[str, ...]:
        reached.set()
        over.wait()
        return ()

    async def expect(*_: object) -> None:
        await asyncio.to_thread(notice)

    if step == "expect_next":
        monkeypatch.setattr(machinery, step, expect)
    else:
        monkeypatch.setattr(starting, step, notice)
    start = asyncio.create_task(Sandbox(image="debian", name="box").start())
    try:
        await asyncio.to_thread(reached.wait)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
    finally:
        over.set()
    await asyncio.to_thread(
        wait_for, lambda: not our_processes(str(places.data)), what="its processes to end"
    )
    assert not Sandbox.list()


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_start_at_each_await(vm: Sandbox, places: Paths) -> None:
    """The two tests before this one cover its requests, and what comes behind them."""
    await prepare(vm)
    await vm.stop()
    for number in range(1, 1000):
        awaits = Awaits(number)
        if not await awaits.cancel(lambda: vm.start(at="one")):
            break
        assert not our_processes(str(places.data)), awaits.where
        assert Registry(places).find("box").run is None, awaits.where
    assert await check(vm, places, disk={"one"}) == "one"


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_clone_at_each_await(vm: Sandbox, places: Paths) -> None:
    """`test_a_clone` covers the requests; this is every await, of both clones' starts."""
    await prepare(vm)
    ours = sorted(our_processes(str(places.data)))
    clones: list[Sandbox] = []

    async def clone() -> None:
        clones.extend(await vm.clone(2))

    for number in range(1, 1000):
        awaits = Awaits(number)
        if not await awaits.cancel(clone):
            break
        assert sorted(our_processes(str(places.data))) == ours, awaits.where
        assert [entry.name for entry in Sandbox.list()] == ["box"], awaits.where
    for made in clones:
        await made.kill()
    assert len(clones) == 2
    assert await check(vm, places, disk={"two"}) == "two"


async def test_a_removal_to_the_trash(vm: Sandbox, places: Paths, requests: Requests) -> None:
    """Until its processes have ended the sandbox goes on; once they have, it is in the trash or
    stopped."""
    await prepare(vm)
    for number in range(1, MOST):
        fired = await requests.cancel(Sandbox.attach("box").trash(), number)
        if not fired:
            break
        entry = Registry(places).find("box")
        if entry.run is None:
            await vm.start()
            assert await say(vm, "cat /root/f") == "two"
            await say(vm, "echo two > /dev/shm/f")
        else:
            assert await check(vm, places, disk={"two"}) == "two", requests.last
    found = Sandbox.restore("box")
    await found.start(at=found.checkpoints()[-1].id)
    assert await say(found, "cat /root/f /dev/shm/f") == "two\ntwo"
    await found.stop()

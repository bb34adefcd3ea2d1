"""A QEMU waits after a revert, and the next revert to the same checkpoint is a hand-over to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from quicksand import NetworkMode, PortForward, Sandbox
from quicksand.base.errors import AgentRefusedError, MemoryBudgetError, RevertedError
from quicksand.base.paths import Paths
from quicksand.qemu import guest_resume
from quicksand.records.layout import runtime_dir
from quicksand.records.registry import Registry
from quicksand.snapshots import next_revert, rehearsal, standby
from quicksand.snapshots.standby import make_ready

from tests.conftest import our_processes, wait_for
from tests.integration.guests import say
from tests.integration.snapshots.test_checkpoints import COUNTER, visit

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("patient")]


@pytest.fixture
async def at_a(vm: Sandbox) -> AsyncIterator[Sandbox]:
    """Reverted to "a" once, so that the next time is made ready."""
    await say(vm, "echo disk-a > /root/f; echo memory-a > /dev/shm/f")
    await vm.checkpoint("a")
    await spoil(vm)
    await vm.revert("a")
    yield vm


async def spoil(vm: Sandbox) -> None:
    await say(vm, "echo other > /root/f; echo other > /dev/shm/f; sync")


async def check(vm: Sandbox, name: str = "a") -> None:
    assert await say(vm, "cat /root/f /dev/shm/f") == f"disk-{name}\nmemory-{name}"


async def is_handed_over_to(pid: int, vm: Sandbox) -> None:
    """A revert goes on with the QEMU that waits, and with what the checkpoint had."""
    await spoil(vm)
    await vm.revert("a")
    assert current_pid() == pid
    await check(vm)


def waiting(places: Paths, vm: Sandbox) -> dict[str, Any] | None:
    for path in runtime_dir(places, vm.id).root.glob("*/waiting.json"):
        with contextlib.suppress(FileNotFoundError):  # it ends at this moment
            return dict(json.loads(path.read_text()))
    return None


async def ready(places: Paths, vm: Sandbox) -> int:
    """The process id of the one that waits, once there is one."""
    await asyncio.to_thread(wait_for, lambda: waiting(places, vm), what="one to wait", timeout=20)
    found = waiting(places, vm)
    assert found is not None
    await vm._checkpoints.settle(found["node"])  # until it is the keeper's
    return int(found["run"]["qemu_pid"])


def current_pid() -> int:
    run = Sandbox.list()[0].run
    assert run is not None
    return run.qemu_pid


async def until_there_are(processes: int, places: Paths) -> None:
    """Wait until no more are left: nobody waits for the end of a QEMU after a revert."""
    await asyncio.to_thread(
        wait_for,
        lambda: len(our_processes(str(places.data))) <= processes,
        what=f"{processes} processes",
    )


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


async def test_the_next_revert_is_a_hand_over(at_a: Sandbox, places: Paths) -> None:
    for _ in range(3):
        pid = await ready(places, at_a)
        found = waiting(places, at_a)
        assert found is not None and found["rehearsed"]
        await spoil(at_a)
        await at_a.revert("a")
        assert current_pid() == pid
        await check(at_a)
    await until_there_are(3, places)  # keeper, machine, one that waits
    await at_a.undo()
    assert await say(at_a, "cat /root/f") == "other"


NOTES = """mv /usr/bin/dash /usr/bin/true-sh
cat > /usr/bin/dash <<'END'
#!/usr/bin/true-sh
echo "$0 $*" >> /dev/shm/notes
exec /usr/bin/true-sh "$@"
END
chmod 755 /usr/bin/dash"""


async def test_a_shell_that_takes_notes_is_not_run_in_advance(vm: Sandbox, places: Paths) -> None:
    await say(vm, NOTES)
    await say(vm, "rm -f /dev/shm/notes")  # whose shell notes itself
    await vm.checkpoint("a")
    await vm.revert("a")
    await ready(places, vm)
    await vm.revert("a")
    look = "cat /dev/shm/notes"
    assert await say(vm, look) == f"/bin/sh -c {look}"


async def test_the_connection_to_the_new_guest_is_kept(at_a: Sandbox, places: Paths) -> None:
    """And what ran in the old one hears why it ended."""
    await ready(places, at_a)
    running = asyncio.ensure_future(at_a.execute("sleep 600"))
    await wait_until_running(at_a, "sleep 600")
    await at_a.revert("a")
    link = at_a._life.link
    assert link is not None and link.connected is not None
    with pytest.raises(RevertedError, match="'a'"):
        await running
    await check(at_a)
    await at_a.revert("a", keep_now=False)  # nobody waits: the same with a new QEMU
    assert link.connected is not None
    await check(at_a)


async def wait_until_running(vm: Sandbox, words: str) -> None:
    async with asyncio.timeout(60):
        while not any(words in process.command for process in await vm.processes()):
            await asyncio.sleep(0.05)


async def test_where_the_guest_cannot_go_through_its_first_steps_it_waits_all_the_same(
    vm: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent of an older checkpoint, say."""

    async def refuse(*_: object) -> None:
        raise AgentRefusedError("no such method", code="no_such_method")

    monkeypatch.setattr(rehearsal, "go_through", refuse)
    await say(vm, "echo disk-a > /root/f; echo memory-a > /dev/shm/f")
    await vm.checkpoint("a")
    await vm.revert("a")
    pid = await ready(places, vm)
    found = waiting(places, vm)
    assert found is not None and not found["rehearsed"]
    await is_handed_over_to(pid, vm)
    await until_there_are(3, places)  # the one that failed is gone


async def test_a_guest_that_does_not_answer_at_once_is_not_left_running(
    vm: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its programs would get ahead: another one waits in its place, as the checkpoint left it."""
    await say(vm, "echo disk-a > /root/f; echo memory-a > /dev/shm/f")
    with monkeypatch.context() as patch:
        patch.setattr(guest_resume, "FIRST_HELLO_S", 0.001)
        await vm.checkpoint("a")
        pid = await ready(places, vm)
        found = waiting(places, vm)
        assert found is not None and not found["rehearsed"]
    await is_handed_over_to(pid, vm)


async def test_nobody_hears_of_a_guest_that_waits(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its programs stand still and its packets are kept, until the revert."""
    monkeypatch.setenv("QUICKSAND_STANDBY", "off")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as host:
        host.bind(("127.0.0.1", 0))
        port = host.getsockname()[1]
        async with Sandbox(image="debian", name="box", network_mode=NetworkMode.FULL) as vm:
            await vm.spawn(["python3", "-c", CALLER, str(port)], detach=True)
            await asyncio.to_thread(host.recv, 100)
            await vm.checkpoint("a")
            await vm.revert("a")
            await vm.pause()  # it calls, too
            host.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while host.recv(100):
                    pass
            registry = Registry(places)
            record = registry.find("box").record
            assert record is not None
            await make_ready(registry, record, vm.checkpoints()[0].id)
            pid = await ready(places, vm)
            with pytest.raises(BlockingIOError):
                host.recv(100)
            await vm.revert("a")
            assert current_pid() == pid
            host.settimeout(20)
            await asyncio.to_thread(host.recv, 100)


CALLER = """
import itertools, socket, sys, time
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in itertools.count():
    end.sendto(b"%d" % number, ("10.0.2.2", int(sys.argv[1])))
    time.sleep(0.001)
"""


async def test_the_first_revert_to_a_checkpoint_is_a_hand_over_too(
    vm: Sandbox, places: Paths
) -> None:
    await say(vm, "echo disk-a > /root/f; echo memory-a > /dev/shm/f")
    await vm.checkpoint("a")
    pid = await ready(places, vm)
    await is_handed_over_to(pid, vm)


async def test_what_is_being_made_ready_gives_way(
    vm: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not to a revert that it is for."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    ended: list[int] = []
    go_through = rehearsal.go_through

    async def wait(*arguments: Any) -> None:
        begun.set()
        await go_on.wait()
        await go_through(*arguments)
        ended.append(1)

    monkeypatch.setattr(rehearsal, "go_through", wait)
    for use in (vm.checkpoint, vm.clone, vm.undo):
        await vm.revert((await vm.checkpoint()).tag)
        await begun.wait()
        done = await use()
        vm._next_revert.cancel()  # the checkpoint would have another made ready
        for clone in done if isinstance(done, list) else ():
            await clone.kill()
        assert waiting(places, vm) is None
        await until_there_are(2, places)  # keeper and machine
        begun.clear()
    await vm.checkpoint("a")
    await begun.wait()
    reverting = asyncio.create_task(vm.revert("a"))
    go_on.set()
    await reverting
    assert ended == [1], "it was waited for"
    await vm.execute("true")


async def test_where_memory_is_short_none_waits(
    vm: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def refuse(_: int) -> None:
        loop.call_soon_threadsafe(asked.set)
        raise MemoryBudgetError("too little")

    monkeypatch.setattr(next_revert, "check_memory", refuse)
    await vm.checkpoint("a")
    await asyncio.wait_for(asked.wait(), 20)
    await vm._checkpoints.settle("a")
    assert waiting(places, vm) is None
    await vm.revert("a")


async def test_what_happens_meanwhile_does_it_no_harm(
    at_a: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = await ready(places, at_a)
    monkeypatch.setenv("QUICKSAND_STANDBY", "off")
    await say(at_a, "echo disk-b > /root/f; echo memory-b > /dev/shm/f")
    await at_a.checkpoint("b")
    await at_a.checkpoint("c")
    await at_a.delete_checkpoint("c")
    await at_a.revert("a")
    assert current_pid() == pid
    await check(at_a)
    await at_a.revert("b")
    await check(at_a, "b")


async def test_another_checkpoint_or_none_ends_it(at_a: Sandbox, places: Paths) -> None:
    first = await ready(places, at_a)
    await at_a.checkpoint("b")
    assert not is_gone(first)
    await at_a.revert("b")
    assert is_gone(first)
    second = await ready(places, at_a)
    assert second != first
    await at_a.delete_checkpoint("b")
    assert is_gone(second)
    assert waiting(places, at_a) is None
    await at_a.revert("a")
    await check(at_a)


async def test_one_that_was_killed_is_not_missed(at_a: Sandbox, places: Paths) -> None:
    os.kill(await ready(places, at_a), signal.SIGKILL)
    await asyncio.to_thread(wait_for, lambda: waiting(places, at_a) is None, what="its end")
    await spoil(at_a)
    await at_a.revert("a")
    await check(at_a)


async def test_one_that_hangs_is_not_waited_for(
    at_a: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "ADOPT_S", 1.0)
    pid = await ready(places, at_a)
    os.kill(pid, signal.SIGSTOP)
    await at_a.revert("a")
    await check(at_a)
    assert is_gone(pid)


async def test_another_client_can_use_it(at_a: Sandbox, places: Paths) -> None:
    pid = await ready(places, at_a)
    other = Sandbox.attach("box")
    try:
        await other.revert("a")
        assert current_pid() == pid
        await check(other)
    finally:
        other.close()


async def test_the_end_of_the_sandbox_is_its_end(at_a: Sandbox, places: Paths) -> None:
    pid = await ready(places, at_a)
    await at_a.stop()
    assert is_gone(pid)
    await at_a.start()
    assert await say(at_a, "cat /root/f") == "disk-a"
    layers = {path.stem for path in (places.sandboxes / at_a.id / "layers").glob("*.qcow2")}
    await at_a.checkpoint("later")
    assert len(layers - {p.stem for p in (places.sandboxes / at_a.id / "layers").iterdir()}) == 1


async def test_forwarded_ports_come_with_it(places: Paths) -> None:
    forwards = [PortForward(host=0, guest=7000)]
    async with Sandbox(image="debian", name="box", port_forwards=forwards) as vm:
        await vm.files.write("/root/server.py", COUNTER)
        await say(
            vm,
            "setsid python3 /root/server.py > /dev/shm/log 2>&1 < /dev/null &"
            " until grep -q up /dev/shm/log; do sleep 0.05; done",
        )
        await vm.checkpoint("a")
        assert await visit(vm) == 1
        await vm.revert("a")
        pid = await ready(places, vm)
        await vm.revert("a")
        assert current_pid() == pid
        assert await visit(vm) == 1


async def test_it_can_be_done_without(vm: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICKSAND_STANDBY", "off")
    await vm.checkpoint("a")
    await vm.revert("a")
    assert "quicksand-standby" not in {task.get_name() for task in asyncio.all_tasks()}

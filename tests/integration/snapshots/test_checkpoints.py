"""Checkpoints of real VMs: memory, processes and disk together, and going back, and failing."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from quicksand import EventKind, PortForward, Sandbox, Status
from quicksand.base.errors import (
    CheckpointNotFoundError,
    ConfigError,
    HistoryError,
    MachineError,
    RevertedError,
    StateError,
)
from quicksand.base.paths import Paths
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.snapshots.layers import Pivot

from tests.integration.guests import say, watch

pytestmark = pytest.mark.vm

COUNTER = """
import socket, sys, threading
count = 0
server = socket.create_server(("", 7000))
print("up", flush=True)
while True:
    connection, _ = server.accept()
    count += 1
    open("/root/count", "w").write(str(count))
    connection.sendall(str(count).encode())
    connection.close()
"""


async def test_memory_processes_and_disk_are_as_they_were(vm: Sandbox) -> None:
    await say(vm, "echo disk-1 > /root/f; echo memory-1 > /dev/shm/f; sleep 7777 >&- 2>&- &")
    before = await say(vm, "cat /proc/sys/kernel/random/boot_id; pgrep -x sleep")
    first = await vm.checkpoint("first", note="a note")
    assert (first.tag, first.note, first.parent, first.tier) == ("first", "a note", None, "pages")
    assert first.pause_s > 0
    await say(vm, "echo disk-2 > /root/f; echo memory-2 > /dev/shm/f; pkill sleep")
    second = await vm.checkpoint("second")
    assert second.parent == first.id
    assert second.bytes_written < first.bytes_written
    await vm.revert("first")
    assert await say(vm, "cat /root/f /dev/shm/f") == "disk-1\nmemory-1"
    now = await say(vm, "cat /proc/sys/kernel/random/boot_id; pgrep -x sleep")
    assert now == before
    await vm.undo()
    assert await say(vm, "cat /root/f /dev/shm/f") == "disk-2\nmemory-2"
    await vm.revert(second.id)
    assert await say(vm, "cat /root/f /dev/shm/f") == "disk-2\nmemory-2"
    assert Sandbox.list()[0].status is Status.RUNNING


async def test_a_stopped_sandbox_starts_at_any_checkpoint_with_its_processes(
    vm: Sandbox,
) -> None:
    await say(vm, "echo 1 > /dev/shm/f; echo 1 > /root/f; sleep 7777 >&- 2>&- &")
    await vm.checkpoint("one")
    await say(vm, "echo 2 > /root/f")
    await vm.stop()
    with pytest.raises(CheckpointNotFoundError, match="no checkpoint"):
        await vm.start(at="onne")
    await vm.start(at="one")
    assert await say(vm, "cat /root/f /dev/shm/f; pgrep -c -x sleep") == "1\n1\n1"
    await vm.checkpoint("again")
    await vm.stop()
    await vm.start()
    assert await say(vm, "cat /root/f; ls /dev/shm") == "1"
    assert [c.tag for c in vm.checkpoints() if not c.auto] == ["one", "again"]


async def test_deleting_one_keeps_what_others_need(vm: Sandbox, places: Paths) -> None:
    for number in range(3):
        await say(
            vm,
            f"echo {number} | tee /root/f /dev/shm/f; dd if=/dev/urandom of=/dev/shm/r"
            " bs=1M count=4 2>&1",
        )
        await vm.checkpoint(str(number))
    sums = await say(vm, "sha256sum /dev/shm/r")
    await vm.delete_checkpoint("1")
    first, last = vm.checkpoints()
    assert (first.tag, last.tag, last.parent) == ("0", "2", first.id)
    await vm.revert("0", keep_now=False)
    assert await say(vm, "cat /root/f /dev/shm/f") == "0\n0"
    await vm.revert("2", keep_now=False)
    assert await say(vm, "cat /root/f /dev/shm/f; sha256sum /dev/shm/r") == f"2\n2\n{sums}"
    await vm.stop()
    for tag in ("0", "2"):
        await vm.delete_checkpoint(tag)
    place = sandbox_dir(places, vm.id)
    assert vm.checkpoints() == []
    assert list(place.memory.iterdir()) == []


async def test_cycles_keep_memory_disk_and_a_server_in_step(places: Paths) -> None:
    """R: a counter in memory, one on disk and a TCP server agree after every revert."""
    async with Sandbox(image="debian", port_forwards=[PortForward(0, 7000)]) as vm:
        await vm.files.write("/root/server.py", COUNTER)
        await say(
            vm,
            "setsid python3 /root/server.py > /dev/shm/log 2>&1 < /dev/null &"
            " until grep -q up /dev/shm/log; do sleep 0.05; done",
        )
        for cycle in range(4):
            assert await visit(vm) == 2 * cycle + 1
            await vm.checkpoint(f"cycle {cycle}")
            for _ in range(3):
                await visit(vm)
            await vm.revert(f"cycle {cycle}")
            assert await say(vm, "cat /root/count") == str(2 * cycle + 1)
            assert await visit(vm) == 2 * cycle + 2


async def visit(vm: Sandbox) -> int:
    """What the server in the guest has counted, through the forwarded port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", vm.port_forwards[7000])
    async with asyncio.timeout(60):
        data = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(data)


async def test_clients_are_told_and_come_back_by_themselves(vm: Sandbox) -> None:
    shell = await vm.shell(columns=90, rows=20)
    await vm.checkpoint("here")
    other = Sandbox.attach("box")
    call = asyncio.create_task(other.execute("echo begun; sleep 600", timeout=None))
    seen: list[EventKind] = []
    watching = asyncio.create_task(watch(vm, seen))
    while not (await vm.execute(["pgrep", "-x", "sleep"])).stdout:
        pass
    await vm.revert("here")
    async with asyncio.timeout(60):
        with pytest.raises(RevertedError, match="'here'"):
            await call
    assert (await other.execute("echo alive; pgrep -x sleep")).stdout == "alive\n"
    assert [info.session for info in await other.shells()] == [shell.session]
    again = await other.attach_shell(shell.session)
    await again.close()
    other.close()
    await vm.stop()
    await watching
    assert EventKind.REVERTED in seen
    assert seen[-1] is EventKind.STOPPED


TAGS = ["two words", "a/b\\c", "q'uo\"te", "🦀", "x" * 128, "--tag", "."]


async def test_tags_are_free_text_and_taken_ones_are_refused(vm: Sandbox) -> None:
    for tag in TAGS[:3]:
        await vm.checkpoint(tag)
    with pytest.raises(ConfigError, match="'two words' already"):
        await vm.checkpoint("two words")
    replaced = await vm.checkpoint("two words", replace=True)
    assert [c.id for c in vm.checkpoints() if c.tag == "two words"] == [replaced.id]
    for bad in ("x" * 129, "", "a\nb"):
        with pytest.raises(ConfigError):
            await vm.checkpoint(bad)
    with pytest.raises(CheckpointNotFoundError, match="no checkpoint") as caught:
        await vm.revert("two wrods")
    assert isinstance(caught.value, ValueError)
    assert "two words" in caught.value.hint
    with pytest.raises(StateError, match="nothing to undo"):
        await vm.undo()
    assert await say(vm, "echo alive") == "alive"


async def test_a_paused_sandbox_stays_paused(vm: Sandbox) -> None:
    await say(vm, "echo 1 > /dev/shm/f")
    await vm.pause()
    await vm.checkpoint("paused")
    assert Sandbox.list()[0].status is Status.PAUSED
    with pytest.raises(StateError, match="is paused"):
        await vm.execute("echo 2 > /dev/shm/f")
    await vm.resume()
    await say(vm, "echo 2 > /dev/shm/f")
    await vm.revert("paused")
    assert await say(vm, "cat /dev/shm/f") == "1"


async def test_another_client_pauses_and_resumes_before_a_checkpoint_or_after_it(
    vm: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Sandbox.attach("box")
    turn = Pivot.turn
    pausing: list[asyncio.Task[None]] = []

    async def meanwhile(self: Pivot) -> None:
        pausing.append(asyncio.create_task(other.pause()))
        await asyncio.wait(pausing, timeout=0.3)  # it has every chance
        await turn(self)

    with monkeypatch.context() as patch:
        patch.setattr(Pivot, "turn", meanwhile)
        await vm.checkpoint("one")
    await pausing[0]
    assert Sandbox.list()[0].status is Status.PAUSED
    with pytest.raises(StateError, match="is paused"):
        await vm.execute("true")
    await other.resume()
    await vm.execute("true")
    other.close()


async def test_a_guest_that_somebody_resumes_in_the_pause_gets_no_checkpoint(
    vm: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by hand, at one of QEMU's monitors."""
    turn = Pivot.turn

    async def meanwhile(self: Pivot) -> None:
        monitor = await Monitor.connect(Registry(places).machine(vm.id))
        await monitor.execute("cont")
        await monitor.close()
        await turn(self)

    with monkeypatch.context() as patch:
        patch.setattr(Pivot, "turn", meanwhile)
        with pytest.raises(MachineError, match="resumed"):
            await vm.checkpoint("one")
    assert vm.checkpoints() == []
    await say(vm, "echo kept > /root/f; sync")
    await vm.checkpoint("two")
    await vm.revert("two")
    assert await say(vm, "cat /root/f") == "kept"


async def test_more_checkpoints_than_qemu_can_name_the_layers_of(vm: Sandbox) -> None:
    """What QEMU says of a disk is cut off when there are many layers below it."""
    for number in range(20):
        await vm.checkpoint(str(number))
    assert len(vm.checkpoints()) == 20


async def test_two_clients_at_once_wait_for_each_other(vm: Sandbox) -> None:
    others = [Sandbox.attach("box") for _ in range(3)]
    made = await asyncio.gather(
        *(vm.checkpoint(str(n)) for vm, n in zip(others, "abc", strict=True))
    )
    assert {c.tag for c in made} == {"a", "b", "c"}
    assert {c.tag for c in vm.checkpoints()} == {"a", "b", "c"}
    for other in others:
        other.close()
    await vm.revert("b")
    assert await say(vm, "echo alive") == "alive"


async def test_memory_goes_where_it_is_wanted(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "memory"
    monkeypatch.setenv("QUICKSAND_MEMORY_DIR", str(elsewhere))
    async with Sandbox(image="debian", name="box") as vm:
        await say(vm, "echo memory > /dev/shm/f")
        await vm.checkpoint("one")
        assert any((elsewhere / vm.id).iterdir())
        monkeypatch.delenv("QUICKSAND_MEMORY_DIR")
        await say(vm, "echo other > /dev/shm/f")
        await vm.revert("one")
        assert await say(vm, "cat /dev/shm/f") == "memory"
        (clone,) = await vm.clone()
        assert await say(clone, "cat /dev/shm/f") == "memory"
        await clone.kill()
        await vm.stop()
        shutil.rmtree(elsewhere)  # as a reboot does that empties a tmpfs
        with pytest.raises(HistoryError, match=r"memory|\.ram|\.pages|\.rom"):
            await vm.start(at="one")
        await vm.start()
        assert await say(vm, "echo up") == "up"
        await vm.stop()
    Registry(places).remove(vm.id)
    assert not list(elsewhere.iterdir())


async def test_memory_elsewhere_goes_with_its_sandbox(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "memory"
    monkeypatch.setenv("QUICKSAND_MEMORY_DIR", str(elsewhere))
    async with Sandbox(image="debian") as ephemeral:
        await ephemeral.checkpoint("one")
    async with Sandbox(image="debian", name="box") as vm:
        await vm.checkpoint("one")
    Registry(places).remove(vm.id)
    assert not list(elsewhere.iterdir())


async def test_memory_goes_where_the_sandbox_is_told_to_put_it(
    places: Paths, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "memory"
    async with Sandbox(image="debian", name="box", memory_dir=elsewhere) as vm:
        assert any("share blocks" in notice for notice in vm.notices)
        await vm.checkpoint("one")
        assert any((elsewhere / vm.id).iterdir())
        (clone,) = await vm.clone()
        assert any((elsewhere / clone.id).iterdir())
        await clone.kill()
        await vm.stop()
        await vm.start(at="one")
    for one in (vm, clone):
        Registry(places).remove(one.id)
    assert not list(elsewhere.iterdir())


async def test_a_pinned_checkpoint_stays_and_sizes_are_known(vm: Sandbox) -> None:
    await say(vm, "head -c 5000000 /dev/urandom > /dev/shm/f")
    await vm.checkpoint("one")
    await say(vm, "head -c 3000000 /dev/urandom > /dev/shm/g")
    await vm.checkpoint("two")
    one, two = vm.checkpoints()
    assert one.shared > 5_000_000
    assert 3_000_000 < two.size < 40_000_000
    await vm.pin_checkpoint("one")
    with pytest.raises(HistoryError, match="pinned"):
        await vm.delete_checkpoint("one")
    with pytest.raises(ConfigError, match="pinned"):
        await vm.checkpoint("one", replace=True)
    await vm.pin_checkpoint("one", False)
    await vm.delete_checkpoint("one")
    assert [c.tag for c in vm.checkpoints()] == ["two"]

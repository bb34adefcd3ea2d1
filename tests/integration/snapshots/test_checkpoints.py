"""Checkpoints of real VMs: memory, processes and disk together, and going back, and failing."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from quicksand import EventKind, PortForward, Sandbox
from quicksand.base.errors import (
    ConfigError,
    HistoryError,
    RevertedError,
)
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry

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


@pytest.mark.soak
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


async def test_more_checkpoints_than_qemu_can_name_the_layers_of(vm: Sandbox) -> None:
    """What QEMU says of a disk is cut off when there are many layers below it."""
    for number in range(20):
        await vm.checkpoint(str(number))
    assert len(vm.checkpoints()) == 20


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


async def test_memory_elsewhere_goes_with_a_sandbox_that_is_not_kept(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "memory"
    monkeypatch.setenv("QUICKSAND_MEMORY_DIR", str(elsewhere))
    async with Sandbox(image="debian") as ephemeral:
        await ephemeral.checkpoint("one")
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

"""Memory, processes and disk are of one instant, whatever other clients do meanwhile; and what tags
may be."""

from __future__ import annotations

import asyncio

import pytest
from quicksand import Sandbox, Status
from quicksand.base.errors import CheckpointNotFoundError, ConfigError, MachineError, StateError
from quicksand.base.paths import Paths
from quicksand.qemu.qmp import Monitor
from quicksand.records.registry import Registry
from quicksand.snapshots.layers import Pivot

from tests.integration.guests import say

pytestmark = [pytest.mark.vm, pytest.mark.in_any_form]


async def test_memory_processes_and_disk_are_as_they_were(vm: Sandbox) -> None:
    await say(vm, "echo disk-1 > /root/f; echo memory-1 > /dev/shm/f; sleep 7777 >&- 2>&- &")
    before = await say(vm, "cat /proc/sys/kernel/random/boot_id; pgrep -x sleep")
    first = await vm.checkpoint("first", note="a note")
    assert (first.tag, first.note, first.parent, first.tier) == ("first", "a note", None, "pages")
    assert first.pause_s > 0
    assert first.bytes_written < 40 * 2**20
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


async def test_another_client_pauses_and_resumes_before_a_checkpoint_or_after_it(
    vm: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Sandbox.attach(vm.id)
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


async def test_two_clients_at_once_wait_for_each_other(vm: Sandbox) -> None:
    others = [Sandbox.attach(vm.id) for _ in range(3)]
    made = await asyncio.gather(
        *(vm.checkpoint(str(n)) for vm, n in zip(others, "abc", strict=True))
    )
    assert {c.tag for c in made} == {"a", "b", "c"}
    assert {c.tag for c in vm.checkpoints()} == {"a", "b", "c"}
    for other in others:
        other.close()
    await vm.revert("b")
    assert await say(vm, "echo alive") == "alive"


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

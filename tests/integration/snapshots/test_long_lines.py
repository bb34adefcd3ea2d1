"""Many checkpoints in a row: their layers are merged, and every one of them is there still."""

from __future__ import annotations

from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.errors import MachineError
from quicksand.base.paths import Paths
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.snapshots import layers
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import Pivot

from tests.integration.disks import file_of_stopped
from tests.integration.guests import say

pytestmark = pytest.mark.vm

LENGTH = 10


async def layers_in_qemu(vm: Sandbox, places: Paths) -> int:
    monitor = await Monitor.connect(runtime_dir(places, vm.id).current())
    try:
        nodes = await monitor.execute("query-named-block-nodes", flat=True)
    finally:
        await monitor.close()
    return sum(node["drv"] == "qcow2" for node in nodes)


async def test_a_qemu_that_cannot_follow_goes_on_with_its_layers(
    vm: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QEMU before 6.1, for instance."""
    monkeypatch.setattr(layers, "AT_LEAST", 4)
    execute = Monitor.execute

    async def refuse(self: Monitor, command: str, **arguments: Any) -> Any:
        if command == "blockdev-reopen":
            raise MachineError("The command blockdev-reopen has not been found")
        return await execute(self, command, **arguments)

    monkeypatch.setattr(Monitor, "execute", refuse)
    for number in range(10):
        await say(vm, f"echo {number} > /root/f{number}")
        await vm.checkpoint(str(number))
    assert await layers_in_qemu(vm, places) > 10
    assert len(History(sandbox_dir(places, vm.id)).head().layers) <= 7
    assert await say(vm, "cat /root/f*") == "\n".join(map(str, range(10)))
    await vm.revert("9", keep_now=False)
    assert await say(vm, "cat /root/f*") == "\n".join(map(str, range(10)))


async def test_a_qemu_that_was_never_told_of_a_merged_layer_goes_on_without_the_next(
    vm: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client died between the checkpoint and that."""
    monkeypatch.setattr(layers, "AT_LEAST", 4)
    monkeypatch.setattr(layers, "SMALL", 8 * 2**20)
    follow = Pivot.follow
    followed = 0

    async def die_first(self: Pivot, layers: tuple[str, ...]) -> None:
        nonlocal followed
        followed += 1
        if followed > 1:
            await follow(self, layers)

    monkeypatch.setattr(Pivot, "follow", die_first)
    for number in range(12):
        size = 0 if followed else 4_000_000
        await say(vm, f"head -c {size} /dev/urandom > /root/f{number}; sync")
        await vm.checkpoint(str(number))
    assert followed > 1
    await vm.revert("11", keep_now=False)
    assert await say(vm, "ls /root/f* | wc -l") == "12"


async def test_each_checkpoint_of_a_long_line_has_its_disk(
    vm: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "AT_LEAST", 4)
    history = History(sandbox_dir(places, vm.id))
    for number in range(LENGTH):
        await say(vm, f"echo {number} > /root/now; echo {number} > /root/f{number}")
        await vm.checkpoint(str(number))
        assert len(history.head().layers) <= 7
    assert await layers_in_qemu(vm, places) <= 8
    for number in (0, 6, LENGTH - 1, 5):
        await vm.revert(str(number), keep_now=False)
        assert await say(vm, "cat /root/now; ls /root | grep -c ^f") == f"{number}\n{number + 1}"

    # A branch goes on from the middle, also when its machine is another one and most are gone.
    await say(vm, "echo side > /root/side; rm /root/f0")
    await vm.checkpoint("side")
    changed = {change.path for change in await vm.diff("5", "side")}
    assert {"/root/side", "/root/f0"} <= changed
    assert not any(path.startswith("/root/f") for path in changed - {"/root/f0"})
    for number in range(LENGTH - 1):
        await vm.delete_checkpoint(str(number))
    await vm.stop()
    assert file_of_stopped(places, vm, "/root/side") == b"side\n"
    await vm.start(at="side")
    assert await say(vm, "cat /root/side /root/f5; ls /root | grep -c ^f") == "side\n5\n5"
    await vm.checkpoint("again")
    await vm.revert(str(LENGTH - 1), keep_now=False)
    assert await say(vm, "cat /root/now; ls /root | grep -c ^f") == f"{LENGTH - 1}\n{LENGTH}"

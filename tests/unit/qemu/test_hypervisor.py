"""What a hypervisor is asked to do, in QEMU's commands: which, in which order, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from quicksand.base.errors import MachineError, StateError
from quicksand.base.hypervisor import Hypervisor
from quicksand.qemu.qemu_hypervisor import Qemu, monitor_of
from quicksand.qemu.qmp import Monitor

from tests.each import each

STARTED = (
    "qemu-system-x86_64",
    "-blockdev",
    json.dumps({"driver": "file", "node-name": "base-file", "filename": "/i/debian.qcow2"}),
    "-blockdev",
    json.dumps({"driver": "file", "node-name": "disk-file", "filename": "layers/0000000a.qcow2"}),
    "-blockdev",
    json.dumps({"driver": "qcow2", "node-name": "disk", "file": "disk-file"}),
    # What users add may be in QEMU's kind of JSON.
    "-blockdev",
    "{'driver':'null-co','node-name':'theirs'}",
)


NODES = ("disk", "disk-file", "disk-0000000b", "disk-0000000b-file")


class FakeMonitor:
    """Keeps what it is told, and answers as it should. The nodes that it has open are `NODES` and
    those that were added."""

    def __init__(self, **answers: Any) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.answers = answers
        self.nodes = list(NODES)

    async def execute(self, command: str, **arguments: Any) -> Any:
        self.said.append((command, arguments))
        answer = self.answers.get(command.replace("-", "_"), {})
        if isinstance(answer, Exception):
            raise answer
        if command == "blockdev-add":
            self.nodes.append(arguments["node-name"])
        if command == "query-named-block-nodes":
            return [{"node-name": node} for node in self.nodes]
        return answer

    @property
    def commands(self) -> list[str]:
        return [command for command, _ in self.said]


def qemu(monitor: FakeMonitor) -> Qemu:
    return Qemu(cast(Monitor, monitor), STARTED)


async def test_a_pause_is_one_command_and_so_is_each_step_within_it() -> None:
    monitor = FakeMonitor(query_status={"running": False, "status": "paused"})
    found = qemu(monitor)
    await found.pause()
    await found.save_devices(Path("/c/devices"))
    assert await found.open_layers() == {"0000000a", "0000000b"}
    await found.pivot("0000000a", "0000000b")
    assert not await found.is_running()
    await found.resume()
    assert monitor.said == [
        ("stop", {}),
        ("xen-save-devices-state", {"filename": "/c/devices", "live": False}),
        ("query-named-block-nodes", {"flat": True}),
        ("blockdev-snapshot", {"node": "disk", "overlay": "disk-0000000b"}),
        ("query-status", {}),
        ("cont", {}),
    ]


@each(("node", "layer"), [("disk", "0000000a"), ("disk-0000000b", "0000000b")])
async def test_a_layer_is_known_whether_it_was_there_at_the_start_or_added(
    node: str, layer: str
) -> None:
    monitor = FakeMonitor(qom_get=node)
    found = qemu(monitor)
    assert await found.top_layer() == layer
    await found.open_layer("0000000c", writable=True)
    await found.pivot(layer, "0000000c")
    assert monitor.said[-1] == ("blockdev-snapshot", {"node": node, "overlay": "disk-0000000c"})


async def test_a_layer_that_is_not_open_is_an_error() -> None:
    found = qemu(FakeMonitor())
    with pytest.raises(MachineError, match="0000000f"):
        await found.pivot("0000000a", "0000000f")


async def test_a_disk_that_is_no_layer_is_an_error() -> None:
    with pytest.raises(MachineError, match="'other'"):
        await qemu(FakeMonitor(qom_get="other")).top_layer()


async def test_a_merged_layer_is_opened_put_below_the_top_and_the_others_are_closed() -> None:
    monitor = FakeMonitor()
    found = qemu(monitor)
    await found.open_layer("0000000e", writable=True)
    monitor.said.clear()
    await found.open_layer("0000000d", writable=False, below="0000000a")
    await found.put_below("0000000e", "0000000d")
    await found.close_layers(["0000000c", "0000000b"])
    added = [said for command, said in monitor.said if command == "blockdev-add"][1]
    (reopened,) = [said for command, said in monitor.said if command == "blockdev-reopen"]
    assert (added["node-name"], added["backing"]) == ("disk-0000000d", "disk")
    (options,) = reopened["options"]
    assert (options["node-name"], options["backing"]) == ("disk-0000000e", "disk-0000000d")
    closed = [said["node-name"] for command, said in monitor.said if command == "blockdev-del"]
    assert closed == [f"disk-0000000{n}{part}" for n in "cb" for part in ("", "-file")]


async def test_a_layer_that_stays_open_is_an_error() -> None:
    found = qemu(FakeMonitor(blockdev_del=StateError("it cannot be closed")))
    await found.close_layers(["0000000c"])  # it is not open
    with pytest.raises(StateError, match="it cannot be closed"):
        await found.close_layers(["0000000c", "0000000b"])


async def test_what_is_no_answer_of_qemu_is_raised_when_a_state_is_closed() -> None:
    with pytest.raises(ZeroDivisionError):
        await qemu(FakeMonitor(blockdev_del=ZeroDivisionError())).close_state("state")


async def test_a_forward_is_removed_by_its_side_of_the_host() -> None:
    monitor = FakeMonitor(human_monitor_command="")
    found = qemu(monitor)
    await found.add_forward("tcp:127.0.0.1:8080-:80")
    await found.remove_forward("tcp:127.0.0.1:8080-:80")
    assert [arguments["command-line"] for _, arguments in monitor.said] == [
        "hostfwd_add net0 tcp:127.0.0.1:8080-:80",
        "hostfwd_remove net0 tcp:127.0.0.1:8080",
    ]


async def test_an_address_that_qemu_does_not_tell_is_an_error() -> None:
    found = qemu(FakeMonitor(human_monitor_command="Host virtual address is 0x7f0000001000\r\n"))
    assert await found.host_address(0) == 0x7F0000001000
    with pytest.raises(MachineError, match="No memory is mapped"):
        await qemu(FakeMonitor(human_monitor_command="No memory is mapped")).host_address(0)


async def test_only_qemu_has_a_monitor() -> None:
    monitor = FakeMonitor()
    assert cast(object, monitor_of(qemu(monitor))) is monitor
    with pytest.raises(MachineError, match="needs QEMU"):
        monitor_of(cast(Hypervisor, object()))

"""A mount is told mounted only when the guest has looked at it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from quicksand.base.errors import AgentRefusedError, MountError
from quicksand.mounts import devices, known_mounts, mounting, ninep, shares
from quicksand.mounts.devices import Device
from quicksand.mounts.mounter import Mounter
from quicksand.mounts.share_server import start_server
from quicksand.records.layout import MachineDir
from quicksand.records.mount import NINEP, Mount
from quicksand.things.status import MountState

from tests.unit.mounts.test_serving import Qemu, data, machine, qemu

__all__ = ["data", "machine", "qemu"]
"""Fixtures."""

GONE = Mounter(pid=os.getpid(), started="at another time")


class Guest:
    """Notes what is said of its mounts whenever it is asked for something."""

    def __init__(self, look: Callable[[], list[MountState]], **replies: Any) -> None:
        self.look = look
        self.replies: dict[str, Any] = {"file_stat": {"type": "dir"}, **replies}
        self.seen: list[tuple[str, list[MountState]]] = []

    async def ask(self, method: str, params: dict[str, Any], _seconds: float) -> dict[str, Any]:
        self.seen.append((method, await asyncio.to_thread(self.look)))
        reply = self.replies.get(method, {})
        if isinstance(reply, Exception):
            raise reply
        return dict(reply)


def states(machine: MachineDir) -> list[MountState]:
    served = [known_mounts._state(share.mounter) for share in shares.read_shares(machine)]
    here = [known_mounts._state(d.mounter) for d in devices.read(machine) if d.mounted]
    return [*served, *here]


async def test_until_the_guest_has_looked_it_is_being_mounted(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    guest = Guest(lambda: states(machine))
    share = await start_server(machine, data, "secret")
    await mounting.mount_served(machine, share, "secret", guest.ask)
    mounting_now = [MountState.MOUNTING]
    assert guest.seen == [("mount_share", mounting_now), ("file_stat", mounting_now)]
    assert states(machine) == [MountState.MOUNTED]


@pytest.mark.parametrize(
    "answer",
    [AgentRefusedError("/mnt/data: Input/output error", code="io"), {"type": "file"}, {}],
    ids=str,
)
async def test_what_the_guest_cannot_see_is_not_mounted(
    machine: MachineDir, qemu: Qemu, data: Mount, answer: object
) -> None:
    guest = Guest(lambda: states(machine), file_stat=answer)
    share = await start_server(machine, data, "secret")
    with pytest.raises(MountError, match="was mounted, and the guest"):
        await mounting.mount_served(machine, share, "secret", guest.ask)
    assert states(machine) == []
    assert not share.is_served


async def test_by_9p_it_is_the_same(machine: MachineDir, data: Mount) -> None:
    mount = replace(data, type=NINEP)
    devices.note(machine, [Device(mount=mount)])
    guest = Guest(lambda: states(machine))
    await ninep.mount_all(machine, [mount], guest.ask)
    mounting_now = [MountState.MOUNTING]
    assert guest.seen == [("mount_share", mounting_now), ("file_stat", mounting_now)]
    assert states(machine) == [MountState.MOUNTED]


async def test_what_nobody_is_at_any_more_is_unfinished(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    share = await start_server(machine, data, "secret")
    shares.note(machine, replace(share, mounter=GONE))
    assert states(machine) == [MountState.UNFINISHED]
    share.end()


async def test_what_an_earlier_version_wrote_counts_as_mounted(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    share = await start_server(machine, data, "secret")
    shares.note(machine, share)
    record = machine.share_record(share.number)
    old = json.loads(record.read_text())
    del old["mounter"]
    record.write_text(json.dumps(old))
    assert states(machine) == [MountState.MOUNTED]
    for bad in ({}, {"pid": "x", "started": ""}, 5, [1, "x"]):
        record.write_text(json.dumps({**old, "mounter": bad}))
        assert shares.read_shares(machine) == [], "a bad record counts for nothing"
    share.end()


async def test_what_9p_has_mounted_and_the_guest_cannot_see_is_unfinished(
    machine: MachineDir, data: Mount
) -> None:
    mount = replace(data, type=NINEP)
    devices.note(machine, [Device(mount=mount)])
    guest = Guest(lambda: states(machine), file_stat=AgentRefusedError("no", code="io"))
    with pytest.raises(MountError, match="was mounted, and the guest"):
        await ninep.mount_all(machine, [mount], guest.ask)
    assert states(machine) == [MountState.UNFINISHED]

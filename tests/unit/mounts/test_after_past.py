"""A guest that continues from its past has its new mounts when the old ones are gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from quicksand import SandboxConfig
from quicksand.base.errors import AgentRefusedError, AgentUnreachableError
from quicksand.base.paths import Paths
from quicksand.mounts import known_mounts, shares
from quicksand.mounts.at_start import AfterPast, MountsAtStart, Wanted
from quicksand.mounts.directories import find
from quicksand.mounts.shares import share_name
from quicksand.records.layout import MachineDir, sandbox_dir
from quicksand.records.mount import Mount
from quicksand.things.status import MountState

from tests.conftest import blank_record
from tests.unit.mounts.test_serving import Qemu, machine, qemu

__all__ = ["machine", "qemu"]
"""Fixtures."""


class Guest:
    """A guest with mounts of its past; as Linux does, it detaches what lies in a mount with it."""

    def __init__(self, past: dict[str, str], *, refuses: int = 0, is_lost: bool = False) -> None:
        self.mounted = dict(past)
        """The shares' names by where they are."""
        self.past = set(past.values())
        self.refuses = refuses
        """So many mounts, beginning with the first, as long as there is one of the past."""
        self.is_lost = is_lost
        """Nothing is heard of it when it is to detach what is left of the past."""

    async def ask(self, method: str, params: dict[str, Any], _seconds: float) -> dict[str, Any]:
        match method:
            case "mount_share":
                self._mount(params["share"], params["target"])
            case "detach_shares":
                if self.is_lost:
                    raise AgentUnreachableError("no reply came")
                for place, name in list(self.mounted.items()):
                    if name in params["shares"]:
                        self._detach(place)
            case "shares":
                return {"shares": [*self.mounted.values()], "mounting": [], "connected": []}
            case "file_stat":
                return {"type": "dir"}
        return {}

    def _mount(self, name: str, place: str) -> None:
        if self.refuses and self.past & {*self.mounted.values()}:
            self.refuses -= 1
            raise AgentRefusedError("it is busy", code="io", errno=5)
        if place in self.mounted:
            self._detach(place)
        self.mounted[place] = name

    def _detach(self, place: str) -> None:
        for other in [place, *self.mounted]:
            if other == place or PurePosixPath(place) in PurePosixPath(other).parents:
                self.mounted.pop(other, None)


def wanted(tmp_path: Path, *places: str) -> list[Wanted]:
    mounts = [Mount(str(tmp_path), place) for place in places]
    return [(mount, find(mount)) for mount in mounts]


def told(machine: MachineDir) -> dict[str, MountState]:
    found = {
        one.mount.guest: known_mounts._state(one.mounter) for one in shares.read_shares(machine)
    }
    for share in shares.list_shares(machine):
        share.end()
    return found


@pytest.mark.parametrize("count", [2, 8, 9, 16])
async def test_all_mounts_are_there_after_those_of_the_past_are_gone(
    machine: MachineDir, qemu: Qemu, places: Paths, tmp_path: Path, count: int
) -> None:
    points = [f"/mnt/m{number}" for number in range(count)]
    guest = Guest({point: f"QUICKSAND{number}" for number, point in enumerate(points)})
    config = SandboxConfig.parse({"image": "x", "mounts": [f"{tmp_path}:{at}" for at in points]})
    record = blank_record(config)
    sandbox_dir(places, record.id).root.mkdir(parents=True)
    mounts = MountsAtStart(record, places, is_past=True)
    mounts.note(machine)
    await mounts.begin(machine)
    await mounts.finish(machine, guest.ask)
    assert set(guest.mounted) == set(points)
    assert len({*guest.mounted.values()} - guest.past) == count
    assert told(machine) == dict.fromkeys(points, MountState.MOUNTED)
    assert not machine.past_shares.exists()


async def test_what_goes_with_a_mount_of_the_past_is_mounted_once_more(
    machine: MachineDir, qemu: Qemu, tmp_path: Path
) -> None:
    guest = Guest({"/a": share_name(0), "/b/in": share_name(1)})
    after = AfterPast(machine, guest.ask)
    await after.mount_all(wanted(tmp_path, "/a/in", "/b/in", "/b"))
    assert not after.failed
    assert set(guest.mounted) == {"/a/in", "/b", "/b/in"}
    assert told(machine) == dict.fromkeys(("/a/in", "/b", "/b/in"), MountState.MOUNTED)


async def test_what_is_refused_beside_the_past_is_mounted_without_it(
    machine: MachineDir, qemu: Qemu, tmp_path: Path
) -> None:
    guest = Guest({"/a": share_name(0), "/b": share_name(1)}, refuses=2)
    after = AfterPast(machine, guest.ask)
    await after.mount_all(wanted(tmp_path, "/a", "/b"))
    assert not after.failed
    assert told(machine) == dict.fromkeys(("/a", "/b"), MountState.MOUNTED)


async def test_what_the_guest_does_not_list_is_not_told_as_mounted(
    machine: MachineDir, qemu: Qemu, tmp_path: Path
) -> None:
    guest = Guest({})

    async def ask(method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        reply = await guest.ask(method, params, seconds)
        return {**reply, "shares": []} if method == "shares" else reply

    after = AfterPast(machine, ask)
    await after.mount_all(wanted(tmp_path, "/a"))
    assert "is gone again" in str(after.failed["/a"])
    assert told(machine) == {}


async def test_a_mount_is_unfinished_if_nobody_heard_what_became_of_it(
    machine: MachineDir, qemu: Qemu, tmp_path: Path
) -> None:
    guest = Guest({"/gone": share_name(0)}, is_lost=True)
    with pytest.raises(AgentUnreachableError):
        await AfterPast(machine, guest.ask).mount_all(wanted(tmp_path, "/a"))
    assert told(machine) == {"/a": MountState.UNFINISHED}


async def test_mounts_are_made_side_by_side(
    machine: MachineDir, qemu: Qemu, tmp_path: Path
) -> None:
    guest, under_way, both = Guest({}), 0, asyncio.Event()

    async def ask(method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        nonlocal under_way
        if method == "mount_share":
            under_way += 1
            if under_way == 2:
                both.set()
            await asyncio.wait_for(both.wait(), 60)
        return await guest.ask(method, params, seconds)

    await AfterPast(machine, ask).mount_all(wanted(tmp_path, "/a", "/b"))
    assert told(machine) == dict.fromkeys(("/a", "/b"), MountState.MOUNTED)


async def test_what_somebody_mounted_there_meanwhile_stays(
    machine: MachineDir, qemu: Qemu, tmp_path: Path
) -> None:
    guest = Guest({})
    (mount, directory), *_ = theirs = wanted(tmp_path, "/a")
    await AfterPast(machine, guest.ask).mount_all(theirs)
    before = dict(guest.mounted)
    after = AfterPast(machine, guest.ask)
    await after.mount_all([(replace(mount, readonly=True), directory)])
    assert "something is mounted at /a already" in str(after.failed["/a"])
    assert guest.mounted == before
    assert told(machine) == {"/a": MountState.MOUNTED}

"""A guest that is still mounting a share whose server has ended is made to give it up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from quicksand.base.errors import AgentRefusedError, AgentUnreachableError
from quicksand.mounts import mounting, shares
from quicksand.mounts.share_server import start_server
from quicksand.mounts.shares import Share, share_name
from quicksand.records.layout import MachineDir
from quicksand.records.mount import Mount
from quicksand_smb import HANG_UP

from tests.unit.mounts.test_serving import Qemu, data, machine, qemu

__all__ = ["data", "machine", "qemu"]
"""Fixtures."""


class Mounting:
    """A guest whose kernel gives a mount up only when it has been hung up on ``calls`` times, as
    one does that had asked its server nothing before."""

    def __init__(self, calls: float, *, name: str = share_name(0), is_done: bool = False) -> None:
        self.name = name
        self.calls = calls
        self.is_done = is_done
        self.heard = 0
        self.detached: list[str] = []

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard += await reader.read() == HANG_UP
        writer.close()

    async def ask(self, method: str, params: dict[str, Any], _seconds: float) -> dict[str, Any]:
        match method:
            case "mount_share":
                raise AgentUnreachableError("no reply came")
            case "unmount_share":
                raise AgentRefusedError("a share at /mnt/data is not there", code="not_found")
            case "detach_shares":
                self.detached += params["shares"]
                return {}
        assert method == "shares"
        is_mounting = self.heard < self.calls
        mounted = [self.name] if self.is_done and not is_mounting else []
        under_way = [self.name] if is_mounting else []
        return {"shares": mounted, "mounting": under_way, "connected": []}


@contextlib.asynccontextmanager
async def reached(qemu: Qemu, guest: Mounting) -> AsyncIterator[Mounting]:
    """``guest`` behind QEMU's first stream."""
    async with await asyncio.start_unix_server(guest.hear, sock=qemu.listeners[0]):
        yield guest


@pytest.fixture
async def share(machine: MachineDir, qemu: Qemu, data: Mount) -> AsyncIterator[Share]:
    """A share that is served, and QEMU's end of its stream held."""
    share = await start_server(machine, data, "secret")
    with await asyncio.to_thread(qemu.accept):
        yield share


async def test_who_connects_anew_is_hung_up_on_again(
    machine: MachineDir, qemu: Qemu, share: Share
) -> None:
    shares.note(machine, share)
    async with reached(qemu, Mounting(calls=3, name=share.name)) as guest:
        await mounting.remove_mount(machine, share, guest.ask, force=False)
        assert guest.heard >= 3
    assert shares.read_shares(machine) == []
    assert guest.detached == []


async def test_what_is_mounted_in_the_meantime_is_detached(
    machine: MachineDir, qemu: Qemu, share: Share
) -> None:
    shares.note(machine, share)
    async with reached(qemu, Mounting(calls=2, name=share.name, is_done=True)) as guest:
        await mounting.remove_mount(machine, share, guest.ask, force=False)
    assert guest.detached == [share.name]


async def test_a_guest_that_never_does_is_not_waited_for(
    machine: MachineDir, qemu: Qemu, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounting, "GIVE_UP_S", 2.0)
    shares.note(machine, share)
    async with reached(qemu, Mounting(calls=float("inf"), name=share.name)) as guest:
        await asyncio.wait_for(
            mounting.remove_mount(machine, share, guest.ask, force=False), timeout=60
        )
        assert guest.heard > 1
    assert shares.read_shares(machine) == []


async def test_a_mount_that_fails_is_given_up_with_its_own_error(
    machine: MachineDir, qemu: Qemu, share: Share
) -> None:
    async with reached(qemu, Mounting(calls=2, name=share.name)) as guest:
        with pytest.raises(AgentUnreachableError, match="no reply came"):
            await mounting.mount_served(machine, share, "secret", guest.ask)
        assert guest.heard >= 2
    assert shares.read_shares(machine) == []


async def test_what_a_guest_was_mounting_in_its_past_is_given_up(
    machine: MachineDir, qemu: Qemu
) -> None:
    async with reached(qemu, Mounting(calls=2)) as guest:
        assert not (await mounting.find_past(machine, guest.ask)).mounted
        assert guest.heard >= 2

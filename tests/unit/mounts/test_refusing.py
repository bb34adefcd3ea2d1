"""What a guest still wants of a share that is gone is refused: its kernel would wait for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from quicksand.mounts import mounting, shares
from quicksand.mounts.directories import find
from quicksand.mounts.share_server import start_server
from quicksand.mounts.shares import share_name
from quicksand.records.layout import SHARES, MachineDir
from quicksand.records.mount import Mount
from quicksand_smb import HANG_UP

from tests.conftest import our_processes, wait_for
from tests.unit.mounts.test_serving import Qemu, data, greets, heard, machine, qemu

__all__ = ["data", "machine", "qemu"]


class Guest:
    """A guest whose kernel keeps ``connected`` so many times that it is asked."""

    def __init__(self, connected: float, *, tells: bool = True) -> None:
        self.connected = connected
        self.tells = tells

    async def ask(self, method: str, _params: dict[str, Any], _seconds: float) -> dict[str, Any]:
        if method == "file_stat":
            return {"type": "dir"}
        if method != "shares":
            return {}
        self.connected -= 1
        still = [share_name(3)] if self.connected >= 0 else []
        told = {"connected": still} if self.tells else {}
        return {"shares": [], "mounting": [], **told}


async def detach(machine: MachineDir, qemu: Qemu, guest: Guest) -> None:
    """Detach the share of stream 3, where QEMU takes whoever hangs up."""

    def take() -> None:
        with contextlib.suppress(TimeoutError), qemu.accept(3) as stream:
            heard(stream, len(HANG_UP))

    taking = asyncio.create_task(asyncio.to_thread(take))
    await mounting.detach_stale(machine, [share_name(3)], guest.ask)
    await taking


@pytest.mark.parametrize("guest", [Guest(10**6), Guest(0, tells=False)], ids=["keeps", "is old"])
async def test_a_guest_that_keeps_its_connection_is_refused(
    machine: MachineDir, qemu: Qemu, guest: Guest
) -> None:
    await detach(machine, qemu, guest)
    assert shares.list_refusers(machine) == {3}
    with await asyncio.to_thread(qemu.accept, 3) as stream:
        assert await asyncio.to_thread(heard, stream, len(HANG_UP)) == HANG_UP, "it asks anew"
        assert await asyncio.to_thread(greets, stream)
        shares.end_unknown(machine)
        assert shares.list_refusers(machine) == {3}, "it is known"
        shares.end_refusers(machine, range(SHARES))
    assert shares.list_refusers(machine) == set()
    wait_for(lambda: not our_processes(str(machine.root)), what="its end")


async def test_a_guest_that_is_done_with_it_costs_no_process(
    machine: MachineDir, qemu: Qemu
) -> None:
    await detach(machine, qemu, Guest(2))
    assert shares.list_refusers(machine) == set()
    assert not our_processes(str(machine.root))


async def test_a_refuser_ends_when_the_guest_is_seen_to_be_done_with_it(
    machine: MachineDir, qemu: Qemu
) -> None:
    """A busy guest may take longer to be done than it is waited for."""
    await detach(machine, qemu, Guest(10**6))
    with await asyncio.to_thread(qemu.accept, 3):
        assert shares.end_idle_refusers(machine, {3}) == set()
        await mounting.detach_stale(machine, [], Guest(0).ask)
    assert shares.list_refusers(machine) == set()
    wait_for(lambda: not our_processes(str(machine.root)), what="its end")


async def mount(machine: MachineDir, data: Mount, guest: Guest) -> None:
    await mounting.add_mount(machine, data, find(data), guest.ask)


async def unmount(machine: MachineDir, data: Mount, guest: Guest) -> None:
    share = await start_server(machine, data, "secret")
    await mounting.remove_mount(machine, share, guest.ask, force=False)


@pytest.mark.parametrize("step", [mount, unmount])
async def test_the_next_mount_or_unmount_ends_a_refuser_that_is_not_needed(
    machine: MachineDir,
    qemu: Qemu,
    data: Mount,
    step: Callable[[MachineDir, Mount, Guest], Awaitable[None]],
) -> None:
    await detach(machine, qemu, Guest(10**6))
    await step(machine, data, Guest(10**6))
    assert shares.list_refusers(machine) == {3}, "the guest still asks for it"
    for share in shares.list_shares(machine):
        shares.forget(machine, share)
    await step(machine, data, Guest(0))
    assert shares.list_refusers(machine) == set()
    for share in shares.list_shares(machine):
        shares.forget(machine, share)
    wait_for(lambda: not our_processes(str(machine.root)), what="the end of all")


async def test_streams_on_which_a_client_is_still_busy_are_taken_last(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    """A mount on one waits until the client has noticed that its server is gone."""

    async def ask(_method: str, _params: dict[str, Any], _seconds: float) -> dict[str, Any]:
        names = {"shares": [1], "mounting": [], "connected": [0, 1]}
        return {key: [share_name(n) for n in numbers] for key, numbers in names.items()}

    past = await mounting.find_past(machine, ask)
    assert past.mounted == {share_name(1)}
    ((share, _secret),) = await mounting.serve_all(machine, [(data, find(data))], avoid=past.in_use)
    assert share.number == 2
    with await asyncio.to_thread(qemu.accept, 2):
        share.end()


async def test_its_stream_is_taken_when_there_is_no_other(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    await detach(machine, qemu, Guest(10**6))
    with await asyncio.to_thread(qemu.accept, 3), contextlib.ExitStack() as stack:
        for expected in [*(n for n in range(SHARES) if n != 3), 3]:
            number, _ = stack.enter_context(shares.a_stream(machine))
            assert number == expected
    assert shares.list_refusers(machine) == set()
    share = await start_server(machine, data, "secret")
    with await asyncio.to_thread(qemu.accept, share.number):
        share.end()

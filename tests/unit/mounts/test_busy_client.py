"""A guest's client that still tries to reach a server that is gone is given another stream."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from quicksand.base.errors import AgentRefusedError, MountError
from quicksand.mounts import mounting, shares
from quicksand.mounts.share_server import start_server
from quicksand.records.layout import MachineDir
from quicksand.records.mount import Mount

from tests.unit.mounts.test_serving import Qemu, data, machine, qemu

__all__ = ["data", "machine", "qemu"]
"""Fixtures."""


class Client:
    """A guest that refuses to mount shares on streams where its client is ``busy``."""

    def __init__(self, *busy: int, errno: int = 112) -> None:
        self.busy = busy
        self.errno = errno
        self.asked: list[int | None] = []
        self.options: list[str] = []

    async def ask(self, method: str, params: dict[str, Any], _seconds: float) -> dict[str, Any]:
        if method == "file_stat":
            return {"type": "dir"}
        assert method == "mount_share"
        self.asked.append(shares.stream_of(params["share"]))
        self.options = params["options"]
        if self.asked[-1] in self.busy:
            raise AgentRefusedError("/mnt/data: so it says", code="io", errno=self.errno)
        return {}


async def test_another_stream_is_taken(machine: MachineDir, qemu: Qemu, data: Mount) -> None:
    client = Client(0, 1)
    share = await mounting.mount_served(
        machine, await start_server(machine, data, "secret"), "secret", client.ask
    )
    assert share.number == 2
    assert client.asked == [0, 1, 2]
    assert [found.number for found in shares.list_shares(machine)] == [2]


@pytest.mark.parametrize(
    ("client", "asked"),
    [
        (Client(*range(16)), mounting.STREAMS_TRIED),
        (Client(0, errno=13), 1),
    ],
    ids=["that is busy everywhere", "that refuses for another reason"],
)
async def test_no_end_of_trying(
    machine: MachineDir, qemu: Qemu, data: Mount, client: Client, asked: int
) -> None:
    share = await start_server(machine, data, "secret")
    with pytest.raises(MountError, match="cannot be mounted at /mnt/data"):
        await asyncio.wait_for(mounting.mount_served(machine, share, "secret", client.ask), 60)
    assert len(client.asked) == asked
    assert shares.list_shares(machine) == []


@pytest.mark.parametrize("fsync", [True, False])
async def test_who_does_without_fsync_says_so(
    machine: MachineDir, qemu: Qemu, data: Mount, fsync: bool
) -> None:
    client = Client()
    wanted = replace(data, fsync=fsync)
    share = await start_server(machine, wanted, "secret")
    await mounting.mount_served(machine, share, "secret", client.ask)
    assert ("nostrictsync" in client.options) is not fsync
    assert [found.mount.fsync for found in shares.list_shares(machine)] == [fsync]


class OldClient(Client):
    """A guest whose client knows some options only."""

    def __init__(self, *unknown: str) -> None:
        super().__init__()
        self.unknown = unknown

    async def ask(self, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        reply = await super().ask(method, params, seconds)
        if known := [one for one in self.options if one.partition("=")[0] in self.unknown]:
            raise AgentRefusedError(
                f"cifs: Unknown parameter '{known[0]}'", code="bad_request", errno=22
            )
        return reply


async def test_a_client_too_old_to_keep_directories_keeps_none(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    client = OldClient("max_cached_dirs")
    share = await start_server(machine, data, "secret")
    await mounting.mount_served(machine, share, "secret", client.ask)
    assert "nohandlecache" in client.options
    assert client.asked == [0, 0]


async def test_an_option_that_no_client_knows_is_the_reason_told(
    machine: MachineDir, qemu: Qemu, data: Mount
) -> None:
    client = OldClient("max_cached_dirs", "posix")
    share = await start_server(machine, data, "secret")
    with pytest.raises(MountError, match="Unknown parameter 'posix'"):
        await mounting.mount_served(machine, share, "secret", client.ask)
    assert shares.list_shares(machine) == []

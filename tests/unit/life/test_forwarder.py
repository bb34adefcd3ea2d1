"""The process that carries forwards, without a guest."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quicksand.base.errors import AgentRefusedError
from quicksand.guest.agent.refusals import LinuxErrno
from quicksand.life.forwarder import LOOPBACK, Forwarder
from quicksand.life.guest import InGuest
from quicksand.records.config import GUEST_IP, NetworkMode
from quicksand.records.dialled import ForwarderFiles

from tests.each import each


async def test_one_that_cannot_see_the_end_of_its_sandbox_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: InGuest) -> None:
        raise OSError("no descriptors are left")

    monkeypatch.setattr(InGuest, "wait_disconnected", broken)
    files = ForwarderFiles(tmp_path)
    lock = os.open(files.lock, os.O_RDWR | os.O_CREAT, 0o600)
    entry = SimpleNamespace(is_live=True)
    registry = SimpleNamespace(inspect=lambda _: entry)
    life = SimpleNamespace(
        id="a", log=tmp_path / "log", registry=registry, link=None, close=lambda: None
    )
    try:
        async with asyncio.timeout(60):
            with pytest.raises(OSError, match="no descriptors"):
                await Forwarder(lambda: cast("Any", life), files, lock).run([])
    finally:
        os.close(lock)


class Guest:
    """A guest in which somebody listens at some addresses only."""

    def __init__(self, *hosts: str, errno: int = LinuxErrno.ECONNREFUSED) -> None:
        self.hosts, self.errno = hosts, errno
        self.dialled: list[str] = []

    async def dial(self, _: int, *, host: str) -> str:
        self.dialled.append(host)
        if host not in self.hosts:
            raise AgentRefusedError("refused", code="internal", errno=self.errno)
        return host


@each(
    ("guest", "network", "dialled"),
    [
        (Guest(LOOPBACK, GUEST_IP), NetworkMode.FULL, [LOOPBACK]),
        (Guest(GUEST_IP), NetworkMode.MOUNTS_ONLY, [LOOPBACK, GUEST_IP]),
        (Guest(), NetworkMode.NONE, [LOOPBACK]),
        (Guest(GUEST_IP, errno=110), NetworkMode.FULL, [LOOPBACK]),
    ],
    ids=["loopback", "its address", "no card", "another error"],
)
async def test_the_guests_address_is_dialled_if_nobody_listens_on_its_loopback(
    tmp_path: Path, guest: Guest, network: NetworkMode, dialled: list[str]
) -> None:
    life: Any = SimpleNamespace(config=SimpleNamespace(network_mode=network))
    forwarder = Forwarder(lambda: life, ForwarderFiles(tmp_path), 0)
    with contextlib.suppress(AgentRefusedError):
        await forwarder._dial(cast("Any", guest), 80)
    assert guest.dialled == dialled

"""The process that carries forwards, without a guest."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quicksand.life.forwarder import Forwarder
from quicksand.life.guest import InGuest
from quicksand.records.dialled import ForwarderFiles


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
        async with asyncio.timeout(10):
            with pytest.raises(OSError, match="no descriptors"):
                await Forwarder(lambda: cast("Any", life), files, lock).run([])
    finally:
        os.close(lock)

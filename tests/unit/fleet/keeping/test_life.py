"""What a program that ends its kept sandbox leaves to the coordinator."""

from __future__ import annotations

from typing import Any

import pytest
from quicksand.base.errors import (
    MachineError,
    QuicksandError,
    RemoteRefusedError,
    RemoteUnreachableError,
)
from quicksand.base.paths import Paths
from quicksand.hosted.codec import Known
from quicksand.records.config import SandboxConfig
from quicksand_fleet.keeping import life as module
from quicksand_fleet.keeping.book import Book, Wish
from quicksand_fleet.keeping.life import KeptLife
from quicksand_fleet.keeping.restart import Restart
from quicksand_fleet.life import FleetLife

from tests.unit.fleet.keeping.world import World


@pytest.mark.parametrize(
    ("error", "stays"),
    [
        (RemoteUnreachableError("the connection broke"), True),
        (RemoteRefusedError("it cannot", code="unsupported"), False),
        (MachineError("QEMU did not end"), False),
    ],
)
async def test_a_wish_to_end_stays_if_it_is_unknown_what_has_happened(
    places: Paths, monkeypatch: pytest.MonkeyPatch, error: QuicksandError, stays: bool
) -> None:
    """Else a sandbox that goes on would be restarted no more."""

    async def fail(*_: Any, **__: Any) -> None:
        raise error

    async def nothing(*_: Any) -> None: ...

    monkeypatch.setattr(FleetLife, "call", fail)
    monkeypatch.setattr(module, "ensure_coordinator", nothing)
    monkeypatch.setattr(module, "paths", lambda: places)
    world, book = World([1.0], []), Book(places)
    world.begin("a", "n0")
    book.add(world.disk["a"])
    known = Known(id="0" * 12, name="a", config=SandboxConfig("debian"))
    life = KeptLife(None, known, {}, Restart())
    life._epoch = 1
    with pytest.raises(type(error)):
        await life.call("stop")
    assert book.has_wish("a", Wish.END) is stays

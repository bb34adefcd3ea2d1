"""A sandbox that is on a known machine of a fleet: its starts and its clones have places there."""

from __future__ import annotations

from typing import Any, cast

import pytest
from quicksand.base.errors import FleetFullError, MachineError
from quicksand.hosted.life import FarLife
from quicksand.hosted.remote_host import RemoteHost
from quicksand.records.config import SandboxConfig
from quicksand_fleet.finding import PlacedLife
from quicksand_fleet.interface import Need, Reservation


class Desk:
    """A fleet that keeps places."""

    wait_s = 1.0

    def __init__(self) -> None:
        self.needs: list[Need] = []
        self.done: list[str] = []
        self.is_full = False

    def host(self, name: str) -> RemoteHost:
        return RemoteHost(f"ssh://{name}")

    async def reserve(self, need: Need, *, timeout_s: float) -> Reservation:
        if self.is_full:
            raise FleetFullError("no room")
        self.needs.append(need)
        id_ = f"{len(self.needs):032x}"
        return Reservation(id=id_, host=str(need.on), machine_id="", need=need, made_at=0.0)

    async def confirm(self, reservation: Reservation, sandbox_id: str) -> None:
        self.done.append(f"confirm {int(reservation.id, 16)}")

    async def release(self, reservation: Reservation) -> None:
        self.done.append(f"release {int(reservation.id, 16)}")


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def life(desk: Desk) -> PlacedLife:
    config = SandboxConfig(image="unknown", memory="256M", cpus=2)
    return PlacedLife(cast(Any, desk), "box", "0123456789ab", config)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the machine is asked to do, with the handle by which it knows the place."""
    found: list[tuple[Any, ...]] = []

    async def call(self: FarLife, name: str, *args: Any, **keywords: Any) -> None:
        found.append((self.host.name, name, int(self._handle, 16)))
        if keywords.get("at") == "broken":
            raise MachineError("it does not start")

    monkeypatch.setattr(FarLife, "call", call)
    return found


async def test_it_is_started_where_it_is_with_a_place_for_its_memory(
    life: PlacedLife, desk: Desk, calls: list[tuple[Any, ...]]
) -> None:
    await life.start("tag")
    [need] = desk.needs
    assert (need.on, need.memory_bytes, need.cpus) == ("box", 256 << 20, 2)
    assert calls == [("box", "start", 1)], "the machine knows the place by the handle"
    assert desk.done == ["confirm 1"]


async def test_a_start_that_fails_gives_its_place_back(
    life: PlacedLife, desk: Desk, calls: list[tuple[Any, ...]]
) -> None:
    with pytest.raises(MachineError):
        await life.start("broken")
    assert desk.done == ["release 1"]


async def test_each_clone_has_a_place_and_none_is_made_without(
    life: PlacedLife, desk: Desk, calls: list[tuple[Any, ...]]
) -> None:
    await life.call("clone", 2, names=["a", "b"])
    assert len(desk.needs) == 2 and desk.done == ["release 1", "release 2"]
    desk.is_full = True
    with pytest.raises(FleetFullError):
        await life.call("clone", 1, names=["c"])
    assert [name for _, name, _ in calls] == ["clone"]

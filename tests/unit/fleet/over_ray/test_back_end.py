"""Placing over Ray, with a Ray that is imitated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from quicksand.base.capacity import OVERHEAD
from quicksand.base.errors import FleetError, FleetFullError, FleetHostNotFoundError
from quicksand_fleet.interface import FleetEventKind, HostState, Lack, Need
from quicksand_fleet.over_ray.back_end import Member, OverRay

from tests.unit.fleet.over_ray.fakes import MIB, ONE, TWO, FakeRay, capacity
from tests.unit.remote.far import until

MEMBERS = [
    Member(machine_id=ONE, name="one", address="node://one"),
    Member(machine_id=TWO, name="two", address="node://two"),
]
SMALL = Need(memory_bytes=256 * MIB)


class Books:
    """Which machines are drained."""

    def __init__(self) -> None:
        self.drained: frozenset[str] = frozenset()

    def write(self, name: str, on: bool) -> None:
        self.drained = self.drained | {name} if on else self.drained - {name}


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[OverRay, FakeRay]]:
    made: list[FakeRay] = []

    def make(changed: Callable[[], None]) -> FakeRay:
        made.append(FakeRay(changed))
        return made[0]

    books = Books()
    fleet = OverRay(make, MEMBERS, lambda: books.drained, books.write)
    made[0].tell_ready(capacity(ONE, 2048 * MIB), capacity(TWO, 4096 * MIB, ["debian"]))
    try:
        yield fleet, made[0]
    finally:
        await fleet.close()


async def test_the_machine_with_the_most_room_is_chosen_and_the_place_counts_at_once() -> None:
    async with opened() as (fleet, ray):
        found = await fleet.reserve(Need(memory_bytes=3000 * MIB), timeout_s=0)
        assert (found.host, ray.kept[found.id].machine_id) == ("two", TWO)
        one, two = fleet.hosts()
        assert one.free_bytes == 2048 * MIB
        assert two.reserved_bytes == 3000 * MIB + OVERHEAD
        assert (await fleet.reserve(SMALL, timeout_s=0)).host == "one"


async def test_a_place_is_not_counted_twice_once_ray_tells_of_it() -> None:
    async with opened() as (fleet, ray):
        found = await fleet.reserve(SMALL, timeout_s=0)
        ray.tell(places=tuple(ray.kept.values()))
        assert sum(one.reserved_bytes for one in fleet.hosts()) == 256 * MIB + OVERHEAD
        looks = {**ray.state.looks, TWO: {**ray.state.looks[TWO], "kept": [found.id]}}
        await fleet.confirm(found, "a" * 12)
        ray.tell(looks=looks)  # from now on the machine counts its sandbox itself
        assert sum(one.reserved_bytes for one in fleet.hosts()) == 0
        assert (TWO, "bind", found.id, "a" * 12, 256 * MIB) in ray.asked


async def test_if_another_program_was_faster_the_next_machine_is_asked() -> None:
    async with opened() as (fleet, ray):
        ray.room[TWO] = 0
        assert (await fleet.reserve(SMALL, timeout_s=0)).host == "one"
        ray.room[ONE] = 0
        with pytest.raises(FleetFullError) as caught:
            await fleet.reserve(SMALL, timeout_s=0.01)
        assert {one.lack for one in caught.value.lacks} == {Lack.REFUSED}
        assert len(ray.kept) == 1


async def test_a_full_fleet_says_what_each_machine_lacks() -> None:
    async with opened() as (fleet, ray):
        ray.tell(alive=frozenset({TWO}))
        with pytest.raises(FleetFullError, match=r"one is unreachable .* two has 4\.0 GiB free"):
            await fleet.reserve(Need(memory_bytes=4090 * MIB), timeout_s=0)


async def test_who_waits_gets_the_first_place_that_is_free() -> None:
    async with opened() as (fleet, ray):
        ray.tell_ready(capacity(ONE, 0), capacity(TWO, 0))
        waiting = asyncio.create_task(fleet.reserve(SMALL, timeout_s=30))
        async for event in fleet.watch():
            if event.kind is FleetEventKind.WAITING:
                break
            ray.tell()
            await asyncio.sleep(0)
        ray.tell_ready(capacity(ONE, 1024 * MIB), capacity(TWO, 0))
        assert (await waiting).host == "one"


async def test_after_a_cancellation_nothing_is_reserved() -> None:
    async with opened() as (fleet, ray):
        ray.slow = asyncio.Event()
        task = asyncio.create_task(fleet.reserve(SMALL, timeout_s=30))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert not ray.kept
        assert all(not one.reserved_bytes for one in fleet.hosts())


async def test_release_is_idempotent_and_says_nothing_of_a_ray_that_is_gone() -> None:
    async with opened() as (fleet, ray):
        found = await fleet.reserve(SMALL, timeout_s=0)
        ray.failing.add("drop")
        await fleet.release(found)
        assert not ray.kept
        ray.tell(error="gone")
        await fleet.release(found)


async def test_a_sandbox_whose_place_cannot_be_noted_is_told() -> None:
    async with opened() as (fleet, ray):
        found = await fleet.reserve(SMALL, timeout_s=0)
        ray.failing.add("bind")
        with pytest.raises(FleetError):
            await fleet.confirm(found, "a" * 12)


async def test_close_gives_back_only_what_is_not_confirmed() -> None:
    async with opened() as (fleet, ray):
        kept = await fleet.reserve(SMALL, timeout_s=0)
        await fleet.confirm(kept, "a" * 12)
        await fleet.reserve(SMALL, timeout_s=0)
        await fleet.close()
        assert list(ray.kept) == [kept.id]


async def test_a_machine_that_ray_does_not_reach_keeps_its_figures_and_is_not_dead() -> None:
    async with opened() as (fleet, ray):
        ray.tell(alive=frozenset({TWO}))
        one, two = fleet.hosts()
        assert (one.state, one.memory_bytes) == (HostState.UNREACHABLE, 4096 * MIB)
        assert two.state is HostState.READY
        ray.tell(error="the head is gone")
        assert [host.why for host in fleet.hosts()] == ["the head is gone"] * 2
        ray.tell(error="", alive=frozenset({ONE, TWO}))
        assert [host.state for host in fleet.hosts()] == [HostState.READY] * 2


async def test_a_machine_whose_part_of_ray_hangs_is_not_chosen() -> None:
    async with opened() as (fleet, ray):
        ray.tell(looks={**ray.state.looks, TWO: {**ray.state.looks[TWO], "error": "no answer"}})
        assert (await fleet.reserve(SMALL, timeout_s=0)).host == "one"


async def test_what_a_machine_tells_and_makes_no_sense_makes_it_unfit() -> None:
    async with opened() as (fleet, ray):
        ray.tell(looks={ONE: {"capacity": {"cpus": "many"}, "kept": []}})
        assert fleet.hosts()[0].state is HostState.UNFIT


async def test_a_drained_machine_takes_nothing_new() -> None:
    async with opened() as (fleet, _):
        await fleet.drain("two")
        assert fleet.hosts()[1].state is HostState.DRAINED
        assert (await fleet.reserve(SMALL, timeout_s=0)).host == "one"
        await fleet.drain("two", on=False)
        assert fleet.hosts()[1].state is HostState.READY
        with pytest.raises(FleetHostNotFoundError):
            await fleet.drain("three")


async def test_what_another_program_drains_is_noticed(tmp_path: Path) -> None:
    books = Books()
    fleet = OverRay(FakeRay, MEMBERS, lambda: books.drained, books.write, place=tmp_path)
    try:
        books.write("one", on=True)
        (tmp_path / "fleet.json").touch()
        await until(lambda: fleet._drained.names == {"one"}, "the drained machine")
    finally:
        await fleet.close()


async def test_of_a_place_refused_by_its_machine_nothing_stays() -> None:
    async with opened() as (fleet, ray):
        first = await fleet.reserve(SMALL, timeout_s=0)
        await fleet.refused(first, "no memory")
        assert not ray.kept
        assert (await fleet.reserve(SMALL, timeout_s=0)).host == "one"

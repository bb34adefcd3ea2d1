"""The back end over ssh: the machine decides, nobody gets more than it has, nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand.base.errors import FleetError, FleetFullError, FleetHostNotFoundError
from quicksand.base.paths import Paths
from quicksand_fleet import desk as desk_module
from quicksand_fleet.desk import Desk
from quicksand_fleet.interface import FleetEvent, FleetEventKind, HostState, Lack, Need, Reservation
from quicksand_fleet.over_ssh import OverSsh
from quicksand_fleet.waiting_list import WaitingList

from tests.conftest import examples
from tests.unit.fleet.fakes import GIB, Truth, fleet_of, room_for
from tests.unit.remote.far import until

NEED = Need(memory_bytes=GIB, image="debian")


async def test_places_are_shared_out_before_anything_runs() -> None:
    one, other = Truth("one", room_for(3)), Truth("other", room_for(3))
    async with fleet_of(one, other) as fleet:
        places = [(await fleet.reserve(NEED, timeout_s=0)).host for _ in range(6)]
        assert sorted(places) == ["one"] * 3 + ["other"] * 3
        assert places[0] != places[1]  # the first counts before its machine has told of it
        with pytest.raises(FleetFullError) as caught:
            await fleet.reserve(NEED, timeout_s=0)
        assert {lack.lack for lack in caught.value.lacks} == {Lack.MEMORY}
    assert not one.claims and not other.claims


async def test_of_two_clients_one_gets_the_last_of_the_memory() -> None:
    last, spare = Truth("last", room_for(1)), Truth("spare", room_for(1), images=())
    async with fleet_of(last, spare) as here, fleet_of(last, spare) as there:
        found = await asyncio.gather(
            here.reserve(NEED, timeout_s=0), there.reserve(NEED, timeout_s=0)
        )
        assert sorted(one.host for one in found) == ["last", "spare"]
        assert last.asked == 2  # it has refused the slower one


async def test_a_sandbox_waits_until_another_has_ended() -> None:
    only = Truth("only", room_for(1))
    async with fleet_of(only) as fleet:
        first = await fleet.reserve(NEED, timeout_s=0)
        only.begin(first.id)
        await fleet.confirm(first, "0" * 12)
        only.tell()
        waiting = asyncio.create_task(fleet.reserve(NEED, timeout_s=60))
        await asyncio.sleep(0)
        assert not waiting.done()
        only.end(first.id)
        only.tell()
        assert (await waiting).host == "only"


async def test_other_programs_see_who_waits(places: Paths) -> None:
    only, list_ = Truth("only", room_for(1)), WaitingList(places)
    async with fleet_of(only) as fleet:
        desk = Desk(fleet)
        first = await desk.reserve(NEED, timeout_s=0)
        assert list_.count() == 0
        waiting = asyncio.create_task(desk.reserve(NEED, timeout_s=60))
        await until(lambda: list_.count() == 1, "the one who waits")
        await desk.release(first)
        only.tell()
        await waiting
        assert list_.count() == 0
        given_up = asyncio.create_task(desk.reserve(NEED, timeout_s=60))
        await until(lambda: list_.count() == 1, "the one who waits")
        given_up.cancel()
        await asyncio.wait([given_up])
        assert list_.count() == 0


async def test_the_first_sandboxes_are_shared_out_though_one_machine_answers_later() -> None:
    quick, slow = Truth("quick", room_for(12)), Truth("slow", room_for(12), silent=asyncio.Event())
    async with fleet_of(quick, slow) as fleet:
        desk = Desk(fleet)
        starts = [asyncio.create_task(desk.reserve(NEED, timeout_s=60)) for _ in range(12)]
        await until(lambda: quick.clients[0].since is not None, "the quick one")
        assert not quick.asked
        assert slow.silent is not None
        slow.silent.set()
        places = [(await start).host for start in starts]
        assert sorted(places) == ["quick"] * 6 + ["slow"] * 6


async def test_a_machine_that_does_not_answer_holds_nobody_up_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desk_module, "OTHERS_S", 0.01)
    quick, never = Truth("quick", room_for(3)), Truth("never", room_for(3), silent=asyncio.Event())
    async with fleet_of(quick, never) as fleet:
        desk = Desk(fleet)
        for _ in range(2):
            assert (await desk.reserve(NEED, timeout_s=60)).host == "quick"


async def test_all_refuse_and_the_deadline_passes() -> None:
    only = Truth("only", room_for(1))
    async with fleet_of(only) as fleet:
        only.claims["of others"] = GIB  # it has not told of that yet
        with pytest.raises(FleetFullError, match="only has refused") as caught:
            await fleet.reserve(NEED, timeout_s=0.01)
        assert caught.value.lacks[0].lack is Lack.REFUSED


async def test_a_machine_that_refuses_a_start_is_not_asked_again_at_once() -> None:
    one, other = Truth("one", room_for(3)), Truth("other", room_for(2))
    async with fleet_of(one, other) as fleet:
        first = await fleet.reserve(NEED, timeout_s=0)
        assert first.host == "one"
        await fleet.refused(first, "its own check says no")
        assert not one.claims
        assert (await fleet.reserve(NEED, timeout_s=0)).host == "other"
        # A smaller one may fit.
        assert (await fleet.reserve(Need(memory_bytes=GIB // 8), timeout_s=0)).host == "one"


async def test_what_no_machine_could_ever_hold_is_refused_at_once() -> None:
    async with fleet_of(Truth("only", room_for(1))) as fleet:
        with pytest.raises(FleetFullError):
            await asyncio.wait_for(fleet.reserve(Need(memory_bytes=9 * GIB), timeout_s=600), 30)


async def test_a_drained_machine_gets_nothing_new_and_is_drained_once_it_is_empty() -> None:
    one, other = Truth("one", room_for(4)), Truth("other", room_for(1))
    kept: set[str] = set()
    async with fleet_of(one, other, drained=kept) as fleet:
        first = await fleet.reserve(NEED, timeout_s=0)
        one.begin(first.id)
        await fleet.confirm(first, "0" * 12)
        one.tell()
        await fleet.drain("one")
        assert kept == {"one"}
        assert [host.state for host in fleet.hosts()] == [HostState.DRAINING, HostState.READY]
        assert (await fleet.reserve(NEED, timeout_s=0)).host == "other"
        one.end(first.id)
        one.tell()
        assert fleet.hosts()[0].state is HostState.DRAINED
        with pytest.raises(FleetFullError, match="one is drained"):
            await fleet.reserve(NEED, timeout_s=0)
        await fleet.drain("one", on=False)
        assert (await fleet.reserve(NEED, timeout_s=0)).host == "one"
        with pytest.raises(FleetHostNotFoundError, match="'two'"):
            await fleet.drain("two")


async def test_a_machine_that_is_away_is_unreachable_since_then_and_keeps_its_figures() -> None:
    one, other = Truth("one", room_for(4)), Truth("other", room_for(1))
    async with fleet_of(one, other) as fleet:
        one.lose()
        host = fleet.hosts()[0]
        assert (host.state, host.since, host.why) == (
            HostState.UNREACHABLE,
            1.0,
            "no route to host",
        )
        assert host.memory_bytes == room_for(4)
        assert (await fleet.reserve(NEED, timeout_s=0)).host == "other"
        waiting = asyncio.create_task(fleet.reserve(NEED, timeout_s=60))
        await asyncio.sleep(0)
        one.come_back()
        assert (await waiting).host == "one"


async def test_a_cancelled_request_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    only = Truth("only", room_for(1))
    async with fleet_of(only) as fleet:
        gate = asyncio.Event()
        monkeypatch.setattr(only.clients[0], "gate", gate)
        waiting = asyncio.create_task(fleet.reserve(NEED, timeout_s=60))
        await asyncio.sleep(0)
        assert fleet.hosts()[0].reserved_bytes == room_for(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert fleet.hosts()[0].reserved_bytes == 0
        gate.set()
        assert (await fleet.reserve(NEED, timeout_s=0)).host == "only"


async def test_releasing_twice_is_no_error_and_a_closed_fleet_says_so() -> None:
    only = Truth("only", room_for(1))
    async with fleet_of(only) as fleet:
        first = await fleet.reserve(NEED, timeout_s=0)
        await fleet.release(first)
        await fleet.release(first)
        only.tell()
        second = await fleet.reserve(NEED, timeout_s=0)
        assert second.id != first.id
    assert not only.claims
    with pytest.raises(FleetError, match="closed"):
        await fleet.reserve(NEED, timeout_s=0)


async def test_what_happens_is_told() -> None:
    only = Truth("only", room_for(1))
    async with fleet_of(only) as fleet:
        heard: list[FleetEvent] = []
        hearing = asyncio.create_task(_hear(fleet, heard))
        await until(lambda: len(heard) == 1, "the machine to be told of")
        first = await fleet.reserve(NEED, timeout_s=0)
        only.tell()
        with pytest.raises(FleetFullError):
            await fleet.reserve(NEED, timeout_s=0.01)
        await fleet.release(first)
        await until(lambda: FleetEventKind.RELEASED in kinds(heard), "all to be told")
        told = [kind for kind in kinds(heard) if kind is not FleetEventKind.HOST]
        assert told == [
            *(FleetEventKind.PLACED, FleetEventKind.WAITING, FleetEventKind.GAVE_UP),
            FleetEventKind.RELEASED,
        ]
    await hearing  # it ends with the fleet


async def _hear(fleet: OverSsh, heard: list[FleetEvent]) -> None:
    async for event in fleet.watch():
        heard.append(event)


def kinds(heard: list[FleetEvent]) -> list[FleetEventKind]:
    return [event.kind for event in heard]


# Whatever happens, in whatever order

ACTIONS = ("reserve", "begin", "release", "refused", "end", "tell", "lose", "return", "drain")


@settings(max_examples=examples(120))
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 99)), max_size=40),
)
def test_no_machine_is_ever_over_its_capacity(
    guests: list[int], actions: list[tuple[str, int]]
) -> None:
    asyncio.run(_play([Truth(f"m{n}", room_for(size)) for n, size in enumerate(guests)], actions))


async def _play(truths: list[Truth], actions: list[tuple[str, int]]) -> None:
    drained: set[str] = set()
    async with two_clients(truths, drained) as fleets:
        held: list[tuple[OverSsh, Reservation]] = []
        for action, number in actions:
            truth, fleet = truths[number % len(truths)], fleets[number % 2]
            match action:
                case "reserve":
                    need = Need(memory_bytes=GIB * (1 + number % 2))
                    before = {one.name: one.asked for one in truths}
                    with contextlib.suppress(FleetFullError):
                        held.append((fleet, await fleet.reserve(need, timeout_s=0)))
                    assert all(
                        one.asked == before[one.name] for one in truths if one.name in drained
                    )
                case "begin" | "release" | "refused" if held:
                    owner, reservation = held.pop(number % len(held))
                    there = next(one for one in truths if one.name == reservation.host)
                    if action == "begin" and reservation.id in there.claims:
                        there.begin(reservation.id)
                        await owner.confirm(reservation, "0" * 12)
                    elif action == "refused":
                        await owner.refused(reservation, "")
                    else:
                        await owner.release(reservation)
                case "end" if truth.sandboxes:
                    truth.end(next(iter(truth.sandboxes)))
                case "tell" if not truth.is_away:
                    truth.tell()
                case "lose":
                    truth.lose()
                case "return":
                    truth.come_back()
                case "drain":
                    on = truth.name not in drained
                    for one in fleets:
                        await one.drain(truth.name, on=on)
            assert all(one.taken <= one.budget and one.most <= one.budget for one in truths)
    assert not any(one.claims for one in truths)


@contextlib.asynccontextmanager
async def two_clients(truths: list[Truth], drained: set[str]) -> AsyncIterator[list[OverSsh]]:
    async with fleet_of(*truths, drained=drained) as one, fleet_of(*truths, drained=drained) as two:
        yield [one, two]

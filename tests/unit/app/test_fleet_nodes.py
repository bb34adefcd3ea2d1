"""The fleet in the app: its local nodes as machines, what they have, who is drained, and who
waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from quicksand.base.paths import Paths
from quicksand.records.fleet_files import fleet_file
from quicksand.records.memory_budget import Claims
from quicksand_fleet.nodes import end_fleet, make_nodes
from quicksand_fleet.record import set_drained
from quicksand_fleet.waiting_list import WaitingList

from quicksand_tui.door.service import EngineService
from quicksand_tui.forms.new_sandbox import new_form
from quicksand_tui.model.world import HostView, MachineState, MachineView, RoomView, World
from quicksand_tui.opening.opening import meet_machines
from quicksand_tui.views.counts import host_text
from quicksand_tui.views.machine_groups import describe_machine, listed_row
from tests.unit.app.fakes import FULL, GIB, FakeService, screen_text, shown, until
from tests.unit.app.test_machines import BOX, WIDE, WORLD

MIB = 1024**2
NODE = replace(
    BOX,
    name="node-1",
    host=HostView(room=RoomView(memory=4 * GIB, free=GIB, claims=2)),
)
LOST = replace(NODE, name="node-2", state=MachineState.AWAY, since=WORLD.taken - 12)


@pytest.fixture
async def service(places: Paths) -> AsyncIterator[EngineService]:
    """The app's service beside a fleet of two local nodes."""
    make_nodes(places, 2)
    service = EngineService()
    yield service
    await asyncio.to_thread(service.close)
    if fleet_file(places).exists():
        await end_fleet(places, told=lambda _: None)


async def world_of(service: EngineService) -> World:
    return await asyncio.to_thread(service.read)


async def nodes_there(service: EngineService) -> World:
    async with asyncio.timeout(60):
        while True:
            world = await world_of(service)
            if all(one.state is MachineState.THERE for one in world.machines):
                return world
            await asyncio.sleep(0.02)


def node(world: World, name: str) -> MachineView:
    found = world.machine(name)
    assert found is not None
    return found


async def test_local_nodes_are_machines_and_tell_what_they_have(
    service: EngineService, places: Paths
) -> None:
    service.meet({})
    world = await nodes_there(service)
    assert [one.name for one in world.machines] == ["node-1", "node-2"]
    room = node(world, "node-1").host.room
    assert room is not None and 0 < room.free <= room.memory and room.claims == 0
    assert world.waiting == 0 and not node(world, "node-1").is_drained


async def test_drained_nodes_and_who_waits_are_told_at_once(
    service: EngineService, places: Paths
) -> None:
    service.meet({})
    await nodes_there(service)
    set_drained(places, "node-2", on=True)
    waiting = WaitingList(places)
    held = waiting.join()
    world = await world_of(service)
    assert [one.is_drained for one in world.machines] == [False, True]
    assert world.waiting == 1
    waiting.leave(*held)
    assert (await world_of(service)).waiting == 0


async def test_a_node_tells_of_places_that_are_kept(service: EngineService, places: Paths) -> None:
    service.meet({})
    await nodes_there(service)
    (one, _) = (places.data / "fleet" / "nodes").iterdir()
    claims = Claims(replace(places, data=one))
    held = claims.take("a" * 32, 256 * MIB)
    try:
        async with asyncio.timeout(60):
            while sum(r.claims for r in rooms(await world_of(service))) != 1:
                await asyncio.sleep(0.02)
    finally:
        claims.drop(held)


async def test_a_fleet_that_goes_down_and_up_at_once_is_connected_to_anew(
    service: EngineService, places: Paths
) -> None:
    service.meet({})
    await nodes_there(service)
    await end_fleet(places, told=lambda _: None)
    made = make_nodes(places, 2)
    # A place that is kept at a new node is told by that node only.
    claims = Claims(replace(places, data=made.nodes[0].data(places)))
    held = claims.take("a" * 32, 256 * MIB)
    try:
        async with asyncio.timeout(60):
            while sum(r.claims for r in rooms(await world_of(service))) != 1:
                await asyncio.sleep(0.02)
        assert len((await nodes_there(service)).machines) == 2
    finally:
        claims.drop(held)


async def test_the_app_opens_on_the_node_that_is_asked_for(
    service: EngineService, places: Paths
) -> None:
    for wished in ("node-2", "node://node-2"):
        meet_machines(service, {}, {"QUICKSAND_HOST": wished})
        assert service.opens_on == "node-2"
        # It has its header before the first look at the fleet.
        assert node(service.joined(FULL) or FULL, "node-2").address == "node://node-2"
    meet_machines(service, {}, {"QUICKSAND_HOST": "node-3"})
    assert service.opens_on == "" and not service.asked_for
    meet_machines(service, {"node-2": "ssh://elsewhere"}, {"QUICKSAND_HOST": "node-2"})
    assert service.opens_on == "node-2" and not service.asked_for
    async with shown(FakeService(replace(FULL, machines=(NODE, LOST)))) as (app, _):
        app.service.opens_on = "node-1"
        app.main.complete("node-1")
        assert app.main.selection.machine == "node-1"


def rooms(world: World) -> list[RoomView]:
    return [one.host.room for one in world.machines if one.host.room is not None]


async def test_a_fleet_that_ends_takes_its_nodes_with_it_and_a_damaged_record_is_told(
    service: EngineService, places: Paths
) -> None:
    service.meet({"node-1": "ssh://elsewhere"})
    world = await world_of(service)
    assert node(world, "node-1").address == "ssh://elsewhere", "the config comes first"
    assert node(world, "node-2").address == "node://node-2"
    record = fleet_file(places).read_text()
    fleet_file(places).write_text("nonsense")
    world = await world_of(service)
    assert str(fleet_file(places)) in world.error
    fleet_file(places).write_text(record)
    await end_fleet(places, told=lambda _: None)
    world = await world_of(service)
    assert [one.name for one in world.machines] == ["node-1"] and not world.error


def test_a_waiting_file_whose_program_has_ended_counts_no_more(places: Paths) -> None:
    waiting = WaitingList(places)
    assert waiting.count() == 0
    waiting.place.mkdir(parents=True)
    left, foreign = waiting.place / ("b" * 32), waiting.place / "notes"
    left.touch()
    foreign.touch()
    held = waiting.join()
    assert waiting.count() == 1
    assert not left.exists() and foreign.exists()
    waiting.leave(*held)
    assert waiting.count() == 0


def test_a_header_has_a_bar_and_says_what_is_drained_or_lost() -> None:
    def line(machine: MachineView) -> str:
        return "".join(text for text, _ in listed_row(machine, WORLD).line)

    assert line(NODE) == "▾ node-1  no sandboxes  ██████░░ 1.0G free"
    assert line(replace(NODE, is_drained=True)) == "▾ node-1  drained · no sandboxes"
    assert line(LOST).startswith("▾ node-2  away for 12s")
    full = replace(NODE, host=HostView(room=RoomView(memory=0, free=0)))
    assert "████████ 0 free" in line(full)


def test_a_machine_of_the_fleet_is_described() -> None:
    _, lines = describe_machine(replace(NODE, is_drained=True), WORLD)
    text = "\n".join("".join(word for word, _ in words) for _, words in lines)
    assert "1.0G of 4.0G free for sandboxes" in text
    assert "2 places are kept for sandboxes that start" in text
    assert "drained: the fleet places nothing new here" in text


def test_the_form_knows_what_a_node_may_have_and_not_what_its_machine_has() -> None:
    host = HostView(memory_free=6 * GIB, room=RoomView(memory=4 * GIB, free=GIB, is_limit=True))
    limited = replace(NODE, host=host)
    world = replace(WORLD, machines=(limited,))
    form, _ = new_form(world, host="node-1")
    values = {field.id: field.value for field in form.fields} | {"name": "a"}
    assert form.remarks({**values, "memory": ""}, world)["memory"] == "1.0G free"
    assert form.problems({**values, "memory": "2G"}, world)["memory"] == "the host has 1.0G free"
    assert "memory" not in form.problems({**values, "memory": "512M"}, world)
    # A machine that only keeps books for a fleet refuses nothing by them.
    books = replace(host, room=RoomView(memory=4 * GIB, free=GIB))
    world = replace(WORLD, machines=(replace(limited, host=books),))
    assert "memory" not in form.problems({**values, "memory": "2G"}, world)


async def test_a_node_says_that_its_room_is_its_limit(
    service: EngineService, places: Paths
) -> None:
    service.meet({})
    assert all(room.is_limit for room in rooms(await nodes_there(service)))


async def test_the_list_says_how_many_wait() -> None:
    world = replace(FULL, machines=(NODE, LOST), waiting=3)
    assert host_text(world).startswith("3 sandboxes wait for a place in the fleet · ")
    async with shown(FakeService(world), size=WIDE) as (app, _):
        await until(lambda: "3 sandboxes wait" in screen_text(app))
        assert "██████░░ 1.0G free" in screen_text(app)

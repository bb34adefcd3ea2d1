"""Whatever is killed, frozen, cut off or late: no two epochs of a sandbox run at the same time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from quicksand_fleet.keeping.book import Phase

from tests.conftest import examples
from tests.each import each
from tests.unit.fleet.keeping.world import TICK_S, Coordinator, World, own_clock

EVENTS = ("cut", "heal", "mute", "speak", "freeze", "thaw", "kill", "boot")
NAMES = ("a", "b", "c")

Event = tuple[str, int, float]
"""What happens, to which node, and the seconds that pass then."""


@pytest.fixture(autouse=True)
def clock() -> Iterator[None]:
    with own_clock():
        yield


def happen(world: World, what: str, number: int) -> None:
    node = list(world.nodes.values())[number]
    match what:
        case "cut":
            node.is_cut = True
        case "heal":
            node.is_cut = False
        case "mute":
            node.is_mute = True
        case "speak":
            node.is_mute = False
        case "freeze":
            node.is_frozen = True
        case "thaw":
            node.thaw()
        case "kill":
            node.go_down()
        case "boot":
            node.is_down = False
        case "lose":
            world.coordinator = None
        case "replace":
            world.coordinator = world.coordinator or Coordinator(world)
        case "stall" if world.coordinator is not None:
            world.coordinator.is_frozen = True
        case "go on" if world.coordinator is not None:
            world.coordinator.is_frozen = False


def a_world(rates: list[float], late: list[float]) -> World:
    world = World(rates, late)
    for number, name in enumerate(NAMES):
        world.begin(name, f"n{number % len(rates)}")
    world.coordinator = Coordinator(world)
    world.pass_time(5)
    return world


def heal(world: World) -> None:
    for node in world.nodes.values():
        node.is_cut = node.is_down = node.is_mute = False
        if node.is_frozen:
            node.thaw()
    if world.coordinator is None:
        world.coordinator = Coordinator(world)
    world.coordinator.is_frozen = False


LATE = st.lists(st.sampled_from([0.0, 0.0, 0.5, 3.0, 15.0, 40.0]), max_size=6)
RATES = st.lists(st.floats(0.95, 1.05), min_size=3, max_size=3)
HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from([*EVENTS, "lose", "replace", "stall", "go on"]),
        st.integers(0, 2),
        st.sampled_from([0.5, 2.0, 10.0, 25.0, 60.0]),
    ),
    max_size=14,
)


@settings(max_examples=examples(300))
@given(rates=RATES, late=LATE, events=HAPPENINGS)
@example(rates=[1.0] * 3, late=[0.0], events=[("cut", 0, 60.0), ("heal", 0, 60.0)])
@example(rates=[0.95, 1.05, 1.0], late=[40.0], events=[("freeze", 0, 60.0), ("thaw", 0, 0.5)])
@example(rates=[1.0] * 3, late=[0.0, 15.0], events=[("mute", 0, 60.0), ("speak", 0, 60.0)])
@example(
    rates=[1.0] * 3,
    late=[0.0],
    events=[("lose", 0, 10.0), ("cut", 0, 0.5), ("replace", 0, 25.0), ("heal", 0, 60.0)],
)
def test_no_two_epochs_run_at_once_and_in_the_end_each_runs(
    rates: list[float], late: list[float], events: list[Event]
) -> None:
    world = a_world(rates, late)
    for what, number, seconds in events:
        happen(world, what, number)
        world.check()
        world.pass_time(seconds)
    heal(world)
    world.late = [0.0]
    world.pass_time(400)
    for name in NAMES:
        assert len(world.running(name)) == 1, f"{name} does not run: {world.disk[name]}"
        assert not world.disk[name].older  # all machines have been told


def test_a_lost_machine_has_its_sandbox_started_elsewhere_after_its_lease() -> None:
    world = a_world([1.0] * 3, [])
    happen(world, "kill", 0)
    world.pass_time(20)
    assert world.disk["a"].epoch == 1
    world.pass_time(30)
    assert (world.disk["a"].epoch, world.disk["a"].host != "n0") == (2, True)
    assert world.disk["b"].epoch == world.disk["c"].epoch == 1


def test_a_machine_that_is_lost_for_less_than_its_lease_loses_nothing() -> None:
    world = a_world([1.0] * 3, [])
    happen(world, "cut", 0)
    world.pass_time(15)
    happen(world, "heal", 0)
    world.pass_time(100)
    assert all(world.disk[name].epoch == 1 for name in NAMES)


def test_without_a_coordinator_nothing_is_restarted_and_a_new_one_starts_it_where_it_was() -> None:
    world = a_world([1.0] * 3, [])
    happen(world, "lose", 0)
    world.pass_time(100)
    assert not any(world.running(name) for name in NAMES)
    happen(world, "replace", 0)
    world.pass_time(60)
    for number, name in enumerate(NAMES):
        assert (world.disk[name].epoch, world.disk[name].host) == (2, f"n{number}")


def test_a_coordinator_that_is_replaced_in_time_is_not_noticed() -> None:
    world = a_world([1.0] * 3, [])
    happen(world, "lose", 0)
    world.pass_time(10)
    happen(world, "replace", 0)
    world.pass_time(100)
    assert all(world.disk[name].epoch == 1 for name in NAMES)


@each("ticks", range(12))
@each("lost", ["kill", "cut", "freeze"])
def test_a_coordinator_and_a_machine_that_are_lost_amid_a_restart(lost: str, ticks: int) -> None:
    world = a_world([1.0] * 3, [])
    happen(world, "kill", 0)
    while world.disk["a"].phase is not Phase.STARTING:
        world.pass_time(TICK_S)
    world.pass_time(ticks * TICK_S)
    happen(world, "lose", 0)
    happen(world, lost, 1)
    world.pass_time(20)
    happen(world, "replace", 0)
    world.pass_time(100)
    heal(world)
    world.pass_time(200)
    assert all(len(world.running(name)) == 1 and not world.disk[name].older for name in NAMES)

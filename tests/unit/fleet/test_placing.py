"""Where a sandbox is placed, and what is said if it is nowhere."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from quicksand_fleet.interface import FleetHost, HostState, Lack, Need
from quicksand_fleet.placing import can_ever_fit, candidates, full_error, lacks_of, wanted_bytes

from tests.unit.fleet.fakes import GIB, room_for

NEED = Need(memory_bytes=GIB, image="debian")
HOST = FleetHost(
    name="a",
    state=HostState.READY,
    memory_bytes=room_for(4),
    free_bytes=room_for(2),
    images=("debian",),
)


def names(*hosts: FleetHost, refused: tuple[str, ...] = ()) -> list[str]:
    return [host.name for host in candidates(hosts, NEED, refused)]


def test_the_one_with_the_most_free_memory_comes_first() -> None:
    roomy = replace(HOST, name="b", free_bytes=room_for(3))
    assert names(HOST, roomy) == ["b", "a"]


def test_the_better_of_two_that_are_drawn_is_asked_first() -> None:
    hosts = [replace(HOST, name=name, free_bytes=room_for(n)) for n, name in enumerate("abcd", 2)]
    drawn = []

    def draw(numbers: Sequence[int], count: int) -> Sequence[int]:
        drawn.append((len(numbers), count))
        return [3, 1]

    found = [host.name for host in candidates(hosts, NEED, draw=draw)]
    assert found == ["c", "d", "b", "a"]
    assert drawn == [(4, 2)]


def test_only_those_that_have_the_image_are_drawn() -> None:
    with_image = [replace(HOST, name=name) for name in "abc"]
    without = [replace(HOST, name=name, images=(), free_bytes=room_for(4)) for name in "xyz"]
    firsts = {names(*with_image, *without)[0] for _ in range(50)}
    assert firsts <= {"a", "b", "c"}
    assert names(*without, refused=("y", "z")) == ["x"]
    assert {*names(*with_image, *without)[3:]} == {"x", "y", "z"}


def test_one_that_told_of_much_memory_and_fell_silent_draws_few_wishes() -> None:
    silent = replace(HOST, name="silent", free_bytes=room_for(4))
    hosts = [silent, *(replace(HOST, name=f"m{number}") for number in range(9))]
    chance = random.Random(1)
    asked = Counter(candidates(hosts, NEED, draw=chance.sample)[0].name for _ in range(1000))
    assert 150 < asked["silent"] < 250, "one of ten is among two that are drawn in a fifth of all"
    assert len(asked) >= 9


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.sampled_from(HostState)), max_size=8),
    st.sets(st.integers(0, 7)),
)
def test_who_is_asked_has_room_and_the_image_if_any_has_it(
    drawn: list[tuple[bool, int, HostState]], no: set[int]
) -> None:
    hosts = [
        replace(
            HOST,
            name=str(number),
            state=state,
            free_bytes=room_for(free),
            images=("debian",) if has_image else (),
        )
        for number, (has_image, free, state) in enumerate(drawn)
    ]
    refused = {str(number) for number in no}
    found = candidates(hosts, NEED, refused)
    fit = {
        one.name
        for one in hosts
        if one.takes_new and one.name not in refused and one.free_bytes >= wanted_bytes(NEED)
    }
    assert sorted(one.name for one in found) == sorted(fit)
    if found:
        assert found[0].images or not any(one.images for one in found)


def test_one_that_has_the_image_comes_before_one_with_more_memory() -> None:
    roomy = replace(HOST, name="b", free_bytes=room_for(3), images=())
    assert names(HOST, roomy) == ["a", "b"]


def test_machines_that_are_full_or_drained_or_away_or_have_refused_get_nothing() -> None:
    full = replace(HOST, name="full", free_bytes=room_for(1) - 1)
    others = [
        replace(HOST, name=state.value, state=state)
        for state in HostState
        if state is not HostState.READY
    ]
    assert names(full, *others, HOST, refused=("a",)) == []


def test_an_error_says_what_each_machine_lacks() -> None:
    hosts = [
        replace(HOST, name="full", free_bytes=GIB // 2),
        replace(HOST, name="drained", state=HostState.DRAINING),
        replace(HOST, name="away", state=HostState.UNREACHABLE, why="no route to host"),
        replace(HOST, name="old", state=HostState.UNFIT, why="too old"),
        HOST,
    ]
    lacks = lacks_of(hosts, NEED, {"a"})
    kinds = [Lack.MEMORY, Lack.DRAINED, Lack.UNREACHABLE, Lack.UNFIT, Lack.REFUSED]
    assert [one.lack for one in lacks] == kinds
    error = full_error(lacks, NEED, waited_s=3)
    assert error.lacks == lacks
    for words in ("full has 512 MiB free", "drained is drained", "away is unreachable (no route"):
        assert words in str(error)
    assert "within 3 s" in str(error)


def test_no_machine_at_all_is_said() -> None:
    assert "has no machine" in str(full_error((), NEED, waited_s=1))


def test_nobody_waits_for_what_can_never_fit() -> None:
    small = replace(HOST, memory_bytes=GIB)
    assert not can_ever_fit([small], NEED)
    assert can_ever_fit([HOST], NEED)
    # It may be larger than it was.
    assert can_ever_fit([replace(small, state=HostState.UNREACHABLE)], NEED)

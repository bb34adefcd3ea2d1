"""Where a sandbox is placed, and what is said if it is nowhere."""

from __future__ import annotations

from dataclasses import replace

from quicksand.fleet.interface import FleetHost, HostState, Lack, Need
from quicksand.fleet.placing import can_ever_fit, candidates, full_error, lacks_of

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


def test_one_that_has_the_image_comes_before_one_with_more_memory() -> None:
    roomy = replace(HOST, name="b", free_bytes=room_for(3), images=())
    assert names(HOST, roomy) == ["a", "b"]


def test_who_lacks_memory_is_drained_or_away_or_has_refused_is_none() -> None:
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

"""The coordinator itself, with a book on the disk and machines that are none."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace

import pytest
from quicksand.base.errors import FleetFullError, NameTakenError, RemoteUnreachableError, StateError
from quicksand.base.files import try_lock
from quicksand.base.paths import Paths
from quicksand.qemu.keeper_parts.owner import Lease
from quicksand_fleet.keeping import coordinator, unneeded
from quicksand_fleet.keeping.book import Book, Exported, Kept, Phase, Wish
from quicksand_fleet.keeping.coordinator import Coordinator
from quicksand_fleet.keeping.judging import Step, starting
from quicksand_fleet.keeping.unneeded import Unneeded
from quicksand_fleet.keeping.wire import Line, State, Told

from tests.unit.fleet.keeping.world import LEASE_S, TICK_S, Machine, Node, World, own_clock
from tests.unit.remote.far import until

REAL_S = 0.01
"""Seconds of ours that a tick of the world takes."""


class Connected(World):
    """A world whose machines are connected to at most one coordinator."""

    def __init__(self, book: Book, where: Paths) -> None:
        super().__init__([1.0] * 3, [])
        self.book, self.where = book, where
        self.lines: dict[str, asyncio.Queue[Line]] = {}
        self.exports = 0
        self.saves: set[str] = set()
        """Exported ones of the coordinator's machine."""
        self.fails_after: set[str] | None = None
        """The place after which an export fails."""

    def places(self) -> list[set[str]]:
        return [self.saves, *(node.saves for node in self.nodes.values())]

    def send_line(self, host: str, line: Line) -> None:
        if host in self.lines:
            self.lines[host].put_nowait(line)

    def begin(self, name: str, host: str) -> None:
        super().begin(name, host)
        self.book.add(self.disk[name])

    async def live(self) -> None:
        while True:
            self.time += TICK_S
            for node in self.nodes.values():
                node.work()
            self.check()
            await asyncio.sleep(REAL_S)


class Asking:
    def __init__(self, node: Node, lines: asyncio.Queue[Line]) -> None:
        self._node, self._lines = node, lines

    async def lines(self) -> AsyncIterator[Line]:
        while True:
            line = await self._lines.get()
            if not self._node.answers:
                raise RemoteUnreachableError("cut")
            yield line

    def answer(self, told: Told) -> None:
        if self._node.answers:
            self._node.obey(told)


class Doing:
    """What a coordinator does with these machines (`coordinator.Doing`)."""

    def __init__(self, world: Connected) -> None:
        self.world = world
        self._started: dict[str, Machine] = {}

    def _node(self, name: str) -> Node:
        node = self.world.nodes[name]
        if not node.answers:
            raise RemoteUnreachableError(f"{name} is away")
        return node

    @contextlib.asynccontextmanager
    async def machine(self, host: str) -> AsyncIterator[Asking]:
        node = self._node(host)
        lines = self.world.lines[host] = asyncio.Queue()
        try:
            yield Asking(node, lines)
        finally:
            if self.world.lines.get(host) is lines:
                del self.world.lines[host]

    async def start_elsewhere(
        self, kept: Kept, chosen: Callable[[Kept, str], Coroutine[None, None, None]]
    ) -> tuple[str, str]:
        lost = kept.older[-1].host if kept.older else ""
        ready = [one for one in self.world.nodes.values() if one.answers and one.name != lost]
        if not ready:
            raise FleetFullError("nobody has room")
        node = random.choice(ready)
        await chosen(kept, node.name)
        node = self._node(node.name)
        if any(one.name == kept.name and not one.is_superseded for one in node.machines.values()):
            raise NameTakenError("there is one")
        one = Machine(id=self.world.new_id(), name=kept.name, owner=self)
        node.machines[one.id] = self._started[kept.name] = one
        await asyncio.sleep(REAL_S)
        return node.name, one.id

    async def start_here(self, kept: Kept) -> None:
        node = self._node(kept.host)
        one = node.machines[kept.id]
        if one.permitted is None or one.permitted[0] != kept.epoch or one.state is State.RUNNING:
            raise NameTakenError("it may not be started")
        one.permitted = None
        one.state, one.lease, one.is_fenced = State.RUNNING, Lease(), False
        one.owner, one.orphaned_at = self, None
        self._started[kept.name] = one

    async def let_go(self, kept: Kept) -> None:
        self._node(kept.host)
        one = self._started.pop(kept.name)
        if one.state is not State.RUNNING:
            raise RemoteUnreachableError("it has ended")
        one.owner = None

    async def abandon(self, name: str) -> None:
        self._started.pop(name, None)

    async def find_left_over(self, kept: Kept) -> tuple[str, bool]:
        for one in self._node(kept.host).machines.values():
            if one.name == kept.name and not one.is_superseded:
                return one.id, one.state is State.RUNNING
        return "", False

    def choose_other(self, kept: Kept) -> str:
        return "n2"

    async def export(self, kept: Kept, saves: str, name: str, other: str) -> Exported:
        assert saves == "/saves"
        self.world.exports += 1
        for place in (self._node(kept.host).saves, self.world.saves, self._node(other).saves):
            place.add(name)
            if self.world.fails_after is place:
                raise RemoteUnreachableError("cut")
            await asyncio.sleep(REAL_S)
        return Exported(name=name, at=self.world.time, hosts=(other,))

    async def remove_exported(self, name: str) -> None:
        self.world.saves.discard(name)


@pytest.fixture
async def world(places: Paths, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connected]:
    monkeypatch.setattr(coordinator, "LOOK_S", REAL_S)
    monkeypatch.setattr(coordinator, "CONNECT_S", REAL_S)
    world = Connected(Book(places), places)
    living = asyncio.create_task(world.live())
    yield world
    if living.done():
        living.result()  # two ran at once
    living.cancel()
    await asyncio.wait([living])


@contextlib.asynccontextmanager
async def coordinating(world: Connected) -> AsyncIterator[Doing]:
    doing = Doing(world)
    world.coordinator = doing
    removing = Unneeded(world.where, lambda: world.time)
    keeping = Coordinator(world.book, doing, removing, clock=lambda: world.time)
    task = asyncio.create_task(keeping.run())
    try:
        yield doing
    finally:
        task.cancel()
        await asyncio.wait([task])
        world.coordinator = None
        assert task.cancelled() or task.exception() is None


def kept(world: Connected, name: str) -> Kept:
    found = world.book.read(name)
    assert found is not None
    return found


def is_past(world: Connected, time: float) -> bool:
    return world.time > time


def is_well(world: Connected, name: str) -> bool:
    """Whether it runs once, leased, where the book says, and all machines know."""
    now, found = kept(world, name), world.running(name)
    return (
        now.phase is Phase.LEASED
        and not now.older
        and [(host, one.id, one.epoch) for host, one in found] == [(now.host, now.id, now.epoch)]
    )


async def test_a_lost_machine_and_its_return(world: Connected) -> None:
    world.begin("a", "n0")
    async with coordinating(world):
        await until(lambda: "n0" in world.lines, "the machine to ask")
        world.nodes["n0"].go_down()
        await until(lambda: kept(world, "a").epoch == 2 and world.running("a"), "the second epoch")
        assert kept(world, "a").host != "n0"
        world.nodes["n0"].is_down = False
        await until(lambda: is_well(world, "a"), "the first to be marked")
    assert "n0 was lost" in kept(world, "a").restarted


async def test_a_sandbox_that_ends_by_itself_is_kept_no_more_and_its_saves_are_removed(
    world: Connected,
) -> None:
    world.begin("a", "n0")
    save = kept(world, "a").exported
    assert save is not None
    for place in world.places():
        place.add(save.name)
    world.book.write(replace(kept(world, "a"), exported=replace(save, hosts=("n2",))))
    async with coordinating(world):
        await until(lambda: "n0" in world.lines, "the machine to ask")
        [machine] = world.nodes["n0"].machines.values()
        machine.state = State.STOPPED
        await until(lambda: world.book.read("a") is None, "it to be forgotten")
        assert not world.nodes["n0"].machines  # it was released there
        await until(lambda: not (world.saves or world.nodes["n2"].saves), "the saves to go")
    assert world.nodes["n1"].saves == {save.name}  # nobody has sent it there


async def test_saves_are_exported_at_the_start_when_asked_for_and_every_so_often(
    world: Connected,
) -> None:
    world.begin("a", "n0")
    world.book.write(replace(kept(world, "a"), exported=None))
    async with coordinating(world):
        await until(lambda: world.exports == 1, "the first save")
        world.book.wish("a", Wish.SAVE)
        await until(lambda: world.exports == 2 and is_one_left(world), "the end of the first")
    world.book.write(replace(kept(world, "a"), every=10.0))
    async with coordinating(world):
        await until(lambda: world.exports >= 4, "two more by themselves")


def is_one_left(world: Connected) -> bool:
    """Whether the last save is wherever it was put, and no other one anywhere."""
    exported = kept(world, "a").exported
    return exported is not None and all(
        place == ({exported.name} if place is not world.nodes["n1"].saves else set())
        for place in world.places()
    )


async def test_exported_saves_are_few_whoever_is_lost_when(world: Connected) -> None:
    """The machine that holds them has no kept sandbox, so nobody else asks it for anything."""
    world.begin("a", "n0")
    world.book.write(replace(kept(world, "a"), exported=None))
    n0, n2 = world.nodes["n0"].saves, world.nodes["n2"].saves
    for place, fails in ((n0, True), (world.saves, True), (n2, True), (n2, False), (n0, False)):
        world.fails_after = place if fails else None
        before = set(place)
        async with coordinating(world):  # it ends when a copy is in that place
            await until(functools.partial(lambda p, b: p - b, place, before), "a save")
        world.book.wish("a", Wish.SAVE)
    world.nodes["n2"].is_cut = True
    async with coordinating(world):
        await until(lambda: "n0" in world.lines, "the machine to ask")
    world.nodes["n2"].is_cut = False
    async with coordinating(world):
        world.book.wish("a", Wish.SAVE)
        await until(lambda: is_one_left(world), "all but the last to go")


async def test_an_exported_save_that_another_one_lies_on_is_removed_later(
    world: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unneeded, "AGAIN_S", 5.0)
    world.begin("a", "n0")
    world.book.write(replace(kept(world, "a"), exported=None))
    async with coordinating(world):
        await until(lambda: kept(world, "a").exported is not None, "the first save")
        first = kept(world, "a").exported
        assert first is not None
        node = world.nodes["n2"]
        node.needed = {first.name}
        world.book.wish("a", Wish.SAVE)
        await until(lambda: first.name in node.left, "it to be asked for in vain")
        node.needed = set()
        await until(lambda: is_one_left(world), "it to go")


async def test_of_a_page_that_cannot_be_read_no_save_is_removed(world: Connected) -> None:
    world.begin("a", "n0")
    world.book.write(replace(kept(world, "a"), exported=None))
    async with coordinating(world):
        await until(lambda: kept(world, "a").exported is not None, "a save")
    saves = [set(place) for place in world.places()]
    page = world.book.place / "a.json"
    text = page.read_text()
    page.write_text("{")
    world.begin("b", "n2")
    async with coordinating(world):
        await until(lambda: "n2" in world.lines, "the machine to ask")
        later = world.time + LEASE_S
        await until(functools.partial(is_past, world, later), "a removal that does not come")
    assert [set(place) for place in world.places()] == saves
    page.write_text(text)


@pytest.mark.parametrize("is_here", [True, False])
async def test_one_that_was_to_be_started_and_is_ended_is_not_started(
    world: Connected, is_here: bool
) -> None:
    """A coordinator was lost amid a start, and its program could not say `stop` then."""
    world.begin("a", "n0")
    [machine] = world.nodes["n0"].machines.values()
    machine.state = State.FENCED
    step = Step.RESTART_HERE if is_here else Step.RESTART_ELSEWHERE
    page = starting(kept(world, "a"), step)
    world.book.write(page if is_here else replace(page, host="n1"))
    world.book.wish("a", Wish.END)
    async with coordinating(world):
        await until(lambda: world.book.read("a") is None, "it to be forgotten")
    assert not world.running("a")


async def test_what_its_program_ends_is_not_restarted(world: Connected) -> None:
    world.begin("a", "n0")
    async with coordinating(world):
        await until(lambda: "n0" in world.lines, "the machine to ask")
        world.book.wish("a", Wish.END)
        world.nodes["n0"].go_down()
        later = world.time + 4 * LEASE_S
        await until(functools.partial(is_past, world, later), "a restart that does not come")
        assert not world.running("a") and kept(world, "a").epoch == 1


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))]
)
async def test_whatever_happens_each_sandbox_runs_once_in_the_end(
    world: Connected, seed: int
) -> None:
    chance = random.Random(seed)
    for number, name in enumerate("abc"):
        world.begin(name, f"n{number}")
    for _ in range(3):
        async with coordinating(world):
            for _ in range(2):
                node = chance.choice(list(world.nodes.values()))
                match chance.randrange(4):
                    case 0:
                        node.go_down()
                    case 1:
                        node.is_frozen = True
                    case 2:
                        node.is_cut = True
                    case _:
                        node.is_cut = node.is_down = False
                        node.thaw()
                later = world.time + chance.choice([1.0, 10.0, 30.0])
                await until(functools.partial(is_past, world, later), "time to pass")
    for node in world.nodes.values():
        node.is_cut = node.is_down = False
        node.thaw()
    async with coordinating(world):
        await until(lambda: all(is_well(world, name) for name in "abc"), "all to be well")


def test_the_book_survives_damage_and_refuses_a_name_twice(places: Paths) -> None:
    book = Book(places)
    world = Connected(book, places)
    world.begin("a", "n0")
    with pytest.raises(NameTakenError):
        book.add(world.disk["a"])
    (book.place / "b.json").write_text("{")
    (book.place / "c.json").write_text((book.place / "a.json").read_text())
    assert list(book.read_all()) == ["a"]
    with pytest.raises(json.JSONDecodeError):
        book.read("b")
    book.write(replace(world.disk["a"], phase=Phase.ENDED))
    book.wish("a", Wish.END)
    book.add(replace(world.disk["a"], epoch=2))
    assert not book.has_wish("a", Wish.END)


def test_a_book_that_another_program_holds_is_not_taken_for_a_name_that_is_taken(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quicksand_fleet.keeping.book.LOCK_WAIT_S", 0.01)
    book = Book(places)
    world = Connected(book, places)
    world.begin("a", "n0")
    lock = try_lock(book.place / ".lock")
    assert lock is not None
    try:
        with pytest.raises(StateError, match="another program"):
            book.add(replace(world.disk["a"], name="b"))
    finally:
        os.close(lock)
    assert list(book.read_all()) == ["a"]


@pytest.fixture(autouse=True)
def clock() -> Iterator[None]:
    with own_clock():
        yield

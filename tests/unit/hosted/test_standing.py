"""Which sandboxes another machine has: told as it changes, unknown while that machine is away."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.errors import RemoteRefusedError, RemoteUnreachableError
from quicksand.base.paths import Paths
from quicksand.hosted import standing
from quicksand.hosted.codec import ForeignValueError
from quicksand.hosted.standing import Standing, StandingTable, decode_told, encode_told
from quicksand.remote.peer_link import Link, Request
from quicksand.things.status import Status

from tests.each import each
from tests.unit.remote.far import links, until


class Registry:
    """A registry of sandboxes that are none."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.removed: list[str] = []

    def add(self, id_: str, name: str, status: Status = Status.RUNNING) -> None:
        self.entries.append(SimpleNamespace(id=id_, name=name, status=status, run=None))

    def list(self) -> list[Any]:
        return [*self.entries]


class Machine:
    """Another machine, whose connection can break, and which can fall silent (a `Sharing`)."""

    generation = 1
    name = "box"

    def __init__(self, places: Paths) -> None:
        self.registry = Registry()
        self.offer = Standing(places)
        self.offer._registry = self.registry  # type: ignore[assignment]
        self.speaks = asyncio.Event()
        self.speaks.set()
        self.is_old = False
        self._stack = contextlib.AsyncExitStack()
        self._ends: tuple[Link, Link] | None = None

    def sharing(self) -> Machine:
        return self

    @property
    def destination(self) -> Any:
        return SimpleNamespace(short="box")

    async def link(self) -> Link:
        if self._ends is None or self._ends[0].ended.is_set():
            await self._stack.aclose()
            self._ends = await self._stack.enter_async_context(links(self._answer))
        return self._ends[0]

    async def _answer(self, request: Request) -> None:
        async def before_keeping() -> None: ...

        await self.speaks.wait()
        await self.offer.answer(request, before_keeping)

    def cut(self) -> None:
        assert self._ends is not None
        for end in self._ends:
            end.end(RemoteUnreachableError("cut"))

    def use(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def can(self, capability: str) -> bool:
        return not self.is_old

    async def ended(self) -> None:
        await self._stack.aclose()


@pytest.fixture
def machine(places: Paths, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(standing, "PAUSES_S", (0.01, 0.01))
    return Machine(places)


@contextlib.asynccontextmanager
async def followed(machine: Machine) -> AsyncIterator[tuple[StandingTable, list[str]]]:
    """A table of it, and what it has told of coming and going."""
    told: list[str] = []
    table = StandingTable(machine, lambda: told.append(table.away or "there"))  # type: ignore[arg-type]
    running = asyncio.create_task(table.run())
    try:
        yield table, told
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_look_is_no_older_than_its_call(machine: Machine) -> None:
    async with followed(machine) as (table, told):
        await table.heard.wait()
        assert (table.away, dict(table.sandboxes), told) == (None, {}, ["there"])
        machine.registry.add("one", "a")
        await table.look()
        assert [one.name for one in table.sandboxes.values()] == ["a"]
        machine.registry.entries[0].status = Status.STOPPED
        await table.look()
        assert not table.sandboxes["one"].is_live
        assert told == ["there"]


async def test_it_is_unknown_while_the_connection_is_broken(machine: Machine) -> None:
    machine.registry.add("one", "a")
    async with followed(machine) as (table, told):
        await table.heard.wait()
        machine.cut()
        await until(lambda: len(told) >= 2, "the break to be seen")
        assert "cut" in told[1]
        await until(lambda: table.away is None, "it to be back")
        assert told[2] == "there" and "one" in table.sandboxes


async def test_a_machine_that_falls_silent_is_away_until_it_speaks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "SILENT_S", 0.05)
    machine.speaks.clear()
    async with followed(machine) as (table, told):
        await table.heard.wait()
        assert "not answered" in str(table.away)
        monkeypatch.setattr(standing, "LOOK_MAX_S", 0.05)
        with pytest.raises(RemoteUnreachableError, match="box does not tell"):
            await table.look()
        monkeypatch.setattr(standing, "SILENT_S", 60.0)
        machine.speaks.set()
        await until(lambda: table.away is None, "it to speak")
        assert told[-1] == "there"


async def test_a_machine_that_is_too_old_says_so(machine: Machine) -> None:
    machine.is_old = True
    async with followed(machine) as (table, _):
        await table.heard.wait()
        assert "too old" in str(table.away)


async def test_only_the_one_of_exactly_that_id_or_name_is_removed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def remove(registry: Registry, id_: str, *, now: bool, stop: bool) -> None:
        assert now and stop
        registry.removed.append(id_)

    monkeypatch.setattr(standing, "remove_sandbox", remove)
    machine.registry.add("0123456789ab", "mine")
    machine.registry.add("0123456789ff", "other")
    async with followed(machine) as (table, _):
        for wanted in ("0123456789", "min", "nobody"):
            await table.remove(wanted)
        assert machine.registry.removed == []
        await table.remove("mine")
        await table.remove("0123456789ff")
        assert machine.registry.removed == ["0123456789ab", "0123456789ff"]
        with pytest.raises(RemoteRefusedError):
            await table.remove(None)  # type: ignore[arg-type]


def _line(times: int = 1, **odd: object) -> str:
    one = {"id": "a", "name": "b", "status": "running", **odd}
    return json.dumps({"seen": 1, "machine_id": "ab" * 16, "sandboxes": [one] * times})


def test_a_usual_line_is_read() -> None:
    assert decode_told(_line().encode()).seen == 1


@each(
    "line",
    [
        "no JSON",
        "[" * 10_000,
        '{"seen": "1"}',
        json.dumps({"seen": 1, "machine_id": "../x", "sandboxes": []}),
        _line(id="a\x1b[2J"),
        _line(name="n" * 300),
        _line(memory_bytes=-1),
        _line(cpu_seconds="inf"),
        _line(times=10_001),
    ],
)
def test_what_makes_no_sense_is_refused(line: str) -> None:
    with pytest.raises(ForeignValueError):
        decode_told(line.encode())


def test_a_line_is_read_as_it_was_written() -> None:
    one = standing.StandingSandbox(
        id="a", name="b", status="running", memory_bytes=3, cpu_seconds=1.5
    )
    told = standing.Told(seen=7, machine_id="ab" * 16, sandboxes=(one,))
    found = decode_told(encode_told(told))
    assert (found.seen, [*found.sandboxes]) == (7, [one])

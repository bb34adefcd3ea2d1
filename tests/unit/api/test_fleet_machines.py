"""The hosts of a fleet behind the API: what is known of their sandboxes, and what is asked of
which."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quicksand import FleetFullError, RemoteUnreachableError, SandboxNotFoundError
from quicksand.hosted.standing import StandingSandbox
from quicksand_e2b import fleet_machines as module
from quicksand_e2b.errors import HostAwayError
from quicksand_e2b.fleet_machines import FleetMachines
from quicksand_e2b.machines import Figures, Usage
from quicksand_e2b.records import SandboxRecord, State, new_id
from quicksand_fleet.interface import FleetEvent, FleetEventKind, FleetHost, HostState

from tests.unit.api.fakes import until


class FakeTable:
    """What a host tells."""

    def __init__(self, remote: Any, changed: Any) -> None:
        self.remote, self.changed = remote, changed
        self.sandboxes: dict[str, StandingSandbox] = {}
        self.away: str | None = None
        self.heard = asyncio.Event()
        self.heard.set()
        self.machine_id = f"machine {remote.name}"
        self.looks = 0
        self.removed: list[str] = []

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def look(self) -> None:
        self.looks += 1
        if self.away is not None:
            raise RemoteUnreachableError(self.away)

    async def remove(self, wanted: str) -> None:
        self.removed.append(wanted)

    def has(self, id_: str, name: str, status: str = "running") -> None:
        self.sandboxes[id_] = StandingSandbox(
            id=id_, name=name, status=status, memory_bytes=5, cpu_seconds=2.0
        )


class FakeFleet:
    """Two hosts; a third may come."""

    def __init__(self) -> None:
        self.names = ["one", "two"]
        self.coming: asyncio.Queue[str] = asyncio.Queue()

    def hosts(self) -> list[FleetHost]:
        return [
            FleetHost(
                name=name,
                state=HostState.DRAINED if name == "two" else HostState.READY,
                memory_bytes=100,
                free_bytes=60,
                sandboxes=3,
                images=("debian",) if name == "two" else (),
            )
            for name in self.names
        ]

    def host(self, name: str) -> Any:
        address = f"node://{name}" if name == "two" else f"ssh://{name}"
        return SimpleNamespace(name=name, address=address)

    async def watch(self) -> AsyncIterator[FleetEvent]:
        while True:
            name = await self.coming.get()
            self.names.append(name)
            host = FleetHost(name=name, state=HostState.READY)
            yield FleetEvent(kind=FleetEventKind.HOST, at=0.0, host=host)


class Here:
    """This machine, which has one sandbox that runs."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def is_live(self, record: SandboxRecord) -> bool:
        self.asked.append("is_live")
        return True

    async def running(self, records: Any) -> set[str]:
        return {record.id for record in records}

    async def pause(self, record: SandboxRecord, *, memory: bool) -> None:
        self.asked.append("pause")

    async def figures(self) -> Figures:
        return Figures(usage=[Usage(name="ours", memory_bytes=1, cpu_seconds=1.0)], hosts=[])


class FakeLife:
    """A sandbox on a host, which notes what is asked of it."""

    calls: list[tuple[str, str, Any]]
    checkpoints: list[Any]
    fails: BaseException | None = None

    def __init__(self, fleet: Any, host: str, id_: str, config: Any) -> None:
        self.host, self.id, self.config = host, id_, config

    async def call(self, name: str, *args: Any, **keywords: Any) -> Any:
        self.calls.append((self.host, name, args))
        if self.fails is not None:
            raise self.fails
        return [*self.checkpoints] if name == "checkpoints" else None

    async def start(self, at: str | None) -> None:
        self.calls.append((self.host, "start", (at,)))

    async def leave(self) -> None:
        self.calls.append((self.host, "leave", ()))


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> type[FakeLife]:
    class Life(FakeLife):
        calls: list[tuple[str, str, Any]] = []  # noqa: RUF012 - of one test
        checkpoints: list[Any] = []  # noqa: RUF012

    monkeypatch.setattr(module, "PlacedLife", Life)
    return Life


@contextlib.asynccontextmanager
async def _machines(told: list[str]) -> AsyncIterator[tuple[FleetMachines, dict[str, FakeTable]]]:
    machines = FleetMachines(cast(Any, FakeFleet()), cast(Any, Here()), told.append)
    async with machines:
        yield machines, cast(Any, machines._tables)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
async def both(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[FleetMachines, dict[str, FakeTable]]]:
    monkeypatch.setattr(module, "StandingTable", FakeTable)
    async with _machines(told) as found:
        yield found


Both = tuple[FleetMachines, dict[str, FakeTable]]


def _record(host: str, sandbox_id: str = "", machine_id: str = "") -> SandboxRecord:
    return SandboxRecord(
        id=new_id(), owner="me", template="base", state=State.RUNNING, created=0.0, ends=0.0,
        on_timeout="kill", auto_resume=False, pauses_memory=True, token="t", traffic_token="t",
        cpus=2, memory_mb=256, disk_mb=0, host=host, sandbox_id=sandbox_id,
        machine_id=machine_id,
    )  # fmt: skip


async def test_one_is_looked_for_on_its_own_host_only_and_by_its_id(both: Both) -> None:
    machines, tables = both
    record = _record("one", "aa")
    tables["two"].has("aa", record.name)
    assert not machines.exists(record)
    with pytest.raises(SandboxNotFoundError):
        machines.attach(record)
    tables["one"].has("bb", record.name)  # made later, by somebody who has seen the name
    assert not machines.exists(record)
    tables["one"].has("aa", "renamed", "stopped")
    assert machines.exists(record) and not machines.is_live(record)
    tables["one"].has("aa", "renamed")
    assert machines.is_live(record)


async def test_one_that_is_being_made_is_known_by_its_name(both: Both) -> None:
    machines, tables = both
    record = _record("one")
    tables["one"].has("aa", record.name)
    assert machines.exists(record)
    await machines.remove(record)
    assert (tables["one"].removed, tables["two"].removed) == ([record.name], [])
    await machines.remove(_record("one", "aa"))
    assert tables["one"].removed[1:] == ["aa"]


async def test_another_machine_of_the_same_name_is_not_its_host(both: Both) -> None:
    machines, tables = both
    ours = _record("one", "aa", machine_id="machine one")
    tables["one"].has("aa", ours.name)
    assert machines.exists(ours)
    tables["one"].machine_id = "of somebody else"
    with pytest.raises(HostAwayError, match="another machine"):
        machines.exists(ours)
    with pytest.raises(HostAwayError):
        await machines.remove(ours)
    assert tables["one"].removed == []


async def test_what_was_on_a_local_node_is_gone_when_another_node_has_its_name(both: Both) -> None:
    machines, tables = both
    ours = _record("two", "aa", machine_id="machine two")
    tables["two"].has("aa", ours.name)
    tables["two"].machine_id = "of the next fleet"
    assert not machines.exists(ours)
    await machines.remove(ours)
    assert tables["two"].removed == []


@pytest.mark.parametrize("host", ["one", "gone"])
async def test_of_a_host_that_is_away_or_gone_nothing_is_known_and_nothing_is_asked(
    both: Both, life: type[FakeLife], host: str
) -> None:
    machines, tables = both
    record = _record(host, "aa")
    tables["one"].has("aa", record.name)
    tables["one"].away = "it has not answered for 15 s"
    for ask in (machines.is_live, machines.exists, machines.attach):
        with pytest.raises(HostAwayError, match=host):
            ask(record)
    for work in (
        machines.pause(record, memory=True),
        machines.resume(record, memory=True),
        machines.end(record),
        machines.remove(record),
        machines.checkpoint(record, "tag"),
        machines.delete_checkpoint(record, "tag"),
        machines.clone(record, [_record(host)], at=None, memory=True),
        machines.console(record),
        machines.has_pause(record),
    ):
        with pytest.raises(HostAwayError, match=host):
            await work
    assert life.calls == [] and tables["one"].removed == []
    other = _record("two", "bb")
    assert await machines.running([record, other]) == {record.id}


async def test_those_of_this_machine_go_on_as_they_are(both: Both) -> None:
    machines, _ = both
    record = _record("")
    assert machines.is_live(record)
    await machines.pause(record, memory=True)
    assert cast(Any, machines._here).asked == ["is_live", "pause"]
    assert await machines.running([record]) == {record.id}


async def test_a_pause_is_a_checkpoint_and_an_end_after_which_the_host_is_looked_at(
    both: Both, life: type[FakeLife]
) -> None:
    machines, tables = both
    record = _record("two", "aa")
    tables["two"].has("aa", record.name)
    await machines.pause(record, memory=True)
    names = [(host, name) for host, name, _ in life.calls]
    assert names == [("two", "checkpoint"), ("two", "stop"), ("two", "leave")]
    assert tables["two"].looks == 1
    life.calls.clear()
    life.checkpoints = [
        SimpleNamespace(id="1", tag="mine"),
        SimpleNamespace(id="2", tag="api-pause"),
    ]
    await machines.pause(record, memory=False)
    assert [(name, args) for _, name, args in life.calls] == [
        ("checkpoints", ()), ("delete_checkpoint", ("2",)), ("stop", ()), ("leave", ()),
    ]  # fmt: skip


async def test_what_a_resume_starts_is_let_go_of_before_it_is_told(
    both: Both, life: type[FakeLife], monkeypatch: pytest.MonkeyPatch
) -> None:
    machines, tables = both
    record = _record("two", "aa")
    tables["two"].has("aa", record.name)
    monkeypatch.setattr(machines, "_sandbox", lambda host, id_: f"{id_} of {host}")
    assert cast(Any, await machines.resume(record, memory=True)) == "aa of two"
    names = [name for _, name, _ in life.calls]
    assert names == ["checkpoints", "leave", "start", "detach", "checkpoints", "leave"]


async def test_after_a_failure_the_host_is_looked_at_and_the_failure_is_told(
    both: Both, life: type[FakeLife]
) -> None:
    machines, tables = both
    record = _record("two", "aa")
    tables["two"].has("aa", record.name)
    life.fails = RemoteUnreachableError("whether it was carried out is unknown")
    with pytest.raises(RemoteUnreachableError, match="unknown") as caught:
        await machines.checkpoint(record, "tag")
    assert not isinstance(caught.value, HostAwayError)
    assert tables["two"].looks == 1
    assert [name for _, name, _ in life.calls] == ["checkpoint", "leave"], "it is not done twice"


async def test_figures_are_what_was_told_last_and_none_of_a_host_that_is_away(both: Both) -> None:
    machines, tables = both
    tables["one"].has("aa", "a")
    tables["one"].has("cc", "c", "stopped")
    tables["two"].has("bb", "b")
    tables["two"].away = "away"
    found = await machines.figures()
    assert [(one.host, one.name) for one in found.usage] == [("", "ours"), ("one", "a")]
    hosts = {one.name: (one.is_up, one.free_bytes, one.sandboxes) for one in found.hosts}
    assert hosts == {"one": (True, 60, 3), "two": (False, 0, 3)}, "a drained one takes none"
    assert tables["one"].looks == 0


async def test_a_host_that_comes_later_is_followed_too(both: Both) -> None:
    machines, tables = both
    cast(Any, machines._fleet).coming.put_nowait("three")
    await until(lambda: "three" in tables)


async def test_hosts_that_go_and_come_are_told_once_each(both: Both, told: list[str]) -> None:
    _, tables = both
    tables["one"].changed()
    assert told == [], "what is there at the start is no news"
    tables["one"].away = "it has not answered for 15 s"
    tables["one"].changed()
    tables["one"].away = None
    tables["one"].changed()
    assert "one is away: it has not answered" in told[0] and "503" in told[0]
    assert told[1:] == ["the host one is back"]


async def test_a_host_that_has_not_answered_at_the_start_is_told(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(FakeTable):
        def __init__(self, remote: Any, changed: Any) -> None:
            super().__init__(remote, changed)
            if remote.name == "two":
                self.heard.clear()
                self.away = "it has not answered yet"

    monkeypatch.setattr(module, "StandingTable", Silent)
    monkeypatch.setattr(module, "OTHERS_S", 0.01)
    async with _machines(told):
        assert len(told) == 1 and "the host two is away" in told[0]


async def test_nothing_is_made_while_no_host_answers(both: Both) -> None:
    machines, tables = both

    async def placed(host: str, machine_id: str) -> None:
        raise AssertionError("it has no place")

    for table in tables.values():
        table.away = "cut off"
    with pytest.raises(HostAwayError, match="one: cut off; two: cut off"):
        await machines.start(_record(""), "debian", placed)


async def test_a_drained_host_gets_no_clone_and_its_paused_go_on(
    both: Both, life: type[FakeLife], monkeypatch: pytest.MonkeyPatch
) -> None:
    machines, tables = both
    record = _record("two", "aa")
    tables["two"].has("aa", record.name)
    with pytest.raises(FleetFullError, match="'two' is drained"):
        await machines.clone(record, [_record("two")], at=None, memory=True)
    assert life.calls == []
    monkeypatch.setattr(machines, "_sandbox", lambda host, id_: None)
    await machines.resume(record, memory=False)
    assert ("two", "start", (None,)) in life.calls


async def test_images_are_those_of_any_host(both: Both) -> None:
    machines, _ = both
    assert await machines.has_image("debian")
    assert not await machines.has_image("nobody's")

"""Sandboxes on hosts of a fleet: what clients get while a host is away, and what becomes of what
was begun there."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand import (
    AgentUnreachableError,
    FleetError,
    FleetFullError,
    QuicksandError,
    RemoteUnreachableError,
)
from quicksand_e2b import sandboxes as module
from quicksand_e2b.asked import Asked
from quicksand_e2b.errors import HostAwayError, api_error, file_error, rpc_error
from quicksand_e2b.machines import LocalMachines
from quicksand_e2b.making import Making
from quicksand_e2b.records import SandboxRecord, State
from quicksand_e2b.sandboxes import Sandboxes

from tests.each import each
from tests.unit.api.fakes import (
    USUAL,
    Api,
    FakeMachines,
    decode,
    make_sandboxes,
    next_message,
    text_of,
    until,
)


@pytest.fixture
def placed(api: Api) -> Api:
    """A server whose sandboxes are made on the host "box"."""
    api.machines.place = "box"
    return api


def _record(api: Api, made: dict[str, str]) -> SandboxRecord:
    live = api.sandboxes.find(made["sandboxID"])
    assert live is not None
    return live.record


async def test_its_host_and_its_id_there_are_on_disk_when_it_runs(placed: Api) -> None:
    made = await placed.create()
    record = _record(placed, made)
    path = placed.sandboxes.records.directory / "sandboxes" / f"{record.id}.json"
    on_disk = json.loads(path.read_text())
    assert (on_disk["host"], on_disk["sandbox_id"]) == ("box", f"id of {record.name}")
    assert on_disk["schema_version"] == 3, "an earlier version would take it for gone"
    assert SandboxRecord.from_json(on_disk) == record


async def test_one_of_this_machine_is_written_as_before(api: Api) -> None:
    record = _record(api, await api.create())
    assert record.to_json()["schema_version"] == 2


async def test_its_host_is_on_disk_before_anything_is_there(placed: Api) -> None:
    placed.machines.starting = asyncio.Event()
    coming = asyncio.create_task(placed.create())
    place = placed.sandboxes.records.directory / "sandboxes"
    await until(lambda: any('"box"' in path.read_text() for path in place.glob("i*.json")))
    assert not placed.machines.found
    placed.machines.starting.set()
    await coming


async def test_forks_and_what_is_made_of_snapshots_are_on_the_host_of_their_source(
    placed: Api,
) -> None:
    made = await placed.create()
    await placed.call("POST", f"/sandboxes/{made['sandboxID']}/snapshots", {"name": "mine"})
    placed.machines.place = "other"
    fork = await placed.call("POST", f"/sandboxes/{made['sandboxID']}/fork", {"count": 1})
    [forked] = await fork.json()
    copy = await placed.create(templateID="mine")
    for one in (forked["sandbox"], copy):
        record = _record(placed, one)
        assert (record.host, record.sandbox_id) == ("box", f"id of {record.name}")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/connect", {}),
        ("POST", "/pause", {}),
        ("POST", "/timeout", {"timeout": 5}),
        ("POST", "/snapshots", {}),
        ("POST", "/fork", {}),
        ("GET", "/metrics", None),
    ],
)
async def test_while_its_host_is_away_nobody_knows_and_nothing_is_done(
    placed: Api, method: str, path: str, body: object
) -> None:
    made = await placed.create()
    before = _record(placed, made)
    placed.machines.away.add("box")

    answered = await placed.call(method, f"/sandboxes/{made['sandboxID']}{path}", body)

    assert answered.status == 503
    assert answered.headers["Retry-After"] == "5"
    assert "'box' is away" in (await answered.json())["message"]
    assert _record(placed, made) == before
    placed.machines.away.clear()
    assert placed.runs(made)
    assert (await placed.call("GET", f"/sandboxes/{made['sandboxID']}")).status == 200


async def test_while_its_host_is_away_its_guest_and_ports_are_503_and_no_end_of_it(
    placed: Api,
) -> None:
    made = await placed.create()
    placed.machines.away.add("box")
    headers = placed.headers(made)
    assert (await placed.client.get("/health", headers=headers)).status == 503
    assert (await placed.client.get("/files?path=x", headers=headers)).status == 503
    assert (await placed.rpc(made, "process.Process/List", {})).status == 503
    assert (await placed.client.get(f"/ports/80-{made['sandboxID']}/")).status == 503
    listed = await (await placed.call("GET", "/v2/sandboxes")).json()
    assert [one["sandboxID"] for one in listed] == [made["sandboxID"]]


async def test_time_that_is_up_while_its_host_is_away_ends_it_when_that_is_back(
    placed: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AWAY_S", 0.01)
    made = await placed.create()
    placed.machines.away.add("box")
    live = placed.sandboxes.find(made["sandboxID"])
    assert live is not None
    await placed.sandboxes.begin(live, 0)
    await until(lambda: live.id in placed.sandboxes._again)
    assert live.record.state is State.RUNNING and placed.runs(made)
    placed.machines.away.clear()
    await until(lambda: not placed.machines.found)
    assert placed.sandboxes.find(made["sandboxID"]) is None


@each(
    ("error", "status", "header"),
    [
        (HostAwayError("box is away"), 503, ("Retry-After", "5")),
        (FleetFullError("no room", lacks=()), 429, ("Should-Retry", "false")),
        (FleetError("it is closed"), 503, ("Should-Retry", "false")),
        (RemoteUnreachableError("unknown"), 502, ("Should-Retry", "false")),
        (AgentUnreachableError("the connection broke"), 502, ("Should-Retry", "false")),
    ],
)
def test_what_went_wrong_says_whether_it_may_be_sent_again(
    error: QuicksandError, status: int, header: tuple[str, str]
) -> None:
    found = api_error(error)
    assert (found.status, dict(found.headers)) == (status, dict([header]))
    assert rpc_error(error).status in (500, 503)
    assert file_error(error).status in (500, 503)


async def test_a_full_fleet_is_told_and_leaves_nothing(placed: Api) -> None:
    placed.machines.fails = FleetFullError("no host had 512 MiB", lacks=())
    response = await placed.call("POST", "/v2/sandboxes", {"templateID": "base"})
    assert response.status == 429
    assert "512 MiB" in (await response.json())["message"]
    assert list(placed.sandboxes) == []


@pytest.mark.parametrize("is_live", [True, False])
async def test_a_pause_whose_connection_breaks_is_unknown_until_its_host_tells(
    placed: Api, monkeypatch: pytest.MonkeyPatch, is_live: bool
) -> None:
    monkeypatch.setattr(module, "AWAY_S", 0.01)
    monkeypatch.setattr(module, "LATE_S", 60.0)
    made = await placed.create()
    [machine] = placed.machines.found.values()
    path = f"/sandboxes/{made['sandboxID']}"
    placed.machines.fails = RemoteUnreachableError("whether it was carried out is unknown")

    first = await placed.call("POST", f"{path}/pause", {})

    assert (first.status, first.headers["Should-Retry"]) == (502, "false")
    for what in ("connect", "fork", "timeout", "snapshots"):
        assert (await placed.call("POST", f"{path}/{what}", {})).status == 503
    health = await placed.client.post(
        "/process.Process/List", json={}, headers=placed.headers(made)
    )
    assert health.status == 503
    machine.is_live = is_live
    if is_live:  # nothing goes on there any more
        placed.sandboxes._late_until.clear()
    wanted = State.RUNNING if is_live else State.PAUSED
    await until(lambda: _record(placed, made).state is wanted)
    await until(lambda: not placed.sandboxes._unsettled)
    assert (await placed.call("POST", f"{path}/connect", {})).status == (200 if is_live else 201)


async def test_a_snapshot_that_cannot_be_undone_is_undone_when_its_host_is_back(
    placed: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    made = await placed.create()
    checkpoint = placed.machines.checkpoint

    async def checkpoint_and_leave(record: SandboxRecord, tag: str) -> None:
        await checkpoint(record, tag)
        placed.machines.away.add("box")
        raise RemoteUnreachableError("it broke")

    monkeypatch.setattr(placed.machines, "checkpoint", checkpoint_and_leave)
    answered = await placed.call("POST", f"/sandboxes/{made['sandboxID']}/snapshots", {})
    assert answered.status == 502
    [machine] = placed.machines.found.values()
    assert machine.checkpoints
    placed.machines.away.clear()
    placed.sandboxes._changed.set()
    await until(lambda: not machine.checkpoints and not placed.sandboxes.snapshots)


# A server that was killed


async def _server(machines: FakeMachines, place: Path) -> Sandboxes:
    found = make_sandboxes(machines, place, [])
    await found.load()
    return found


async def _left(machines: FakeMachines, place: Path, state: State) -> Sandboxes:
    """What a server leaves that is killed in this state."""
    machines.place = "box"
    sandboxes = await _server(machines, place)
    await Making(sandboxes, USUAL).create("me", Asked(template="base", timeout_s=300))
    [live] = sandboxes
    await sandboxes.records.save(replace(live.record, state=state, sandbox_id=""))
    return sandboxes


async def test_what_was_being_made_is_looked_for_until_its_host_can_have_no_more_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AWAY_S", 0.01)
    machines = FakeMachines()
    await _left(machines, tmp_path, State.MAKING)
    late = dict(machines.found)
    machines.found.clear()

    after = await _server(machines, tmp_path)
    clock = asyncio.create_task(after.watch())

    assert len(list(after.records.sandboxes())) == 1, "the next server must know of it, too"
    machines.found.update(late)  # the host was still at it
    await until(lambda: not machines.found)
    after._late_until = dict.fromkeys(after._late_until, 0.0)
    await until(lambda: not list(after))
    assert list(after.records.sandboxes()) == []
    clock.cancel()
    await asyncio.wait((clock,))
    await after.finish()


@each("state", [*State])
async def test_a_server_that_starts_while_the_host_is_away_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: State
) -> None:
    monkeypatch.setattr(module, "AWAY_S", 0.01)
    machines = FakeMachines()
    await _left(machines, tmp_path, state)
    machines.away.add("box")
    told: list[str] = []

    after = make_sandboxes(machines, tmp_path, told)
    await after.load()
    clock = asyncio.create_task(after.watch())

    [live] = after
    assert live.record.state is state and machines.found and not told
    with pytest.raises(HostAwayError):
        await after.resume(live, 5)
    machines.away.clear()
    after._late_until = dict.fromkeys(after._late_until, 0.0)
    await until(lambda: not after._unsettled)
    if state in (State.MAKING, State.ENDING, State.HELD):
        await until(lambda: not machines.found and not list(after))
    else:
        assert live.record.state is State.RUNNING and live.is_up()
    clock.cancel()
    await asyncio.wait((clock,))
    await after.finish()


async def test_a_server_without_a_fleet_leaves_what_is_on_hosts_alone(
    tmp_path: Path, places: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = FakeMachines()
    await _left(machines, tmp_path, State.RUNNING)
    here = LocalMachines(places)  # type: ignore[arg-type]
    after = Sandboxes(here, make_sandboxes(machines, tmp_path, []).records, lambda _: None)
    await after.load()
    [live] = after
    with pytest.raises(HostAwayError, match=r"'box'.*without --fleet"):
        live.is_up()
    with pytest.raises(HostAwayError):
        await after.kill(live)
    assert live.record.state is State.RUNNING
    assert list(await here.running([live.record])) == [live.id]
    await after.finish()


async def test_a_process_is_found_again_after_the_connection_to_its_host_broke(
    placed: Api,
) -> None:
    made = await placed.create()
    response = await placed.open(
        made,
        "process.Process/Start",
        {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "cat"]}, "stdin": True},
    )
    pid = (await next_message(response))["event"]["start"]["pid"]
    live = placed.sandboxes.find(made["sandboxID"])
    assert live is not None
    processes = live.guest().processes
    command = placed.guest(made).commands[pid]
    command.breaks = AgentUnreachableError("the connection to box broke")
    command.input.put_nowait(b"x")
    await until(lambda: not processes._running)
    command.breaks = None

    again = await placed.open(made, "process.Process/Connect", {"process": {"pid": pid}})
    assert (await next_message(again))["event"] == {"start": {"pid": pid}}
    command.input.put_nowait(b"after")
    command.close_stdin()
    assert text_of(decode(await again.read())) == "after"
    response.close()

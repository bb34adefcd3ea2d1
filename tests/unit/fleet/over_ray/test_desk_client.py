"""The process in which Ray runs, seen from outside; a script stands in for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from quicksand.base.errors import FleetError
from quicksand_fleet.over_ray import desk_client
from quicksand_fleet.over_ray.cluster_record import ClusterRecord
from quicksand_fleet.over_ray.desk import DeskError, Place
from quicksand_fleet.over_ray.desk_client import DeskClient

from tests.unit.fleet.over_ray.fakes import ONE

SCRIPT = """
import json, sys
def write(value):
    print(json.dumps(value), flush=True)
record = json.loads(sys.stdin.readline())
write({"state": {"alive": [record["id"]], "places": [], "looks": {}, "error": ""}})
for line in sys.stdin:
    asked = json.loads(line)
    match asked["do"]:
        case "take":
            write({"id": asked["id"], "value": True})
        case "give_back":
            write({"id": asked["id"], "error": "no\\x1b such place"})
        case "ask":
            sys.exit("it broke")
"""
RECORD = ClusterRecord(id="0" * 12, address="127.0.0.1:1", directory=Path("/x") / ("0" * 12))
PLACE = Place(id="a" * 32, machine_id=ONE, memory_bytes=1, expires_at=1)


@asynccontextmanager
async def running(
    monkeypatch: pytest.MonkeyPatch, script: str = SCRIPT
) -> AsyncIterator[tuple[DeskClient, asyncio.Event]]:
    monkeypatch.setattr(desk_client, "PROGRAM", ("-c", script))
    monkeypatch.setattr(desk_client, "AGAIN_S", 0.0)
    changed = asyncio.Event()
    client = DeskClient(lambda: RECORD, changed.set)
    task = asyncio.create_task(client.run())
    try:
        yield client, changed
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(changed: asyncio.Event) -> None:
    async with asyncio.timeout(60):
        await changed.wait()
    changed.clear()


async def test_requests_are_answered_and_errors_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as (client, changed):
        await until(changed)
        assert client.state.alive == {RECORD.id}
        assert await client.take(PLACE, timeout_s=1)
        with pytest.raises(DeskError, match=r"such place"):
            await client.give_back(PLACE.id)


async def test_a_process_that_ends_fails_its_requests_and_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(monkeypatch) as (client, changed):
        await until(changed)
        with pytest.raises(DeskError):
            await client.ask(ONE, "look")
        await until(changed)
        if not client.state.error:  # it is back already
            return
        assert "it broke" in client.state.error
        assert client.state.alive == frozenset()
        await until(changed)
        assert client.state.error == ""


async def test_one_that_never_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_client, "CONNECT_S", 0.05)
    async with running(monkeypatch, "import sys; sys.stdin.read()") as (client, changed):
        await until(changed)
        assert "did not answer" in client.state.error
        with pytest.raises(DeskError):
            await client.take(PLACE, timeout_s=1)


async def test_a_fleet_that_is_down_is_no_error_of_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(monkeypatch) as (client, changed):
        await until(changed)

        def gone() -> ClusterRecord:
            raise FleetError("the fleet is down")

        client._read = gone
        with pytest.raises(DeskError):
            await client.ask(ONE, "look")
        while client.state.error != "the fleet is down":
            await until(changed)

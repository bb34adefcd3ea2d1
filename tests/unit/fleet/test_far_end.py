"""What a machine tells a fleet, and what it keeps for it, over a connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import MemoryBudgetError, RemoteRefusedError, RemoteUnreachableError
from quicksand.base.paths import Paths
from quicksand.hosted.codec import ForeignValueError, decode_error
from quicksand.records.fleet_files import machine_id
from quicksand.records.memory_budget import BUDGET, Claims
from quicksand.remote.peer_link import Link, Request
from quicksand_fleet.batch import at_once_for
from quicksand_fleet.capacity import Capacity, decode_capacity, encode_capacity
from quicksand_fleet.far_end import MachineOfFleets
from quicksand_fleet.interface import FleetHost, HostState, Need

from tests.each import each
from tests.unit.fleet.fakes import GIB, room_for
from tests.unit.remote.far import links, until

GUEST = 128 * 1024**2
ID = "ab" * 16


@pytest.fixture
async def ends(places: Paths, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Link, Link]]:
    """A client's end and the machine's, which has room for one guest."""
    monkeypatch.setenv(BUDGET, str(room_for(1, memory_bytes=GUEST)))
    machine = MachineOfFleets(places)

    async def before_keeping() -> None:
        raise AssertionError("nothing is kept beyond the connection")

    async def answer(request: Request) -> None:
        await machine.answer(request, before_keeping)

    async with links(answer) as found:
        yield found


async def claim(link: Link, id_: str = ID, memory_bytes: object = GUEST) -> contextlib.ExitStack:
    """Claim memory; what is returned gives it back. Raises what the machine says."""
    channel = link.open("claim", id=id_, memory_bytes=memory_bytes)
    answer = await channel.reply
    if "error" in answer:
        channel.close()
        raise decode_error(answer["error"], "box")
    stack = contextlib.ExitStack()
    stack.callback(channel.close)
    stack.callback(channel.tell, "enough")
    return stack


async def test_memory_is_kept_until_the_client_has_enough(
    ends: tuple[Link, Link], places: Paths
) -> None:
    held = await claim(ends[0])
    assert set(Claims(places).look()[1]) == {ID}
    with pytest.raises(MemoryBudgetError):
        await claim(ends[0], "cd" * 16)
    held.close()
    await until(lambda: not Claims(places).look()[1], "it to be given back")


async def test_a_claim_ends_with_the_connection(ends: tuple[Link, Link], places: Paths) -> None:
    await claim(ends[0])
    ends[0].end(RemoteUnreachableError("cut"))
    ends[1].end(RemoteUnreachableError("cut"))
    await until(lambda: not list((places.data / "fleet" / "claims").glob("*.json")), "its end")


@pytest.mark.parametrize(("id_", "size"), [("../x", GUEST), (ID, -1), (ID, True), (ID, "1G")])
async def test_a_claim_that_makes_no_sense_is_refused(
    ends: tuple[Link, Link], id_: str, size: object
) -> None:
    with pytest.raises(RemoteRefusedError):
        await claim(ends[0], id_, size)


async def test_a_change_is_told_by_itself(ends: tuple[Link, Link], places: Paths) -> None:
    channel = ends[0].open("capacity")
    await channel.reply
    told: list[Capacity] = []

    async def listen() -> None:
        while data := (await channel.piece()).data:
            told.extend(decode_capacity(line) for line in data.splitlines())

    listening = asyncio.create_task(listen())
    await until(lambda: len(told) == 1, "the first line")
    assert told[0].machine_id == machine_id(places)
    assert told[0].memory_bytes == room_for(1, memory_bytes=GUEST)
    held = await claim(ends[0])
    await until(lambda: told[-1].claims == (ID,) or list(told[-1].claims) == [ID], "the claim")
    assert told[-1].free_bytes == 0
    held.close()
    await until(lambda: not told[-1].claims, "its end")
    channel.tell("enough")
    await listening  # the machine ends the stream
    channel.close()


GOOD = Capacity(machine_id=ID, cpus=4, memory_bytes=GIB, free_bytes=0, sandboxes=1, images=["a"])


def test_a_line_is_read_as_it_was_written() -> None:
    found = decode_capacity(encode_capacity(GOOD))
    assert (found.machine_id, found.memory_bytes, [*found.images]) == (ID, GIB, ["a"])


@each(
    "change",
    [
        {"machine_id": "../../x"},
        {"free_bytes": -1},
        {"memory_bytes": 2**70},
        {"cpus": True},
        {"images": ["\x1b[2J"]},
        {"images": ["x" * 300]},
        {"images": ["x"] * 501},
        {"claims": None},
    ],
)
def test_a_line_of_a_hostile_machine_is_refused(change: dict[str, object]) -> None:
    line = json.dumps(json.loads(encode_capacity(GOOD)) | change).encode()
    with pytest.raises(ForeignValueError):
        decode_capacity(line)


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(data: bytes) -> None:
    with contextlib.suppress(ForeignValueError):
        decode_capacity(data)


def test_a_batch_runs_as_much_at_once_as_there_is_room_for() -> None:
    host = FleetHost(name="a", state=HostState.READY, cpus=4, memory_bytes=room_for(3))
    need = Need(memory_bytes=GIB)
    assert at_once_for([host], need) == 3
    assert at_once_for([host, host], Need(memory_bytes=GIB // 8)) == 16  # two for each processor
    assert at_once_for([], need) == 1
    drained = FleetHost(name="b", state=HostState.DRAINED, cpus=4, memory_bytes=room_for(3))
    assert at_once_for([host, drained], need) == 3

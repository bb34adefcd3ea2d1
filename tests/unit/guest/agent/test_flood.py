"""An agent that sends whatever it likes: what is held of it is bounded in bytes."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from typing import Any

import pytest
from quicksand.base.errors import AgentProtocolError, AgentRefusedError, StateError
from quicksand.guest.agent import wire
from quicksand.guest.agent.channel import (
    CHANNEL_EVENTS_MAX,
    CHANNEL_MAX,
    EVENTS_MAX,
    SESSION_MAX,
    WINDOWS,
    Budget,
    Channel,
)
from quicksand.guest.agent.session import Session, _marks
from quicksand.guest.agent.values import TEXT_MAX
from quicksand.guest.agent.wire import Stream
from quicksand.guest.guest_files import GuestFiles
from quicksand.guest.shell import ShellInfo
from quicksand.life.sandbox_stats import parse_processes

from tests.each import each
from tests.unit.guest.agent.fake_agent import FakeAgent, session_with

FILL_S = 60.0

EMPTY_LISTS = "[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],"
"""Three bytes each, and over sixty once they are parsed."""


def event(channel: int, size: int) -> bytes:
    """An event of about so many bytes that would be large if it were kept parsed."""
    filler = json.loads(f"[{EMPTY_LISTS * (size // len(EMPTY_LISTS))}[]]")
    return wire.encode_message({"event": "lagged", "channel": channel, "filler": filler})


async def settled(channels: list[Channel], session: Session, unread: int) -> None:
    """Wait until so much is held, or the session has ended."""
    async with asyncio.timeout(FILL_S):
        while sum(channel.unread for channel in channels) < unread:
            if session.closed.is_set():
                return
            await asyncio.sleep(0)


async def hold(number: int, *, event_size: int, events: int) -> tuple[int, int, int]:
    """Have ``number`` channels filled to the brim by an agent that keeps to their windows. Returns
    bytes that are held by count, by the interpreter, and of the largest channel."""

    async def fill(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"pid": 1})
        channel, window = request["id"], request["params"]["window"]
        for _ in range(events):
            agent.send(event(channel, event_size))
        for stream in (Stream.STDOUT, Stream.STDERR):
            sent = 0
            while sent < window:
                size = min(wire.DATA_MAX, window - sent)
                agent.send(wire.encode_data(channel, stream, bytes(size)))
                sent += size
            await agent.writer.drain()

    async with session_with(fill) as session:
        gc.collect()
        tracemalloc.start()
        try:
            channels = [session.open("execute_stream", {}) for _ in range(number)]
            expected = sum(2 * channel.window for channel in channels)
            await settled(channels, session, expected)
            assert not session.closed.is_set()
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        unread = [channel.unread for channel in channels]
        return sum(unread), held, max(unread)


async def test_channels_that_nobody_reads_hold_no_more_than_their_share() -> None:
    budget = Budget()
    number = 0
    with pytest.raises(StateError, match="too many"):
        while True:
            budget.reserve(2)
            number += 1
    assert number >= 150
    unread, held, largest = await hold(number, event_size=1000, events=10)
    print(f"{number} channels: {unread} bytes unread, {held} bytes of memory")
    assert SESSION_MAX // 2 < unread <= SESSION_MAX
    assert held <= SESSION_MAX + 2 * 1024 * 1024
    assert largest <= CHANNEL_MAX


async def test_one_channel_that_nobody_reads() -> None:
    unread, held, _ = await hold(1, event_size=wire.SMALL_MAX - 1024, events=3)
    print(f"one channel: {unread} bytes unread, {held} bytes of memory")
    assert 2 * WINDOWS[0][1] < unread <= CHANNEL_MAX
    assert held <= CHANNEL_MAX


@each("size", [20, 1000, wire.SMALL_MAX - 1024, wire.JSON_MAX - 1024])
async def test_a_flood_of_events_ends_the_session_and_not_the_memory(size: int) -> None:
    async def flood(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"pid": 1})
        frames = event(request["id"], size) * max(1, 1_000_000 // size)
        for _ in range(60):
            agent.send(frames)
            await agent.writer.drain()

    async with session_with(flood) as session:
        tracemalloc.start()
        try:
            channel = session.open("execute_stream", {})
            async with asyncio.timeout(FILL_S):
                await session.closed.wait()
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # What the agent itself has not got rid of is in this process, too.
        assert channel.unread <= CHANNEL_EVENTS_MAX
        assert held < 8 * 1024 * 1024
        with pytest.raises(AgentProtocolError, match="floods the channel"):
            session.open("execute_stream", {})


async def test_events_of_many_channels_have_a_limit_together() -> None:
    async def flood(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"pid": 1})
        agent.send(event(request["id"], 50_000) * 3)

    async with session_with(flood) as session:
        channels = [session.open("execute_stream", {}) for _ in range(20)]
        async with asyncio.timeout(FILL_S):
            await session.closed.wait()
        assert sum(channel.unread for channel in channels) <= EVENTS_MAX
        with pytest.raises(AgentProtocolError, match="floods the session"):
            await session.request("ping")


async def test_a_channel_that_is_full_holds_up_no_other() -> None:
    full = asyncio.Event()

    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"pid": 1})
        if not full.is_set():
            for _ in range(request["params"]["window"] // wire.DATA_MAX):
                agent.send(wire.encode_data(request["id"], Stream.STDOUT, bytes(wire.DATA_MAX)))
            return
        agent.send(wire.encode_data(request["id"], Stream.STDOUT, b"on time"))

    async with session_with(handler) as session, asyncio.timeout(FILL_S):
        stuck = session.open("execute_stream", {})
        await settled([stuck], session, stuck.window)
        full.set()
        other = session.open("execute_stream", {})
        assert await other.read() == (Stream.STDOUT, b"on time")
        assert stuck.unread == stuck.window


async def test_what_is_closed_or_read_makes_room_again() -> None:
    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"pid": 1})
        agent.send(event(request["id"], 1000))

    async with session_with(handler) as session, asyncio.timeout(FILL_S):
        for _ in range(3):
            channels = [session.open("execute_stream", {}) for _ in range(150)]
            await asyncio.gather(*(channel.read() for channel in channels[:75]))
            await settled(channels[75:], session, 75 * 1000)
            assert session.budget.reserved > SESSION_MAX // 2
            for channel in channels:
                channel.close()
            assert (session.budget.reserved, session.budget.events) == (0, 0)
            assert not any(channel.unread for channel in channels)


@each("stream", [Stream.STDOUT, Stream.STDERR])
async def test_output_that_was_not_asked_for_ends_the_session(stream: Stream) -> None:
    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.send(wire.encode_data(request["id"], stream, b"x"))

    async with session_with(handler) as session, asyncio.timeout(FILL_S):
        session.open("file_write", {}, streams=())
        await session.closed.wait()
        with pytest.raises(AgentProtocolError, match="unknown stream"):
            await session.request("ping")


async def test_a_reply_that_is_kept_has_a_limit() -> None:
    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"pid": 1, "filler": "x" * wire.SMALL_MAX})

    async with session_with(handler) as session:
        channel = session.open("execute_stream", {})
        with pytest.raises(AgentProtocolError, match="a reply of"):
            await channel.opened()


LONG = "long " * 100_000


async def test_texts_of_errors_are_cut_and_say_so() -> None:
    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        error = {"code": LONG, "message": LONG}
        agent.send(wire.encode_message({"id": request["id"], "error": error}))

    async with session_with(handler) as session:
        with pytest.raises(AgentRefusedError, match="bytes more were cut") as caught:
            await session.request("file_stat")
        assert len(str(caught.value)) < TEXT_MAX + 100
        assert caught.value.code == "internal"


async def test_texts_at_the_end_of_a_session_are_cut() -> None:
    async def handler(agent: FakeAgent, _: dict[str, Any]) -> None:
        agent.send(wire.encode_message({"event": "closed", "error": {"message": LONG}}))

    async with session_with(handler) as session:
        with pytest.raises(Exception, match="ended the session") as caught:
            await session.request("ping")
        assert len(str(caught.value)) < TEXT_MAX + 200


FACTS = {"type": "symlink", "size": 1, "mode": 0, "uid": 0, "gid": 0, "mtime_ns": 0}


async def test_names_in_listings_are_cut_and_listings_end() -> None:
    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        name = f"{request['id']:09}" + "n" * 50_000
        entries = [{**FACTS, "name": name, "target": "t" * 50_000}] * 8
        agent.reply(request, {"entries": entries, "next": name})

    async with session_with(handler) as session:

        async def get() -> Session:
            return session

        with pytest.raises(AgentProtocolError, match="too many entries"):
            await GuestFiles(get).list("/")


def test_texts_of_processes_and_terminals_are_cut() -> None:
    process = {"pid": 1, "ppid": 0, "rss": 0, "cpu_s": 0}
    found = parse_processes(
        {"processes": [{**process, "user": LONG, "state": LONG, "command": LONG}]}
    )[0]
    assert len(found.command) < TEXT_MAX + 100
    assert "bytes more were cut" in found.command
    assert len(found.user) < 200
    numbers = {"pid": 1, "cols": 80, "rows": 24, "attached": 0, "created_unix": 0}
    shell = ShellInfo.parse({**numbers, "session": LONG, "argv": [LONG] * 1000, "alive": True})
    assert len(shell.session) < 200
    assert sum(map(len, shell.argv)) < 200_000


@each(
    "number",
    [10**4000, -(10**30), float("inf"), float("nan"), "1", None, True, [1]],
    ids=["huge", "below", "infinite", "nan", "text", "none", "true", "list"],
)
def test_numbers_that_make_no_sense_are_refused(number: object) -> None:
    process = {"pid": 1, "ppid": 0, "rss": 0, "cpu_s": 0, "user": "", "state": "", "command": ""}
    for key in ("pid", "rss", "cpu_s"):
        with pytest.raises(AgentProtocolError, match="makes no sense"):
            parse_processes({"processes": [{**process, key: number}]})


def test_what_a_guest_says_of_its_boot_is_numbers_or_nothing() -> None:
    told = {"init_s": 0.5, "root_s": 10**4000, "network_s": "1", "serving_s": float("inf")}
    assert _marks(told) == {"init_s": 0.5}
    assert _marks([1]) == _marks(None) == {}

"""Watches of directories, against a scripted, sometimes hostile agent."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import AgentProtocolError, AgentRefusedError, StateError
from quicksand.guest.agent import wire
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.wire import Stream
from quicksand.guest.directory_watch import NAME_MAX, Splitter, WatchEvent, WatchKind, watch

from tests.each import each
from tests.unit.guest.agent.fake_agent import FakeAgent, session_with


def able(session: Session) -> Session:
    """The session of an agent that watches directories."""
    session.hello = {**session.hello, "capabilities": ["watch", "errors"]}
    return session


def record(kind: int, name: bytes = b"", is_dir: int = 0) -> bytes:
    return struct.pack("!HBB", len(name), kind, is_dir) + name


@given(st.lists(st.tuples(st.integers(1, 6), st.binary(max_size=300))), st.integers(1, 700))
def test_events_are_found_however_the_stream_is_cut(
    sent: list[tuple[int, bytes]], size: int
) -> None:
    stream = b"".join(record(kind, name) for kind, name in sent)
    splitter, found = Splitter(), []
    for start in range(0, len(stream), size):
        splitter.push(stream[start : start + size])
        while isinstance(event := splitter.next(), WatchEvent):
            found.append((event.kind, event.name.encode("utf-8", "surrogateescape")))
    assert found == [(list(WatchKind)[kind - 1], name) for kind, name in sent]


@each("bad", [record(0), record(8), record(1, b"x", 2),
                                 struct.pack("!HBB", NAME_MAX + 1, 1, 0)])  # fmt: skip
def test_what_is_no_event_is_refused(bad: bytes) -> None:
    splitter = Splitter()
    splitter.push(bad)
    with pytest.raises(AgentProtocolError):
        splitter.next()


async def test_events_come_until_the_directory_is_gone() -> None:
    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        channel = request["id"]
        wanted = {"path": "/d", "recursive": True, "local": False, "window": 0}
        assert request["params"] | {"window": 0} == wanted
        agent.reply(request, {"channel": channel, "directories": 1})
        await agent.data_arrived.wait()
        told = record(1, b"a/b", 1) + record(7) + record(3)
        agent.send(wire.encode_data(channel, Stream.STDOUT, told))
        agent.send(wire.encode_message({"event": "end", "channel": channel, "bytes": 0}))

    async with (
        session_with(script) as session,
        await watch(able(session), "/d", recursive=True, local=False) as found,
    ):
        caught_up = asyncio.create_task(found.catch_up())
        assert [event async for event in found] == [
            WatchEvent(kind=WatchKind.CREATE, name="a/b", is_dir=True),
            WatchEvent(kind=WatchKind.REMOVE, name=""),
        ]
        await caught_up
        await found.catch_up()


async def test_a_watch_that_fails_says_why_and_older_agents_have_none() -> None:
    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        channel = request["id"]
        agent.reply(request, {"channel": channel, "directories": 1})
        error = {"code": "too_many", "message": "too many directories"}
        end = {"event": "end", "channel": channel, "bytes": 0, "error": error}
        agent.send(wire.encode_message(end))

    async with session_with(script) as session:
        with pytest.raises(StateError, match="too old"):
            await watch(session, "/d", recursive=False, local=False)
        found = await watch(able(session), "/d", recursive=False, local=False)
        with pytest.raises(AgentRefusedError, match="too many") as caught:
            await anext(found)
        assert caught.value.code == "too_many"

"""Datagrams that the agent carries, against a scripted, sometimes hostile agent."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import AgentProtocolError, AgentRefusedError, ConfigError, StateError
from quicksand.guest.agent import wire
from quicksand.guest.agent.channel import INPUT_WINDOW
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.wire import Stream
from quicksand.guest.connections import DATAGRAM_MAX, Splitter, dial_udp

from tests.each import each
from tests.unit.guest.agent.fake_agent import FakeAgent, session_with

PLACE = {"host": "127.0.0.1", "port": 53}


def able(session: Session) -> Session:
    """The session of an agent that carries datagrams."""
    session.hello = {**session.hello, "capabilities": ["dial", "dial_udp", "errors"]}
    return session


def framed(data: bytes) -> bytes:
    return struct.pack("!H", len(data)) + data


@given(st.lists(st.binary(max_size=300)), st.integers(1, 700))
def test_datagrams_are_found_however_the_stream_is_cut(sent: list[bytes], size: int) -> None:
    stream = b"".join(map(framed, sent))
    splitter, found = Splitter(), []
    for start in range(0, len(stream), size):
        splitter.push(stream[start : start + size])
        while (data := splitter.next()) is not None:
            found.append(data)
    assert found == sent


async def test_datagrams_go_both_ways_and_keep_their_bounds() -> None:
    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        channel = request["id"]
        assert request["params"] | {"window": 0} == PLACE | {"protocol": "udp", "window": 0}
        agent.reply(request, {"channel": channel})
        await agent.data_arrived.wait()
        (frame,) = agent.data
        agent.send(wire.encode_data(channel, Stream.STDOUT, frame.payload + framed(b"")))

    async with session_with(script) as session, await dial_udp(able(session), PLACE) as found:
        largest = bytes(DATAGRAM_MAX)
        await found.send(largest)
        assert await found.receive() == largest
        assert await found.receive() == b""
        with pytest.raises(ConfigError, match="65507"):
            await found.send(bytes(DATAGRAM_MAX + 1))


async def test_a_datagram_that_is_not_sent_yet_is_given_up_as_a_whole() -> None:
    opened: list[int] = []

    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        if request["method"] == "dial":
            opened.append(request["id"])
            agent.reply(request, {"channel": request["id"]})
        elif request["method"] == "credit":
            agent.send(wire.encode_credit(opened[0], Stream.INPUT, INPUT_WINDOW))
            agent.reply(request, {"count": len(agent.data)})

    async with session_with(script) as session, await dial_udp(able(session), PLACE) as found:
        full = INPUT_WINDOW // (DATAGRAM_MAX + 2)
        for _ in range(full):
            await found.send(bytes(DATAGRAM_MAX))
        # There is room for a part of the next one, and not for all of it.
        sending = asyncio.create_task(found.send(b"x" * DATAGRAM_MAX))
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait((sending,))
        told = await session.request("credit")
        assert told["count"] == full
        await asyncio.wait_for(found.send(b"next"), 60)


@each(
    "stream, expected",
    [(b"\xff\xff", AgentProtocolError), (None, AgentRefusedError)],
)
async def test_what_ends_a_socket_is_told(stream: bytes | None, expected: type[Exception]) -> None:
    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        channel = request["id"]
        agent.reply(request, {"channel": channel})
        if stream is not None:
            agent.send(wire.encode_data(channel, Stream.STDOUT, stream))
            return
        error = {"code": "io", "message": "no memory", "errno": 12}
        event = {"event": "end", "channel": channel, "bytes": 0, "error": error}
        agent.send(wire.encode_message(event))

    async with session_with(script) as session, await dial_udp(able(session), PLACE) as found:
        async with asyncio.timeout(60):
            with pytest.raises(expected):
                await found.receive()


async def test_an_older_agent_is_not_asked() -> None:
    """It would connect by TCP."""

    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        raise AssertionError(request)

    async with session_with(script) as session:
        session.hello = {**session.hello, "capabilities": ["dial"]}
        with pytest.raises(StateError, match="too old to carry datagrams"):
            await dial_udp(session, PLACE)

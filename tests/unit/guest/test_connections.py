"""Connections that the agent carries, against a scripted, sometimes hostile agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from quicksand.base.errors import (
    AgentProtocolError,
    AgentRefusedError,
    AgentUnreachableError,
    ConfigError,
    StateError,
)
from quicksand.guest.agent import wire
from quicksand.guest.agent.channel import INPUT_WINDOW
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.wire import Stream
from quicksand.guest.connections import address, dial, listen

from tests.each import each
from tests.unit.guest.agent.fake_agent import FakeAgent, session_with


def able(session: Session) -> Session:
    """The session of an agent that can dial."""
    session.hello = {**session.hello, "capabilities": ["dial", "errors"]}
    return session


def event(agent: FakeAgent, kind: str, channel: int, **more: Any) -> None:
    agent.send(wire.encode_message({"event": kind, "channel": channel, **more}))


async def test_each_direction_ends_on_its_own() -> None:
    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        channel = request["id"]
        assert (request["method"], request["params"]["port"]) == ("dial", 80)
        agent.reply(request, {"channel": channel})
        agent.send(wire.encode_data(channel, Stream.STDOUT, b"hello"))
        event(agent, "eof", channel)
        await agent.data_arrived.wait()
        event(agent, "end", channel, bytes=5)

    async with session_with(script) as session, await dial(able(session), {"port": 80}) as found:
        assert await found.read() == b"hello"
        assert await found.read() == b""
        await found.write(b"still")
        found.write_eof()
        await asyncio.wait_for(found.finish(), 60)


@each("after_eof", [False, True])
async def test_who_writes_to_a_connection_that_has_ended_does_not_wait_for_ever(
    after_eof: bool,
) -> None:
    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"channel": request["id"]})
        if after_eof:
            event(agent, "eof", request["id"])
        await agent.data_arrived.wait()
        error = {"code": "io", "message": "reset", "errno": 104}
        event(agent, "end", request["id"], error=error)

    async with session_with(script) as session, await dial(able(session), {"port": 80}) as found:
        await asyncio.wait_for(found.write(bytes(2 * INPUT_WINDOW)), 60)
        if not after_eof:
            with pytest.raises(AgentRefusedError) as caught:
                await found.read()
            assert caught.value.errno == 104


async def test_a_connection_that_is_closed_early_is_cancelled_and_what_still_comes_ignored() -> (
    None
):
    cancelled = asyncio.Event()

    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        if request["method"] == "cancel":
            agent.send(wire.encode_data(request["params"]["id"], Stream.STDOUT, b"late"))
            agent.reply(request, {})
            cancelled.set()
            return
        agent.reply(request, {"channel": request["id"]})

    async with session_with(script) as session:
        for _ in range(300):
            cancelled.clear()
            (await dial(able(session), {"port": 80})).close()
            await asyncio.wait_for(cancelled.wait(), 60)
        assert session.budget.reserved == 0
        assert await session.request("cancel", {"id": 1}) == {}


async def test_a_dial_that_is_given_up_is_cancelled() -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        (cancelled if request["method"] == "cancel" else asked).set()

    async with session_with(script) as session:
        task = asyncio.create_task(dial(able(session), {"port": 80}))
        await asked.wait()
        task.cancel()
        await asyncio.wait_for(cancelled.wait(), 60)
        await asyncio.wait((task,))
        assert task.cancelled()


async def test_connections_to_a_listener_are_taken_and_those_that_are_gone_passed_over() -> None:
    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        if request["method"] == "listen":
            agent.reply(request, {"channel": request["id"], "port": 4000})
            for number in (1, 2):
                event(agent, "accepted", request["id"], connection=number, port=5000 + number)
        elif request["params"].get("connection") == 1:
            agent.refuse(request, {"code": "not_found", "message": "connection 1"})
        else:
            agent.reply(request, {"channel": request["id"]})

    async with session_with(script) as session, await listen(able(session), {"port": 0}) as found:
        assert found.port == 4000
        assert (await found.accept()).peer_port == 5002


async def test_events_that_make_no_sense_are_an_error() -> None:
    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"channel": request["id"], "port": "x"})
        event(agent, "surprise", request["id"])

    async with session_with(script) as session:
        with pytest.raises(AgentProtocolError):
            await (await dial(able(session), {"port": 80})).read()
        listener = await listen(able(session), {"port": 0})
        assert listener.port is None
        with pytest.raises(AgentProtocolError):
            await listener.accept()


async def test_the_end_of_the_guest_ends_the_connection() -> None:
    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"channel": request["id"]})
        agent.writer.close()

    async with session_with(script) as session:
        found = await dial(able(session), {"port": 80})
        with pytest.raises(AgentUnreachableError):
            await found.read()
        assert isinstance(await session.wait_closed(), AgentUnreachableError)


async def test_an_agent_that_is_too_old_is_not_asked() -> None:
    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        raise AssertionError(request)

    async with session_with(script) as session:
        with pytest.raises(StateError, match="too old"):
            await dial(session, {"port": 80})


def test_what_is_no_address_is_refused() -> None:
    assert address(80, "::1", None, None) == {"host": "::1", "port": 80}
    assert address(None, "", "/run/s", "joe") == {"path": "/run/s", "user": "joe"}
    for port, path in ((None, None), (80, "/run/s"), (0, None), (65536, None)):
        with pytest.raises(ConfigError):
            address(port, "127.0.0.1", path, None)

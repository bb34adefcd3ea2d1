"""The client side of a session against a scripted, sometimes hostile agent on a Unix socket."""

from __future__ import annotations

import asyncio
import io
import re
import resource
from pathlib import Path
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
from quicksand.guest.agent.channel import WINDOWS
from quicksand.guest.agent.session import Session, connect, dial
from quicksand.guest.agent.wire import Stream
from quicksand.guest.execution import command_params, iterate_chunks, spawn

from tests.each import each
from tests.unit.guest.agent.fake_agent import FakeAgent, session_with, silent

WINDOW = WINDOWS[0][1]
HALF = "\ud83d"
"""Half of an emoji: no bytes stand for it."""


async def test_leftovers_of_another_client_are_skipped() -> None:
    leftovers = wire.encode_data(7, Stream.STDOUT, b"old") + b"\x00\x00\x10"
    async with session_with(silent, before=leftovers) as session:
        assert session.hello == {"protocol": 1, "boot": {}}


async def test_what_comes_between_dialing_and_the_handshake_is_for_the_client_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leftovers = wire.encode_data(7, Stream.STDOUT, b"old") + b"\xff" * 10
    arrived, original = asyncio.Event(), Session.data_received

    def noted(session: Session, data: bytes) -> None:
        original(session, data)
        arrived.set()

    async def late(path: Path) -> Session:
        session = await dial(path)
        await asyncio.wait_for(arrived.wait(), 60)
        await session.handshake("token", timeout=60)
        return session

    monkeypatch.setattr(Session, "data_received", noted)
    async with session_with(silent, before=leftovers, connecting=late) as session:
        assert session.hello == {"protocol": 1, "boot": {}}


async def test_a_reply_reaches_its_request_even_out_of_order() -> None:
    waiting: list[dict[str, Any]] = []

    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        waiting.append(request)
        if len(waiting) == 3:
            for held in reversed(waiting):
                agent.reply(held, {"echo": held["params"]["n"]})

    async with session_with(handler) as session:
        replies = await asyncio.gather(*(session.request("echo", {"n": n}) for n in range(3)))
        assert [reply["echo"] for reply in replies] == [0, 1, 2]


async def test_no_answer_is_a_timeout_that_names_the_method() -> None:
    async with session_with(silent) as session:
        with pytest.raises(AgentUnreachableError, match="'ping'"):
            await session.request("ping", timeout=0.05)


async def test_an_error_reply_keeps_its_code() -> None:
    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        error = {"code": "not_found", "message": "no /x"}
        agent.send(wire.encode_message({"id": request["id"], "error": error}))

    async with session_with(handler) as session:
        with pytest.raises(AgentRefusedError, match="no /x") as caught:
            await session.request("file_stat", {"path": "/x"})
        assert caught.value.code == "not_found"


async def test_output_is_read_before_the_exit_event_and_before_a_break() -> None:
    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"pid": 1})
        agent.send(wire.encode_data(request["id"], Stream.STDOUT, b"out"))
        agent.send(wire.encode_message({"event": "exit", "channel": request["id"]}))
        agent.writer.close()

    async with session_with(handler) as session:
        channel = session.open("execute_stream", {})
        await session.closed.wait()
        assert await channel.read() == (Stream.STDOUT, b"out")
        assert await channel.read() == {"event": "exit", "channel": channel.number}
        with pytest.raises(AgentUnreachableError):
            await channel.read()


async def test_an_agent_that_ignores_the_window_loses_the_session() -> None:
    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"pid": 1})
        for _ in range(WINDOW // wire.DATA_MAX + 1):
            agent.send(wire.encode_data(request["id"], Stream.STDOUT, bytes(wire.DATA_MAX)))

    async with session_with(handler) as session:
        channel = session.open("execute_stream", {})
        async with asyncio.timeout(60):
            await session.closed.wait()
            with pytest.raises(AgentProtocolError, match="window"):
                while True:
                    await channel.read()


async def test_reading_sends_credits_so_that_output_has_no_end() -> None:
    total = 5 * WINDOW
    chunk = bytes(64 * 1024)

    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"pid": 1})
        credit, sent = WINDOW, 0
        while sent < total:
            while credit < len(chunk):
                await agent.data_arrived.wait()
                agent.data_arrived.clear()
                credit += sum(int.from_bytes(frame.payload) for frame in agent.data)
                agent.data.clear()
            agent.send(wire.encode_data(request["id"], Stream.STDOUT, chunk))
            credit -= len(chunk)
            sent += len(chunk)
        agent.send(wire.encode_message({"event": "exit", "channel": request["id"]}))

    async with session_with(handler) as session:
        channel = session.open("execute_stream", {})
        received = 0
        async with asyncio.timeout(60):
            while isinstance(item := await channel.read(), tuple):
                received += len(item[1])
        assert received == total


async def test_input_waits_for_credit() -> None:
    window = 256 * 1024
    got = asyncio.Event()

    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"pid": 1})
        while sum(len(frame.payload) for frame in agent.data) < window:
            await agent.data_arrived.wait()
            agent.data_arrived.clear()
        got.set()
        agent.send(wire.encode_data(request["id"], 0x80, (10).to_bytes(4)))

    async with session_with(handler) as session:
        channel = session.open("execute_stream", {})
        async with asyncio.timeout(60):
            await channel.write(bytes(window))
            await got.wait()
            await channel.write(bytes(10))
        writing = asyncio.create_task(channel.write(b"x"))
        done, _ = await asyncio.wait((writing,), timeout=0.1)
        assert not done
        writing.cancel()


@each(
    "junk",
    [
        (2**31 - 1).to_bytes(4),
        b"\xff\xff\xff\xff",
        wire.encode_data(4_000_000_000, Stream.STDOUT, b"for nobody"),
        wire.encode_message({"id": "one", "result": {}}),
        wire.encode_message({"event": "exit", "channel": None}),
        b"\x00\x00\x00\x02[]",
    ],
    ids=["huge", "all-ones", "unknown-channel", "id-no-number", "channel-no-number", "no-object"],
)
async def test_junk_ends_the_session_with_a_protocol_error(junk: bytes) -> None:
    async def handler(agent: FakeAgent, _: dict[str, Any]) -> None:
        agent.send(junk)

    async with session_with(handler) as session:
        with pytest.raises(AgentProtocolError):
            await session.request("ping", timeout=60)
        with pytest.raises(AgentProtocolError):
            await session.request("ping", timeout=60)


async def test_unsolicited_messages_by_the_million_do_not_grow_memory() -> None:
    batch = b"".join(wire.encode_message({"id": n, "result": {"x": "y" * 50}}) for n in range(2000))

    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        for _ in range(100):
            agent.send(batch)
            await agent.writer.drain()
        agent.reply(request, {"pong": True})

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with session_with(handler) as session:
        for _ in range(2):
            await session.request("skip", {}, timeout=60)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024, f"{grown} KiB more"


async def test_events_nobody_reads_are_bounded() -> None:
    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"pid": 1})
        event = wire.encode_message({"event": "lagged", "channel": request["id"]})
        agent.send(event * 20_000)

    async with session_with(handler) as session:
        session.open("execute_stream", {})
        async with asyncio.timeout(60):
            await session.closed.wait()
        with pytest.raises(AgentProtocolError, match="floods"):
            await session.request("ping")


async def test_crumbs_are_joined() -> None:
    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {"pid": 1})
        agent.send(wire.encode_data(request["id"], Stream.STDOUT, b"ab") * 2000)
        agent.send(wire.encode_message({"event": "exit", "channel": request["id"]}))
        agent.writer.close()

    async with session_with(handler) as session:
        channel = session.open("execute_stream", {})
        await session.closed.wait()
        pieces = []
        while isinstance(item := await channel.read(), tuple):
            pieces.append(item[1])
        assert b"".join(pieces) == b"ab" * 2000
        assert len(pieces) <= 2


@each("event", [{"event": "started"}, {"event": "closed", "error": "broken frame"}], ids=str)
async def test_an_agent_that_starts_anew_or_gives_up_ends_the_session(
    event: dict[str, Any],
) -> None:
    async def handler(agent: FakeAgent, _: dict[str, Any]) -> None:
        agent.send(wire.encode_message(event))

    async with session_with(handler) as session:
        with pytest.raises(AgentUnreachableError, match=r"restarted|broken frame"):
            await session.request("execute", timeout=60)
        assert session.closed.is_set()


async def test_a_connection_that_is_refused_says_where() -> None:
    with pytest.raises(AgentUnreachableError, match=r"/nonexistent/x\.sock"):
        await connect("/nonexistent/x.sock", "token", timeout=1)


@each(
    ("method", "params", "named"),
    [
        ("execute_stream", {"user": HALF}, "'user' of 'execute_stream'"),
        ("create_user", {"name": "bob\udcff"}, "'name' of 'create_user'"),
        ("mount_share", {"options": ["a", HALF]}, "'options' of 'mount_share'"),
        ("ping", {HALF: 1}, "a name in 'ping'"),
        (HALF, {}, "'\\ud83d'"),
    ],
    ids=ascii,
)
async def test_a_text_that_is_not_utf8_is_refused_by_name_and_the_session_goes_on(
    method: str, params: dict[str, Any], named: str
) -> None:
    asked: list[str] = []

    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        asked.append(request["method"])
        agent.reply(request, {})

    async with session_with(handler) as session:
        with pytest.raises(ConfigError, match=re.escape(named)):
            await session.request(method, params)
        with pytest.raises(ConfigError, match=re.escape(named)):
            session.open(method, params)
        await session.request("ping")
        assert asked == ["ping"]


@each(
    "command",
    [
        {"command": "echo \udcff"},
        {"command": ["echo", "\udcff"]},
        {"command": "true", "cwd": "/\udcff"},
        {"command": "true", "env": {"A": "\udcff"}},
        {"command": "true", "shell": "/\udcff"},
    ],
    ids=ascii,
)
async def test_an_agent_that_takes_no_bytes_gets_no_command_that_it_would_understand_by_half(
    command: dict[str, Any],
) -> None:
    given: dict[str, Any] = {"cwd": None, "env": None, "shell": "/bin/sh", **command}
    params = command_params(given.pop("command"), timeout=None, user=None, **given)
    async with session_with(silent) as session:
        with pytest.raises(StateError, match="older") as caught:
            await spawn(session, params, stdin=False)
        assert "start it again" in caught.value.hint


@each(
    "command",
    [
        {"command": HALF},
        {"command": ["echo", HALF]},
        {"command": "true", "cwd": HALF},
        {"command": "true", "shell": HALF},
        {"command": "true", "env": {"A": HALF}},
        {"command": "true", "env": {HALF: "a"}},
        {"command": "true", "env": {"A=\udcff": "a"}},
        {"command": "true", "env": {"A": 5}},
    ],
    ids=ascii,
)
def test_a_command_that_no_bytes_stand_for_is_a_fault_of_the_caller(
    command: dict[str, Any],
) -> None:
    given: dict[str, Any] = {"cwd": None, "env": None, "shell": "/bin/sh", **command}
    with pytest.raises(ConfigError) as caught:
        command_params(given.pop("command"), timeout=None, user=None, **given)
    assert str(caught.value).isascii()


@each("source", [HALF, ["a", HALF], [5]], ids=ascii)
async def test_input_that_no_bytes_stand_for_is_a_fault_of_the_caller(source: Any) -> None:
    with pytest.raises(ConfigError):
        [chunk async for chunk in iterate_chunks(source)]


async def test_input_may_be_text_that_stands_for_bytes() -> None:
    source: Any = io.StringIO("a\udcff\xe9")
    assert [chunk async for chunk in iterate_chunks(source)] == [b"a\xff\xc3\xa9"]


async def test_why_an_agent_ended_the_session_is_told_in_words() -> None:
    async def handler(agent: FakeAgent, _: dict[str, Any]) -> None:
        error = {"code": "bad_request", "message": "not a request: EOF"}
        agent.send(wire.encode_message({"event": "closed", "error": error}))

    async with session_with(handler) as session:
        with pytest.raises(AgentUnreachableError) as caught:
            await session.request("ping")
        assert str(caught.value).endswith("ended the session: not a request: EOF")


async def test_what_json_cannot_hold_is_refused_and_the_session_goes_on() -> None:
    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.reply(request, {})

    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    async with session_with(handler) as session:
        for value in (deep, object(), float("nan"), "x" * wire.JSON_MAX):
            with pytest.raises(AgentRefusedError):
                await session.request("ping", {"a": value})
        assert await session.request("ping") == {}

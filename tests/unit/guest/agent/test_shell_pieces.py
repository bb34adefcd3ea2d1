"""What a terminal repeats is told from what it says now."""

from __future__ import annotations

from typing import Any

import pytest
from quicksand.guest import shell as shell_module
from quicksand.guest.agent import wire
from quicksand.guest.agent.wire import Stream
from quicksand.guest.shell import REPLAY_MAX, Shell

from tests.each import each
from tests.unit.guest.agent.fake_agent import FakeAgent, session_with

EXIT = {"event": "exit", "exit_code": 0, "signal": None, "timed_out": False, "canceled": False}


async def pieces(reply: dict[str, Any], *chunks: bytes | str) -> list[tuple[bytes, bool]]:
    """What a client gets that attaches; a text is an event."""

    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        number = request["id"]
        assert request["params"]["replay"] == REPLAY_MAX
        agent.reply(request, {"channel": number, **reply})
        for chunk in chunks:
            if isinstance(chunk, bytes):
                agent.send(wire.encode_data(number, Stream.STDOUT, chunk))
            else:
                agent.send(wire.encode_message({"event": chunk, "channel": number}))
        agent.send(wire.encode_message({**EXIT, "channel": number, "duration_s": 1.0}))

    async with session_with(handler) as session:
        shell = await Shell.attach(session, "p1", columns=80, rows=24)
        return [(data, replayed) async for data, replayed in shell.pieces()]


@each("told", [3, 5, 8])
async def test_the_first_bytes_are_repeated(told: int) -> None:
    found = await pieces({"replay": told}, b"abc", b"defgh")
    assert b"".join(data for data, replayed in found if replayed) == b"abcdefgh"[:told]
    assert b"".join(data for data, replayed in found if not replayed) == b"abcdefgh"[told:]
    assert found.count((b"", False)) == 1


async def test_nothing_is_repeated() -> None:
    assert await pieces({"replay": 0}, b"abc") == [(b"", False), (b"abc", False)]


async def test_what_was_left_out_ends_the_repetition() -> None:
    found = await pieces({"replay": 9}, b"abc", "lagged")
    assert found == [(b"abc", True), (b"", False)]


@each("replay", [None, -1, True, "9", 1 << 60])
async def test_an_agent_that_does_not_say_or_lies_has_nothing_answered_at_once(replay: Any) -> None:
    reply = {} if replay is None else {"replay": replay}
    found = await pieces(reply, b"abc", b"def")
    assert b"".join(data for data, _ in found) == b"abcdef"
    assert all(replayed for _, replayed in found)
    more = b"x" * (REPLAY_MAX // 2)
    found = await pieces(reply, more, more, b"now")
    assert found[-1] == (b"now", False)


async def test_an_agent_that_does_not_say_is_done_when_it_is_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shell_module, "QUIET_S", 0.01)
    requests: list[dict[str, Any]] = []
    agents: list[FakeAgent] = []

    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        requests.append(request)
        agents.append(agent)
        agent.reply(request, {"channel": request["id"]})
        agent.send(wire.encode_data(request["id"], Stream.STDOUT, b"old"))

    async with session_with(handler) as session:
        shell = await Shell.attach(session, "p1", columns=80, rows=24)
        found = []
        async for piece in shell.pieces():
            found.append(piece)
            if piece.data == b"new":
                break
            if not piece.data:
                number = requests[0]["id"]
                agents[0].send(wire.encode_data(number, Stream.STDOUT, b"new"))
        assert found == [(b"old", True), (b"", False), (b"new", False)]

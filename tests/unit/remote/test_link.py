"""A connection between two machines: channels, credit, and what a hostile end may send."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import (
    AgentUnreachableError,
    RemoteError,
    RemoteProtocolError,
    RemoteRefusedError,
    RemoteUnreachableError,
)
from quicksand.base.remedies import Remedy, Words
from quicksand.guest.agent import wire
from quicksand.guest.agent.wire import Stream
from quicksand.remote import peer_link as linking
from quicksand.remote.agents import RelayedAgent
from quicksand.remote.peer_link import REQUESTS_MAX, WINDOW, Link, Request, refusal

from quicksand_tui.model.remedy_words import hint_of
from tests.each import each
from tests.unit.remote.far import links, two_ends, until


async def echo(request: Request) -> None:
    """Sends back what comes, and ends with an event."""
    request.answer(params=request.params)
    while (piece := await request.channel.piece()).data:
        await request.channel.send(Stream.STDOUT, piece.data)
    request.channel.finish(Stream.STDOUT)
    request.channel.tell("exit", exit_code=0)


async def test_a_request_is_answered_with_its_result() -> None:
    async with links(echo) as (asking, _):
        channel = asking.open("echo", word="ü")
        assert await channel.reply == {"params": {"word": "ü"}}


async def test_streams_of_any_size_arrive_whole_and_events_after_them() -> None:
    data = random.Random(1).randbytes(5 * WINDOW + 3)
    async with links(echo) as (asking, _):
        channel = asking.open("echo")

        async def write() -> None:
            await channel.send(Stream.INPUT, data)
            channel.finish(Stream.INPUT)

        writing = asyncio.create_task(write())
        came = bytearray()
        while (piece := await channel.piece()).data:
            came += piece.data
        await writing
        assert bytes(came) == data
        assert (await channel.event())["exit_code"] == 0


async def test_who_does_not_read_holds_back_only_his_own_channel() -> None:
    sent = 0

    async def flood(request: Request) -> None:
        nonlocal sent
        request.answer()
        if request.method == "quick":
            return
        while True:
            await request.channel.send(Stream.STDOUT, bytes(4096))
            sent += 4096

    async with links(flood) as (asking, answering):
        channel = asking.open("flood")
        await channel.reply
        await until(lambda: sent >= WINDOW, "a full window")
        await asking.request("quick")
        assert sent == WINDOW
        answering.end(RemoteUnreachableError("over"))


async def test_refusals_have_a_code_and_a_hint() -> None:
    async def refuse(request: Request) -> None:
        raise RemoteRefusedError("not today", code="forbidden", hint="tomorrow")

    async with links(refuse) as (asking, _):
        with pytest.raises(RemoteRefusedError, match="box: not today") as caught:
            await asking.request("anything")
        assert (caught.value.code, caught.value.hint) == ("forbidden", "tomorrow")


async def test_more_requests_than_are_allowed_are_refused() -> None:
    async def hang(request: Request) -> None:
        await request.channel.event()

    async with links(hang) as (asking, answering):
        for _ in range(REQUESTS_MAX):
            asking.open("hang")
        with pytest.raises(RemoteRefusedError) as caught:
            await asking.request("hang")
        assert caught.value.code == "too_many"
        answering.end(RemoteUnreachableError("over"))


async def test_what_is_under_way_fails_when_the_connection_breaks() -> None:
    async with links(echo) as (asking, answering):
        channel = asking.open("echo")
        await channel.reply
        answering.end(RemoteUnreachableError("over"))
        with pytest.raises(RemoteUnreachableError):
            await channel.piece()
        with pytest.raises(RemoteUnreachableError):
            asking.open("echo")


BAD = {
    "a frame beyond all bounds": b"\x7f\xff\xff\xff",
    "data beyond all bounds": b"\xff\xff\xff\xff",
    "data without a header": b"\x80\x00\x00\x01\x00",
    "no JSON": b"\x00\x00\x00\x01{",
    "no object": b"\x00\x00\x00\x02[]",
    "data of no channel": wire.encode_data(9, Stream.STDOUT, b"x"),
    "data of a stream that is not its": wire.encode_data(1, Stream.INPUT, b"x"),
    "data of an unknown stream": wire.encode_data(1, 77, b"x"),
    "a short credit": wire.encode_data(1, wire.CREDIT | Stream.INPUT, b"x"),
    "a credit of an unknown stream": wire.encode_data(1, wire.CREDIT | 77, bytes(4)),
    "more than the window": b"".join(
        wire.encode_data(1, Stream.STDOUT, bytes(64 * 1024)) for _ in range(5)
    ),
    "data after the end": wire.encode_data(1, 1, b"") + wire.encode_data(1, 1, b"x"),
    "a request": wire.encode_message({"id": 1, "method": "x", "params": {}}),
    "an answer to nothing": wire.encode_message({"id": 2, "result": {}}),
    "an answer without a number": wire.encode_message({"result": {}}),
    "an answer without a result": wire.encode_message({"id": 1}),
    "an error that is none": wire.encode_message({"id": 1, "error": "no"}),
    "a large answer": wire.encode_message({"id": 1, "result": {"x": "y" * 100_000}}),
    "an event of no channel": wire.encode_message({"event": "exit", "channel": True}),
    "a flood of events": b"".join(
        wire.encode_message({"event": "x", "channel": 1}) for _ in range(300)
    ),
}


@each("frames", BAD.values(), ids=BAD.keys())
async def test_a_far_end_that_breaks_the_rules_loses_the_connection(frames: bytes) -> None:
    here, (_, writer) = await two_ends()
    link = Link(*here, name="box")
    running = asyncio.create_task(link.run())
    channel = link.open("something")
    writer.write(frames)
    assert isinstance(await running, RemoteProtocolError)
    with pytest.raises(RemoteError):
        while True:
            await channel.event()
    writer.close()


@given(data=st.binary(max_size=300), answers=st.booleans())
def test_no_bytes_break_anything_but_the_connection(data: bytes, *, answers: bool) -> None:
    async def main() -> None:
        here, (_, writer) = await two_ends()
        link = Link(*here, name="box", answer=echo if answers else None)
        running = asyncio.create_task(link.run())
        writer.write(data)
        writer.close()
        assert isinstance(await running, RemoteError)
        await link.settle()

    asyncio.run(main())


FRAMES = st.one_of(
    st.builds(
        wire.encode_data,
        st.integers(0, 3),
        st.sampled_from([0, 1, 2, 3, 0x80, 0x81, 0x82, 0xFF]),
        st.binary(max_size=8),
    ),
    st.builds(
        wire.encode_message,
        st.dictionaries(
            st.sampled_from(["id", "method", "params", "result", "error", "event", "channel"]),
            st.one_of(
                st.integers(-1, 4),
                st.sampled_from(["exit", "bye", "echo", "close"]),
                st.just({}),
                st.none(),
                st.booleans(),
            ),
        ),
    ),
)


@given(frames=st.lists(FRAMES, max_size=12), answers=st.booleans())
def test_no_frames_break_anything_but_the_connection(frames: list[bytes], *, answers: bool) -> None:
    async def main() -> None:
        here, (_, writer) = await two_ends()
        link = Link(*here, name="box", answer=echo if answers else None)
        running = asyncio.create_task(link.run())
        if not answers:
            link.open("something")
        for frame in frames:
            writer.write(frame)
        writer.close()
        assert isinstance(await running, RemoteError)
        await link.settle()

    asyncio.run(main())


async def test_a_silent_client_is_taken_for_gone_and_one_that_lives_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linking, "SILENCE_MAX_S", 1.0)
    monkeypatch.setattr(linking, "ALIVE_EVERY_S", 0.05)
    async with links(echo) as (asking, answering):
        watching = asyncio.create_task(answering.watch())
        living = asyncio.create_task(asking.show_life())
        done, _ = await asyncio.wait([watching], timeout=2.0)
        assert not done
        living.cancel()
        await watching
        assert answering.ended.is_set()


async def test_a_failure_after_the_answer_ends_the_channel() -> None:
    async def fail_later(request: Request) -> None:
        request.answer()
        raise RemoteRefusedError("the disk is full", code="failed")

    async with links(fail_later) as (asking, _):
        channel = asking.open("get")
        await channel.reply
        with pytest.raises(RemoteRefusedError, match="the disk is full"):
            await channel.piece()


async def test_a_hint_is_said_in_the_words_of_who_reads_it() -> None:
    async def refuse(request: Request) -> None:
        raise RemoteRefusedError("no", code="failed", hint=Words(Remedy("start", name="web")))

    async with links(refuse) as (asking, _):
        with pytest.raises(RemoteRefusedError) as caught:
            await asking.request("x")
        assert caught.value.hint == "`Sandbox.open('web').start()`"
        assert hint_of(caught.value) == "`quicksand-tui start web`"


DEEP: dict[str, Any] = {"parts": [], "python": ""}
for _ in range(400):
    DEEP = {"parts": [DEEP], "python": ""}


@each(
    "hint",
    [
        DEEP,
        {"parts": [{"verb": "start", "args": {}}], "python": ""},
        {"parts": [{"verb": "clean", "args": {}}], "python": ""},
        {"parts": [{"verb": "key", "args": {}}], "python": "press it"},
        {"parts": [{"verb": "key"}], "python": "press it"},
        {"parts": [{"verb": [], "args": {}}], "python": ""},
        {"parts": [None], "python": ""},
        {"parts": 7, "python": ""},
        {},
        7,
    ],
)
def test_a_hint_that_cannot_be_said_is_left_out(hint: object) -> None:
    error = refusal({"code": "failed", "message": "no", "hint": hint}, "box")
    assert str(error) == "box: no"
    assert hint_of(error) == ""
    assert error.hint in ("", "press it")


def test_the_texts_of_a_hint_are_bounded() -> None:
    hint = {"parts": ["x" * 50_000, {"verb": "start", "args": {"name": "y" * 50_000}}]}
    error = refusal({"code": "x", "message": "no", "hint": {**hint, "python": ""}}, "box")
    assert isinstance(error.advice, Words)
    assert len(str(error.advice)) < 10_000


async def test_a_silent_far_end_is_taken_for_gone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "SILENCE_MAX_S", 0.2)
    async with links(echo) as (asking, _):
        await asyncio.wait_for(asking.watch(), 60)
        with pytest.raises(RemoteUnreachableError, match="no sign of life"):
            asking.open("echo")


async def test_a_connection_that_this_end_ends_is_no_longer_read() -> None:
    """stdin and stdout of the far end: closing the one does not end the other."""
    (_, writer), (_, other) = await two_ends()
    link = Link(asyncio.StreamReader(), writer, name="box")
    running = asyncio.create_task(link.run())
    channel = link.open("something")
    await asyncio.sleep(0)
    error = RemoteUnreachableError("the client came over another connection")
    link.end(error)
    assert await asyncio.wait_for(running, 60) is error
    with pytest.raises(RemoteUnreachableError, match="another connection"):
        await channel.reply
    other.close()


async def test_who_gives_up_before_the_answer_leaves_the_connection_to_the_others() -> None:
    async with links(echo) as (asking, _):
        channel = asking.open("echo")

        async def wait() -> None:
            await channel.reply

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()  # the answer comes before it is known that nobody waits
        await until(waiting.done, "it to give up")
        assert await asking.request("echo", word="still there")
        channel.abandon(Stream.INPUT)


async def test_a_stream_ends_once_however_often_that_is_said() -> None:
    async with links(echo) as (asking, _):
        channel = asking.open("echo")
        await channel.reply
        channel.finish(Stream.INPUT)
        channel.finish(Stream.INPUT)
        assert (await channel.event())["exit_code"] == 0
        channel.abandon(Stream.INPUT)
        assert await asking.request("echo")


async def test_an_abandoned_request_ends_at_the_other_end() -> None:
    async with links(echo) as (asking, answering):
        channel = asking.open("echo")
        await channel.reply
        channel.abandon(Stream.INPUT)
        await until(lambda: not answering._tasks, "the request to end")


async def test_a_connection_that_breaks_is_not_the_fault_of_the_guest() -> None:
    """A copy whose ssh was killed blamed the guest's agent."""

    async def answer(request: Request) -> None:
        request.answer(token="0" * 32)
        await request.channel.piece()  # the agent is greeted
        answering.end(RemoteUnreachableError("ssh was killed"))

    async with links(answer) as (asking, answering):
        with pytest.raises(AgentUnreachableError, match="the connection to box broke") as caught:
            await RelayedAgent.open(asking, "web")
        assert "machine" in str(caught.value.hint)

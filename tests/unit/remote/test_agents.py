"""What another machine tells of a guest whose agent it passes on."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest
from quicksand.base.errors import RemoteError, StateError
from quicksand.base.files import write_json
from quicksand.base.paths import Paths
from quicksand.guest.agent.wire import Stream
from quicksand.records.layout import AGENT_PORTS, runtime_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.remote.agents import _answer_looks, _Told, relay
from quicksand.remote.peer_link import Request

from tests.unit.hosted.running import running
from tests.unit.records.making import RUN
from tests.unit.remote.far import links, until


async def test_a_guest_that_is_paused_there_is_told_at_once(places: Paths) -> None:
    with running(places) as sandbox:
        sandbox.start()

        async def answer(request: Request) -> None:
            request.answer()
            await _answer_looks(request.channel, "web", runtime_dir(places, sandbox.id))

        async with links(answer) as (near, _):
            channel = near.open("agent")
            await channel.reply
            told = _Told(near, channel)
            hearing = asyncio.create_task(told.hear())
            await told.refuse_paused()
            assert told.why_paused() is None

            write_json(sandbox.machine.state, replace(RUN, paused=True).to_json())
            told.look_again()
            with pytest.raises(StateError, match="'web' is paused") as refused:
                await told.refuse_paused()
            assert "resume" in refused.value.hint
            assert "goes on when it does" in str(told.why_paused())

            write_json(sandbox.machine.state, RUN.to_json())
            await told.refuse_paused()
            await until(lambda: told.why_paused() is None, "the look")
            hearing.cancel()


async def test_a_machine_that_does_not_answer_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quicksand.remote.agents.ANSWER_S", 0.01)
    asked: list[object] = []

    async def answer(request: Request) -> None:
        request.answer()
        while True:
            asked.append(await request.channel.event())

    async with links(answer) as (near, _):
        channel = near.open("agent")
        await channel.reply
        told = _Told(near, channel)
        for _ in range(3):
            await told.refuse_paused()
            told.why_paused()
        await until(lambda: asked, "the look")
        assert len(asked) == 1


async def test_a_revert_that_is_left_there_is_finished_before_the_guest_is_asked(
    places: Paths,
) -> None:
    """Its guest says nothing until then: the near end waited for 15 s, and gave up."""
    with running(places) as sandbox:
        sandbox.start()
        sandbox.machine.unfinished.touch()
        began: list[str] = []
        go_on = asyncio.Event()

        async def finish(registry: Registry, record: Record) -> None:
            began.append(record.id)
            await go_on.wait()
            sandbox.machine.unfinished.unlink()

        async def answer(request: Request) -> None:
            await relay(request, finish)

        async with contextlib.AsyncExitStack() as stack:
            for number in range(AGENT_PORTS):
                path = sandbox.machine.agent_socket(number)
                server = await asyncio.start_unix_server(lambda _, ours: ours.close(), path)
                await stack.enter_async_context(server)
            near, _ = await stack.enter_async_context(links(answer))
            channel = near.open("agent", sandbox=sandbox.id)
            await until(lambda: began == [sandbox.id], "the finisher")
            assert not channel.reply.done()
            go_on.set()
            assert (await channel.reply)["token"] == RUN.token
            channel.abandon(Stream.INPUT)


async def test_a_revert_that_cannot_be_finished_there_is_told_at_once(places: Paths) -> None:
    with running(places) as sandbox:
        sandbox.start()
        sandbox.machine.unfinished.touch()

        async def finish(registry: Registry, record: Record) -> None:
            raise StateError("the last revert of 'web' was interrupted, and is not finished")

        async def answer(request: Request) -> None:
            await relay(request, finish)

        async with links(answer) as (near, _):
            with pytest.raises(RemoteError, match="was interrupted, and is not finished"):
                await near.open("agent", sandbox=sandbox.id).reply

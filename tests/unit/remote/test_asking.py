"""A command that must not be done twice, over connections that break: far ends that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from quicksand.base.errors import (
    HostError,
    RemoteError,
    RemoteProtocolError,
    RemoteRefusedError,
    RemoteUnreachableError,
)
from quicksand.guest.agent.wire import Stream
from quicksand.remote import connection as connecting
from quicksand.remote.asking import AskedCommand, CommandLine
from quicksand.remote.connection import Connection
from quicksand.remote.destination import Destination
from quicksand.remote.hello import Welcome, welcome
from quicksand.remote.link import Link, Request

from tests.unit.remote.far import two_ends

Serve = Callable[[Request, Link], Awaitable[None]]


class Scripted(Connection):
    """A connection whose far ends are given, one for each time that it is opened; the last one
    answers for ever. An error stands for one that is not reached."""

    def __init__(self, *ends: Serve | RemoteError | HostError, knows: bool = True) -> None:
        super().__init__(Destination.parse("ssh://box"), asks=False)
        self._ends = list(ends)
        self._knows = knows
        self._far: list[Link] = []
        self.opened = 0

    async def open(self, *, resume: bool = False) -> Welcome:
        self.opened += 1
        end = self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]
        if isinstance(end, Exception):
            raise end
        here, there = await two_ends()

        async def answer(request: Request) -> None:
            await end(request, far)

        far = Link(*there, name="the client", answer=answer)
        self._far.append(far)
        self._link = Link(*here, name="box")
        self._tasks += [asyncio.create_task(link.run()) for link in (far, self._link)]
        return welcome(resumed=self._knows)

    async def close(self) -> None:
        for far in self._far:
            far.end(RemoteUnreachableError("over"))
        await asyncio.wait(self._tasks)
        for far in self._far:
            await far.settle()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "AGAIN_S", (0.02, 0.04))
    monkeypatch.setattr(connecting, "AWAY_MAX_S", 1.2)


async def run(connection: Scripted, *, once: bool = True) -> tuple[bytes, AskedCommand]:
    """What a command over that connection prints, and the command."""
    try:
        await connection.open()
        command = AskedCommand(connection, CommandLine(argv=["stop"], once=once))
        await command.start()
        came = b"".join([piece.data async for piece in stdout(command)])
    finally:
        await connection.close()
    return came, command


async def stdout(command: AskedCommand) -> AsyncIterator[Any]:
    async for piece in command.pieces():
        if piece.stream == Stream.STDOUT:
            yield piece


async def answer_and_break(request: Request, link: Link) -> None:
    """Answers, and breaks at once."""
    request.answer(resumed=True)
    await link.drain()
    link._writer.close()


async def test_a_machine_that_answers_and_breaks_each_time_is_given_up() -> None:
    connection = Scripted(answer_and_break)
    async with asyncio.timeout(60):
        with pytest.raises(RemoteUnreachableError, match="unknown"):
            await run(connection)
    assert 3 <= connection.opened <= 75  # 1.2 s, with pauses of 0.04 s


async def say_wrong(request: Request, link: Link) -> None:
    """Answers, and breaks a rule."""
    request.answer(resumed=True)
    request.answer(resumed=True)


async def fail_later(request: Request, _: Link) -> None:
    """Answers, and says then that it failed."""
    request.answer(resumed=True)
    raise RemoteRefusedError("no memory", code="internal")


@pytest.mark.parametrize(
    "ends",
    [
        (say_wrong,),
        (fail_later,),
        (answer_and_break, RemoteUnreachableError("no route")),
        (answer_and_break, RemoteError("there is no quicksand-tui")),
        (answer_and_break, HostError("there is no ssh")),
        (answer_and_break, say_wrong),
    ],
)
async def test_whatever_fails_after_a_change_was_sent_leaves_it_unknown(ends: Any) -> None:
    with pytest.raises(RemoteUnreachableError, match="unknown") as caught:
        await run(Scripted(*ends))
    assert caught.value.hint == "look at what is there before you do it again"


async def test_a_refusal_is_known_and_so_is_the_end_of_what_may_be_done_twice() -> None:
    async def refuse(request: Request, _: Link) -> None:
        raise RemoteRefusedError("no such command", code="no_such_command")

    with pytest.raises(RemoteRefusedError, match="no such command"):
        await run(Scripted(refuse))
    with pytest.raises(RemoteProtocolError):
        await run(Scripted(say_wrong), once=False)


async def test_a_request_that_was_never_sent_is_not_unknown() -> None:
    connection = Scripted(answer_and_break, RemoteUnreachableError("no route"))
    await connection.open()
    connection.link.end(RemoteUnreachableError("the connection broke"))
    with pytest.raises(RemoteUnreachableError, match=r"^the connection broke$"):
        await AskedCommand(connection, CommandLine(argv=["stop"], once=True)).start()
    assert connection.opened == 1
    await connection.close()


async def test_output_goes_on_at_its_place_after_a_second_break_with_a_gap_before() -> None:
    asked: list[int] = []

    async def end(request: Request, link: Link) -> None:
        """Has lost 100 bytes before the first that it sends; then it breaks, but for the third."""
        asked.append(request.params["have"]["1"])
        request.answer(resumed=True)
        if len(asked) == 1:
            request.channel.tell("lost", stream=1, bytes=100)
        await request.channel.send(Stream.STDOUT, b"x" * 10)
        if len(asked) < 3:
            link._writer.close()
            return
        request.channel.finish(Stream.STDOUT)
        request.channel.finish(Stream.STDERR)
        request.channel.tell("exit", exit_code=0)

    came, command = await run(Scripted(end))
    assert asked == [0, 110, 120]
    assert came == b"x" * 30
    assert (command.exit_code, command.lost) == (0, 100)

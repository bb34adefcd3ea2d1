"""Sessions of the SSH server whose client goes away."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from quicksand.guest import execution
from quicksand.guest.agent import wire
from quicksand.guest.execution import command_params

from quicksand_tui.cli.ssh.sessions import HANG_UP_S, Tasks, hang_up
from tests.each import each
from tests.unit.guest.agent.fake_agent import FakeAgent, session_with


class Asked:
    """A sandbox that notes what is asked of its agent."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.requests.append((method, params))
        return {}


class Busy(Asked):
    """One whose agent takes its time."""

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1.5, answered.set_result, {})
        await answered
        return await super().request(method, params)


@each("has_ended", [False, True])
async def test_a_command_that_has_ended_is_not_signalled_by_its_pid(has_ended: bool) -> None:
    async def script(agent: FakeAgent, request: dict[str, Any]) -> None:
        if request["method"] != "execute_stream":
            agent.reply(request, {})
            return
        agent.reply(request, {"channel": request["id"], "pid": 4711})
        if has_ended:
            ended = {"event": "exit", "channel": request["id"], "exit_code": 0, "signal": None}
            rest = {"timed_out": False, "canceled": False, "duration_s": 0.1}
            agent.send(wire.encode_message(ended | rest))

    params = command_params(["x"], timeout=None, cwd=None, shell="/bin/sh", user=None, env=None)
    sandbox, tasks = Asked(), Tasks()
    async with session_with(script) as session:
        command = await execution.spawn(session, params, stdin=True)
        async with asyncio.timeout(60):
            await session.request("ping")  # whatever was sent before has come
            await tasks.end(0)  # the connection is over, and no output is waited for
            await hang_up(cast("Any", sandbox), command, tasks)
    told = [("kill", {"pid": 4711, "signal": "HUP"})]
    assert sandbox.requests == ([] if has_ended else told)


class Left:
    """A command whose client has gone."""

    pid = 4711
    has_ended = False

    def close_stdin(self) -> None:
        pass


async def test_a_busy_guest_is_told_all_the_same_that_the_client_is_gone() -> None:
    sandbox, tasks = Busy(), Tasks()
    tasks.is_ending = True
    tasks.start(hang_up(cast("Any", sandbox), cast("Any", Left()), tasks), "hang-up")
    await tasks.end(HANG_UP_S)
    assert sandbox.requests == [("kill", {"pid": 4711, "signal": "HUP"})]

"""When a template counts as ready."""

from __future__ import annotations

from typing import Any, cast

import pytest
from quicksand.agent.session import Session
from quicksand.errors import MachineError
from quicksand.guest_ready import READY
from quicksand.template_maker import WARM, _wait_until_ready, _warm_up


class FakeSession:
    def __init__(self, **reply: Any) -> None:
        self.reply = reply
        self.asked: list[tuple[str, dict[str, Any], float]] = []

    async def request(self, method: str, params: dict[str, Any], *, timeout: float) -> Any:
        self.asked.append((method, params, timeout))
        return self.reply


async def test_the_image_is_asked_and_has_its_time() -> None:
    session = FakeSession(exit_code=0, timed_out=False)
    await _wait_until_ready(cast("Session", session), 7)
    ((method, params, timeout),) = session.asked
    assert method == "execute"
    # An image without that program is ready.
    assert params == {"command": f"[ ! -x {READY} ] || exec {READY}", "timeout": 7}
    assert timeout > 7


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ({"exit_code": 124, "timed_out": True}, "not ready after 7 s"),
        ({"exit_code": 3, "timed_out": False}, "ended with 3"),
    ],
)
async def test_a_guest_that_does_not_become_ready_is_no_template(
    reply: dict[str, Any], why: str
) -> None:
    with pytest.raises(MachineError, match=why):
        await _wait_until_ready(cast("Session", FakeSession(**reply)), 7)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ({"exit_code": 124, "timed_out": True}, "not warm after 7 s"),
        ({"exit_code": 3, "timed_out": False}, "ended with 3"),
    ],
)
async def test_nor_is_one_whose_warming_up_fails(reply: dict[str, Any], why: str) -> None:
    session = FakeSession(**reply)
    with pytest.raises(MachineError, match=why):
        await _warm_up(cast("Session", session), 7)
    ((_, params, _),) = session.asked
    assert params["command"] == f"[ ! -x {WARM} ] || exec {WARM}"

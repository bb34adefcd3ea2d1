"""Errors of agents: those that say in fields what they mean, and those that only have words."""

from __future__ import annotations

from typing import Any

import pytest
from quicksand.base.errors import AgentProtocolError, AgentRefusedError
from quicksand.guest.agent.refusals import TELLS, LinuxErrno, decode

from tests.each import each
from tests.unit.guest.agent.fake_agent import FakeAgent, session_with

BUSY = {"code": "io", "message": "/mnt/data: Host is down (os error 112)"}


def fields(error: AgentRefusedError) -> tuple[str, int | None, str]:
    return error.code, error.errno, error.parameter


@each(
    ("error", "expected"),
    [
        (BUSY, ("io", LinuxErrno.EHOSTDOWN, "")),
        ({"code": "not_found", "message": 'no such method: "renew"'}, ("no_such_method", None, "")),
        ({"code": "not_found", "message": 'command "x" not found'}, ("not_found", 2, "argv")),
        (
            {"code": "forbidden", "message": 'command "/etc": Permission denied (os error 13)'},
            ("forbidden", 13, "argv"),
        ),
        ({"code": "not_found", "message": 'user "x" not found'}, ("not_found", None, "")),
        ({"code": "io", "message": "an (os error 5) is meant"}, ("io", None, "")),
        ({"code": "io", "message": "x (os error 0)"}, ("io", None, "")),
        ({"code": "io", "message": ""}, ("io", None, "")),
        ({}, ("internal", None, "")),
    ],
)
def test_an_older_agent_says_in_its_message_what_a_newer_one_has_fields_for(
    error: dict[str, Any], expected: tuple[str, int | None, str]
) -> None:
    assert fields(decode(error, tells=False)) == expected


def test_the_message_of_an_agent_that_has_the_fields_is_not_read() -> None:
    assert fields(decode(BUSY, tells=True)) == ("io", None, "")
    told = {"code": "no_such_method", "message": "x (os error 5)", "errno": 22, "parameter": "cwd"}
    assert fields(decode(told, tells=True)) == ("no_such_method", 22, "cwd")


@each(
    "odd",
    [
        {"code": "something new", "errno": "22", "parameter": 7},
        {"code": None, "errno": True, "parameter": None},
        {"code": ["io"], "errno": 0},
        {"code": {}, "errno": -1},
        {"code": 1, "errno": 4096},
        {"errno": 10**30},
    ],
)
def test_fields_that_make_no_sense_are_left_out(odd: dict[str, Any]) -> None:
    error = decode({"message": "no", **odd}, tells=True)
    assert (str(error), *fields(error)) == ("no", "internal", None, "")


def test_what_is_no_object_breaks_the_protocol() -> None:
    with pytest.raises(AgentProtocolError):
        decode("busy", tells=True)


@each(("capabilities", "errno"), [([TELLS], None), (["exec"], 112), ("errors", 112), (None, 112)])
async def test_the_handshake_decides_whether_messages_are_read(
    capabilities: object, errno: int | None
) -> None:
    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        agent.refuse(request, BUSY)

    async with session_with(handler) as session:
        session.hello = {"capabilities": capabilities}
        with pytest.raises(AgentRefusedError) as caught:
            await session.request("mount_share")
        assert caught.value.errno == errno

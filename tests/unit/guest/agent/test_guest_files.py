"""Files of a guest whose agent is of another time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from quicksand.base.errors import AgentRefusedError
from quicksand.guest.agent.extents import HOLE, Extent
from quicksand.guest.agent.session import Session
from quicksand.guest.guest_files import GuestFile, GuestFiles

from tests.unit.guest.agent.fake_agent import FakeAgent, session_with


async def sparse() -> AsyncIterator[Extent]:
    yield Extent(3 * HOLE, b"data")
    yield Extent(4 * HOLE, b"")


async def test_an_older_agent_gets_zeros_for_holes_and_no_request_that_it_lacks() -> None:
    requests: list[dict[str, Any]] = []
    received = bytearray()

    async def handler(agent: FakeAgent, request: dict[str, Any]) -> None:
        requests.append(request)
        if request["method"] != "file_write":
            agent.refuse(request, {"code": "not_found", "message": "no such method"})
            return
        while not agent.data or agent.data[-1].payload:
            agent.data_arrived.clear()
            await agent.data_arrived.wait()
        received.extend(b"".join(frame.payload for frame in agent.data))
        agent.reply(request, {"bytes": len(received)})

    async with session_with(handler) as session:

        async def get() -> Session:
            return session

        files = GuestFiles(get)
        await files.write_extents("/x", sparse(), mode=0o600, mtime_ns=5)
        await files.set_mtime("/x", 5)
        with pytest.raises(AgentRefusedError) as caught:
            await files.link("/y", "/x")
    assert received == bytes(3 * HOLE) + b"data" + bytes(HOLE - 4)
    assert "sparse" not in requests[0]["params"]
    assert [request["method"] for request in requests] == ["file_write", "file_link"]
    assert caught.value.code == "no_such_method"


def test_what_an_older_agent_does_not_tell_of_a_file_is_taken_for_usual() -> None:
    told = {"type": "file", "size": 1, "mode": 0o644, "uid": 0, "gid": 0, "mtime_ns": 7}
    found = GuestFile.parse(told, name="x")
    assert (found.identity, found.links, found.mtime_ns) == ("", 1, 7)

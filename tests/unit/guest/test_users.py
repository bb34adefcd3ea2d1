"""`create_user` returns the user, who runs commands."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest
from quicksand import SandboxUser
from quicksand.base.errors import AgentProtocolError
from quicksand.guest.execution import ExecuteResult
from quicksand.life.guest import InGuest

from tests.each import each

RESULT = ExecuteResult("joe\n", "", 0)


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> InGuest:
    """A guest whose agent makes every user the same, and whose commands all end alike."""
    guest = InGuest(AsyncMock())
    answer = AsyncMock(return_value={"uid": 1001, "home": "/home/joe"})
    monkeypatch.setattr(guest, "request", answer)
    run = create_autospec(InGuest.execute, return_value=RESULT)
    monkeypatch.setattr(guest, "execute", run.__get__(guest))
    monkeypatch.setattr(guest, "ran", run, raising=False)
    return guest


async def test_a_new_user_is_returned_with_its_numbers_and_home(guest: InGuest) -> None:
    joe = await guest.create_user("joe")
    assert isinstance(joe, SandboxUser)
    assert (joe.name, joe.uid, joe.gid, joe.home) == ("joe", 1001, 1001, "/home/joe")
    assert repr(joe) == "SandboxUser(name='joe', uid=1001, gid=1001, home='/home/joe')"


async def test_commands_of_a_user_run_as_this_user_with_all_that_was_asked(guest: InGuest) -> None:
    joe = await guest.create_user("joe")
    found = await joe.execute("id", 5, "/tmp", exclusive=True, stdin=b"in", env={"A": "b"})
    assert found is RESULT
    ran: Any = guest.ran  # type: ignore[attr-defined]
    ran.assert_called_once_with(
        *(guest, "id", 5, "/tmp", "/bin/sh", None, None, True, "joe"),
        stdin=b"in",
        env={"A": "b"},
        check=False,
    )


@each("reply", [{}, {"uid": "0", "home": "/"}, {"uid": 2**70, "home": "/"}, {"uid": 1, "home": 7}])
def test_nonsense_of_the_agent_is_refused(reply: dict[str, Any]) -> None:
    with pytest.raises(AgentProtocolError, match="which user 'joe'"):
        SandboxUser.parse(AsyncMock(), "joe", reply)

"""What a guest gets that continues from a checkpoint: in one request, or in several if its agent is
older than that request."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from quicksand.guest.agent.session import Session
from quicksand.records.config import SandboxConfig
from quicksand.records.sandboxes import Record
from quicksand.snapshots import restore
from quicksand.snapshots.restore import repair_guest

from tests.each import each
from tests.unit.snapshots.test_shape import node

RECORD = Record(
    id="0123456789ab",
    name="box",
    config=SandboxConfig(image="debian"),
    image_digest="",
    chain=(),
    created=0.0,
    committed=True,
    discard=False,
)
TEMPLATE = replace(node(), owner="ba9876543210", token="old")
OWN = replace(TEMPLATE, owner=RECORD.id)


class Guest:
    """An agent that notes what it is asked."""

    def __init__(self, *capabilities: object, clock: Callable[[], object] = time.time_ns) -> None:
        self.hello = {"capabilities": [*capabilities]}
        self.asked: dict[str, dict[str, Any]] = {}
        self._clock = clock

    def can(self, capability: str) -> bool:
        return Session.can(cast(Session, self), capability)

    async def request(
        self, method: str, params: dict[str, Any], *, timeout: float = 30.0
    ) -> dict[str, Any]:
        self.asked[method] = params
        return {"unix_ns": self._clock()}

    async def repair(self, at: Any) -> str:
        return await repair_guest(cast(Session, self), RECORD, at)


async def test_one_request_renews_all_of_a_clone() -> None:
    guest = Guest("exec", "renew")
    token = await guest.repair(TEMPLATE)
    (asked,) = guest.asked.values()
    assert asked["token"] == token != TEMPLATE.token
    assert {"unix_ns", "entropy_b64", "hostname", "machine_id", "mac", "boot_id"} <= asked.keys()


async def test_after_a_revert_a_guest_keeps_its_names() -> None:
    guest = Guest("renew")
    assert await guest.repair(OWN) == OWN.token
    assert guest.asked["renew"].keys() == {"unix_ns", "entropy_b64"}


async def test_a_desktop_is_told_its_new_name_and_no_other_guest_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its window manager would add "(on NAME)" to every new window's title."""
    told: list[object] = []

    async def note(session: Session) -> None:
        told.append(session)

    monkeypatch.setattr(restore, "tell_name", note)
    guest = Guest("renew")
    await guest.repair(TEMPLATE)
    await guest.repair(replace(OWN, shape={**OWN.shape, "display": True}))
    assert told == []
    await guest.repair(replace(TEMPLATE, shape={**TEMPLATE.shape, "display": True}))
    assert told == [guest]


@each("at", [TEMPLATE, OWN], ids=["template", "own"])
async def test_an_older_agent_is_asked_for_the_same_one_by_one(at: Any) -> None:
    old, new = Guest("exec", ["renew"]), Guest("renew")
    token = await old.repair(at)
    await new.repair(at)
    assert "renew" not in old.asked
    given = {name for params in old.asked.values() for name in params}
    assert given == new.asked["renew"].keys()
    assert token == old.asked.get("rotate_token", {"token": at.token})["token"]


@each(
    "clock",
    [lambda: 0, lambda: time.time_ns() + 10**9, lambda: None, lambda: 2**70, lambda: "now"],
    ids=["late", "ahead", "none", "endless", "text"],
)
async def test_a_clock_that_is_not_right_is_set_again(clock: Callable[[], object]) -> None:
    guest = Guest("renew", clock=clock)
    await guest.repair(OWN)
    assert list(guest.asked) == ["renew", "set_time"]

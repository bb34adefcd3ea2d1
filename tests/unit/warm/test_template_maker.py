"""When a template counts as ready, and when one is made in the background."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, cast

import pytest
from quicksand.base.errors import MachineError
from quicksand.base.files import try_lock
from quicksand.base.paths import Paths
from quicksand.guest.agent.session import Session
from quicksand.records.config import SandboxConfig
from quicksand.warm import template_maker, templates
from quicksand.warm.template_maker import READY, WARM, _wait_until_ready, _warm_up
from quicksand.warm.templates import UNFIT_FOR_S, TemplateOrder, Templates, make_in_background

from tests.conftest import blank_record
from tests.each import each


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


@each(
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


@each(
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


@pytest.fixture
def machine(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Templates, list[Any]]:
    """A machine of which there is no template yet, and what was ordered of it."""
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("QUICKSAND_TEMPLATES", "on")
    ordered: list[Any] = []

    async def run_later(maker: str, order: object) -> None:
        ordered.append(order)

    monkeypatch.setattr(templates, "run_later", run_later)
    found = object.__new__(Templates)
    found.root, found.key, found.refusal = tmp_path, "0" * 32, ""
    found.record = blank_record(SandboxConfig.parse({"image": "debian"}))
    return found, ordered


async def test_one_process_waits_until_a_template_can_be_made(
    machine: tuple[Templates, list[Any]],
) -> None:
    found, ordered = machine
    await make_in_background(found, beside=os.getpid())
    assert [order["waiting"] for order in ordered] == [str(found.waiting)]
    lock = try_lock(found.waiting)
    assert lock is not None
    await make_in_background(found, beside=os.getpid())
    assert len(ordered) == 1
    # Nor does a second one wait that was ordered at the same time.
    await template_maker._fulfil(TemplateOrder.from_json(ordered[0]))
    os.close(lock)
    await make_in_background(found, beside=os.getpid())
    assert len(ordered) == 2


async def test_of_a_guest_that_was_unfit_none_is_made_in_the_background_for_hours(
    machine: tuple[Templates, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, ordered = machine
    found.note_unfit()
    await make_in_background(found, beside=os.getpid())
    assert ordered == []
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + UNFIT_FOR_S + 1)
    await make_in_background(found, beside=os.getpid())
    assert len(ordered) == 1

"""A start waits for the desktop of a guest that has booted."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quicksand.base.errors import AgentUnreachableError, QemuDiedError
from quicksand.base.progress import COLD, BootTiming
from quicksand.qemu.process import StartedMachine
from quicksand.warm.template_maker import READY, with_desktop

from tests.each import each


@dataclass
class Guest:
    """Answers READY with this, or raises it."""

    reply: Any = field(default_factory=lambda: {"exit_code": 0})
    asked: list[str] = field(default_factory=list)

    async def session(self) -> Guest:
        return self

    async def request(self, method: str, params: dict[str, Any], *, timeout: float) -> Any:
        self.asked.append(params["command"])
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def machine(guest: Guest, *, display: bool = True, mode: str = COLD) -> StartedMachine:
    config = SimpleNamespace(enable_display=display)
    some: dict[str, Any] = {
        "record": SimpleNamespace(config=config),
        "run": None,
        "process": None,
        "image": None,
        "link": cast("Any", guest),
    }
    return StartedMachine(timing=BootTiming(mode=mode), notices=("before",), **some)


async def test_it_is_waited_for_and_told() -> None:
    guest, stages = Guest(), []
    found = await with_desktop(
        machine(guest), lambda stage, done, total: stages.append((stage, done, total))
    )
    assert guest.asked == [f"[ ! -x {READY} ] || exec {READY}"]
    assert stages == [("desktop", 5, 6)]
    assert found.notices == ("before",)
    assert found.timing.post_boot_s > 0


@each(("display", "mode"), [(False, COLD), (True, "template"), (True, "checkpoint")])
async def test_others_do_not_wait(display: bool, mode: str) -> None:
    guest, stages = Guest(), []
    before = machine(guest, display=display, mode=mode)
    assert await with_desktop(before, lambda *stage: stages.append(stage)) is before
    assert (guest.asked, stages) == ([], [])


@each(
    ("reply", "why"),
    [
        ({"exit_code": 124, "timed_out": True}, "the desktop was not there after 7 s"),
        ({"exit_code": 3}, "ended with 3"),
        (AgentUnreachableError("it hangs"), "cannot be asked whether its desktop is there"),
    ],
)
async def test_a_sandbox_without_its_desktop_can_be_used(reply: Any, why: str) -> None:
    found = await with_desktop(machine(Guest(reply)), limit_s=7)
    assert found.notices[0] == "before"
    assert why in found.notices[1]


async def test_a_machine_that_ends_is_an_error() -> None:
    with pytest.raises(QemuDiedError):
        await with_desktop(machine(Guest(QemuDiedError("it has ended"))))

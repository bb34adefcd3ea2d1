"""Has the engine carry out verbs as jobs of the app do."""

from __future__ import annotations

from typing import Any, TypeVar

from quicksand_tui.actions.all_actions import default_keymap
from quicksand_tui.door.service import EngineService
from quicksand_tui.model.specs import Told
from quicksand_tui.verbs.call import Call, Report, ignore

T = TypeVar("T")


async def carry_out(
    service: EngineService, verb: Call[T], sandbox_id: str = "", report: Report = ignore
) -> T:
    return await service.carry_out(verb, sandbox_id, report)


async def told_of(
    service: EngineService, verb: Call[Any], sandbox_id: str = "", report: Report = ignore
) -> Told:
    """Carries out a verb, and returns what is told of it."""
    result = await carry_out(service, verb, sandbox_id, report)
    told = verb.tell("", result, default_keymap())
    assert isinstance(told, Told)
    return told

"""The form that chooses old saves, and tells how much that is while it is filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from quicksand_tui.forms.form import Field, Form, Values
from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.saves import freed_together
from quicksand_tui.verbs.commands import command_line

if TYPE_CHECKING:
    from quicksand_tui.model.saves import SaveView
    from quicksand_tui.model.world import World

DAY_S = 86400
DIGITS_MAX = 6


def prune_form() -> Form:
    return Form(
        title="Prune old saves",
        does="shows what would go",
        button="Show them",
        fields=(
            Field(id="older", label="Older than", hint="days; optional", limit=DIGITS_MAX),
            Field(id="keep", label="Keep", hint="the newest N; optional", limit=DIGITS_MAX),
        ),
        command=prune_command,
        problems=_problems,
        remarks=lambda values, world: {"keep": _remark(values, world)},
        shows_saves=True,
    )


def prune_command(values: Values) -> str:
    """Returns the command that does the same, without a question."""
    return command_line("saves prune", older_than=values["older"], keep=values["keep"])


def chosen_of(values: Values, world: World) -> tuple[SaveView, ...]:
    """Returns the saves that the form chooses, the oldest first: those that are not among the
    newest to keep, and old enough. Those that cannot be read stay, and those that others need."""
    usable = [save for save in world.saves.saves if save.created is not None and not save.problems]
    ordered = sorted(usable, key=lambda save: (save.created or 0.0, save.name), reverse=True)
    old = [save for save in ordered[int(values["keep"] or 0) :] if not save.above]
    if values["older"]:
        least = int(values["older"]) * DAY_S
        old = [save for save in old if world.taken - (save.created or 0.0) > least]
    return tuple(old[::-1])


def _problems(values: Values, world: World) -> Mapping[str, str]:
    for name in ("older", "keep"):
        if values[name] and not (values[name].isascii() and values[name].isdigit()):
            return {name: "a whole number"}
    if not values["older"] and not values["keep"]:
        return {"older": "say which may go: the days, how many to keep, or both"}
    if world.saves.loaded and not chosen_of(values, world):
        return {"keep": "no save is so old"}
    return {}


def _remark(values: Values, world: World) -> str:
    if _problems(values, world):
        return ""
    found = chosen_of(values, world)
    count = "1 save" if len(found) == 1 else f"{len(found)} saves"
    return f"{count}, {size_text(freed_together(found))}"

"""The form that chooses old saves, and shows their number and size while it is filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from quicksand.things.save import freed_together

from quicksand_tui.forms.form_fields import Field, Form, Values
from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.world import MachineState
from quicksand_tui.verbs.shown_commands import command_words, shown_command

if TYPE_CHECKING:
    from quicksand.things.save import SaveFacts

    from quicksand_tui.model.world import World

DAY_S = 86400
DIGITS_MAX = 6


def prune_form(host: str = "") -> Form:
    """Makes the form for the saves of a machine."""
    return Form(
        title=f"Prune old saves of {host}" if host else "Prune old saves",
        does="shows what would go",
        button="Show them",
        fields=(
            Field(id="older", label="Older than", hint="days; optional", limit=DIGITS_MAX),
            Field(id="keep", label="Keep", hint="the newest N; optional", limit=DIGITS_MAX),
        ),
        command=lambda values: prune_command(values, host),
        problems=lambda values, world: _problems(values, world, host),
        remarks=lambda values, world: {"keep": _remark(values, world, host)},
        shows_saves=True,
    )


def prune_command(values: Values, host: str = "") -> str:
    """Returns the command that does the same on a machine, without a question."""
    words = command_words("saves prune", older_than=values["older"], keep=values["keep"])
    return shown_command(words, host)


def chosen_of(values: Values, world: World, host: str = "") -> tuple[SaveFacts, ...]:
    """Returns the saves of a machine that the form chooses, the oldest first: those that are not
    among the newest to keep, and old enough. Unreadable saves stay, and those that others need."""
    saves = [save for save in world.saves.saves if save.host == host]
    usable = [save for save in saves if save.created and not save.problems]
    ordered = sorted(usable, key=lambda save: (save.created, save.name), reverse=True)
    old = [save for save in ordered[int(values["keep"] or 0) :] if not save.above]
    if values["older"]:
        least = int(values["older"]) * DAY_S
        old = [save for save in old if world.taken - save.created > least]
    return tuple(old[::-1])


def _problems(values: Values, world: World, host: str) -> Mapping[str, str]:
    for name in ("older", "keep"):
        if values[name] and not (values[name].isascii() and values[name].isdigit()):
            return {name: "a whole number"}
    if not values["older"] and not values["keep"]:
        return {"older": "say which may go: the days, how many to keep, or both"}
    machine = world.machine(host)
    if machine is not None and machine.state is not MachineState.THERE:
        return {"keep": f"{host} cannot be reached now"}
    if world.saves.of(host).loaded and not chosen_of(values, world, host):
        return {"keep": "no save is so old"}
    return {}


def _remark(values: Values, world: World, host: str) -> str:
    if _problems(values, world, host):
        return ""
    found = chosen_of(values, world, host)
    count = "1 save" if len(found) == 1 else f"{len(found)} saves"
    return f"{count}, {size_text(freed_together(found))}"

"""The form of a new sandbox where there are other machines: it asks for the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand_tui.forms.form_fields import Field, Form, Option, Values
from quicksand_tui.forms.origins import FILE
from quicksand_tui.model.world import HERE, MachineState, MachineView
from quicksand_tui.views.machine_groups import name_of

if TYPE_CHECKING:
    from quicksand_tui.model.specs import NewSpec
    from quicksand_tui.model.world import World

HOST = "on_host"
"""The id of the field; its value is the name of the machine, "" for this one."""
THERE = "directories and ports are its own"
"""The note of another machine."""


def with_machine(
    form: Form,
    spec_of: Callable[[Values], NewSpec],
    command_of: Callable[[NewSpec], str],
    world: World,
    chosen: str,
) -> tuple[Form, Callable[[Values], NewSpec]]:
    """Returns the form with a field for the machine, with ``chosen`` at first, and a function that
    makes a spec of its values. All else in the form is about the chosen machine then."""

    def spec_there(values: Values) -> NewSpec:
        return replace(spec_of(values), host=values[HOST])

    def react(was: Values, now: Values) -> Mapping[str, str]:
        if was[HOST] == now[HOST]:
            return form.react(was, now)
        begin = _field(form, "begin")
        assert begin.options is not None
        there = [one.value for one in _origins(begin, world, now)]
        if now["begin"] in there or not there:
            return {}
        changed = {"begin": there[0]}
        return {**changed, **form.react(was, {**now, **changed})}

    def problems(values: Values, now: World) -> Mapping[str, str]:
        machine = now.machine(values[HOST])
        if machine is not None and machine.state is not MachineState.THERE:
            return {HOST: f"{machine.name} cannot be reached now"}
        return form.problems(values, now.at(values[HOST]))

    def remarks(values: Values, now: World) -> Mapping[str, str]:
        return form.remarks(values, now.at(values[HOST]))

    look = form.look
    asking = Field(
        id=HOST,
        label="Machine",
        value=chosen,
        options=lambda now, _: tuple(map(_option, (HERE, *now.machines))),
    )
    whole = replace(
        form,
        fields=(asking, *(_about_machine(field) for field in form.fields)),
        command=lambda values: command_of(spec_there(values)),
        problems=problems,
        remarks=remarks,
        react=react,
        look=None if look is None else lambda values: {} if values[HOST] else look(values),
    )
    return whole, spec_there


def _option(machine: MachineView) -> Option:
    return Option(value=machine.name, label=name_of(machine), note=THERE if machine.name else "")


def _field(form: Form, name: str) -> Field:
    return next(field for field in form.fields if field.id == name)


def _origins(begin: Field, world: World, values: Values) -> tuple[Option, ...]:
    """Returns the origins for a sandbox on the chosen machine: a file must be on this one."""
    assert begin.options is not None
    found = begin.options(world.at(values[HOST]), values)
    return tuple(one for one in found if not values[HOST] or one.value != FILE)


def _about_machine(field: Field) -> Field:
    """Returns a field that knows only of the chosen machine."""
    suggest, options = field.suggest, field.options
    if suggest is not None:
        inner = suggest
        field = replace(field, suggest=lambda now, values: inner(now.at(values[HOST]), values))
    if options is not None:
        if field.id == "begin":
            begin = field
            return replace(field, options=lambda now, values: _origins(begin, now, values))
        given = options
        field = replace(field, options=lambda now, values: given(now.at(values[HOST]), values))
    return field

"""The forms of verbs, made from their parameters, and the calls made from typed words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quicksand_tui.forms.field_checks import (
    find_save_name_problem,
    find_tag_problem,
    suggest_save_name,
)
from quicksand_tui.forms.form_fields import Field, Form, Option, Values
from quicksand_tui.forms.mount_form import find_mount_problem, read_spec
from quicksand_tui.forms.port_forms import find_forward_problem
from quicksand_tui.model.text import TITLE_CELLS, clip
from quicksand_tui.verbs.verb import Kind

if TYPE_CHECKING:
    from quicksand_tui.forms.form_fields import Suggest
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.world import World
    from quicksand_tui.verbs.call import Call
    from quicksand_tui.verbs.verb import AnyVerb, Parameter

NO, YES = "no", "yes"


def form_of(
    verb: AnyVerb,
    sandbox: SandboxView,
    *,
    given: Mapping[str, object] | None = None,
    first: Mapping[str, str] | None = None,
    about: str = "",
) -> Form:
    """Makes the form that asks for the parameters of a verb. ``given`` are the values of others,
    ``first`` the texts of fields at first, and ``about`` names the thing it is about if that is not
    the sandbox."""
    assert verb.form is not None, f"{verb} has no form"
    asked = [one for one in verb.asked if one.asked and (not one.asked.of or one.asked.of(sandbox))]

    def problems(values: Values, now: World) -> Mapping[str, str]:
        there = now.sandbox(sandbox.id) or sandbox
        found = {one.name: find_problem(one, values[one.name], there, now) for one in asked}
        return {name: problem for name, problem in found.items() if problem}

    return Form(
        title=verb.form.title.format(clip(about or sandbox.name, TITLE_CELLS)),
        does=verb.form.does,
        button=verb.form.button,
        fields=tuple(_field(one, first or {}, sandbox) for one in asked),
        command=lambda values: call_of(verb, values, given).command_for(sandbox.name),
        problems=problems,
        remarks=lambda values, _: {one.name: _remark(one, values[one.name]) for one in asked},
        shows_saves=any(one.kind is Kind.NEW_SAVE for one in asked),
    )


def call_of(verb: AnyVerb, values: Values, given: Mapping[str, object] | None = None) -> Call[Any]:
    """Returns the call of a verb with typed values, by the names of its parameters, and with the
    other values that are ``given``."""
    typed = {name: read_value(verb.parameter(name), text) for name, text in values.items()}
    call: Call[Any] = verb(**typed, **(given or {}))
    return call


def read_value(parameter: Parameter, text: str) -> Any:
    """Returns the typed value; an empty text, or one that is no number, counts as not typed. Raises
    ConfigError for a text that is no mount."""
    if parameter.kind is Kind.FLAG:
        return text == YES
    if parameter.kind is Kind.COUNT:
        return int(text) if text.isascii() and text.isdigit() else parameter.default
    if not text:
        return "" if parameter.required else parameter.default
    if parameter.kind is Kind.MOUNT:
        return read_spec(text)
    return [text] if parameter.repeatable else text


def find_problem(parameter: Parameter, text: str, sandbox: SandboxView, world: World) -> str:
    """Returns the problem of a typed value of a verb on a sandbox that is seen without a look at
    the host; "" if there is none."""
    match parameter.kind:
        case Kind.COUNT:
            return _find_count_problem(parameter, text)
        case Kind.NEW_TAG:
            return find_tag_problem(text, sandbox.tree)
        case Kind.NEW_SAVE:
            return find_save_name_problem(text, world.at(sandbox.host))
        case Kind.MOUNT:
            return find_mount_problem(text, sandbox)
        case Kind.FORWARD:
            return find_forward_problem(text, world)
    return ""


def _find_count_problem(parameter: Parameter, text: str) -> str:
    least, most = int(parameter.least or 0), parameter.limit
    if text.isascii() and text.isdigit():
        count = int(text[:6])
        if least <= count and (most is None or count <= most):
            return ""
    return f"a number from {least} to {most}"


def _field(parameter: Parameter, first: Mapping[str, str], sandbox: SandboxView) -> Field:
    asked = parameter.asked
    assert asked is not None
    options = tuple(Option(value=v, label=label, note=note) for v, label, note in asked.choices)
    is_flag = parameter.kind is Kind.FLAG
    default = NO if is_flag else str(parameter.default or "")
    return Field(
        id=parameter.name,
        label=asked.label,
        value=first.get(parameter.name, default),
        hint=asked.hint,
        limit=asked.limit() if callable(asked.limit) else asked.limit,
        choices=(NO, YES) if is_flag else (),
        options=(lambda world, values: options) if options else None,
        suggest=_suggesting(sandbox) if parameter.kind is Kind.NEW_SAVE else None,
    )


def _suggesting(sandbox: SandboxView) -> Suggest:
    return lambda now, _: suggest_save_name(sandbox.short_name, now.at(sandbox.host))


def _remark(parameter: Parameter, text: str) -> str:
    assert parameter.asked is not None
    return parameter.asked.remarks[text == YES]

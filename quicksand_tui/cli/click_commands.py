"""Makes click's commands of verbs (`quicksand_tui.verbs`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from quicksand_tui.cli.completing import completer_of
from quicksand_tui.cli.options import parse_env
from quicksand_tui.verbs.index import find_verb
from quicksand_tui.verbs.verb import AnyVerb, Kind, Parameter

TYPES: Mapping[Kind, Callable[[Parameter], click.ParamType[Any]]] = {
    Kind.FILE: lambda _: click.Path(dir_okay=False, path_type=Path),
    Kind.OWN_FILE: lambda _: click.Path(dir_okay=False, path_type=Path),
    Kind.STREAM: lambda _: click.Path(allow_dash=True),
    Kind.DIRECTORY: lambda _: click.Path(file_okay=False, path_type=Path),
    Kind.COUNT: lambda found: (
        click.INT if found.least is None else click.IntRange(int(found.least), found.limit)
    ),
    Kind.NUMBER: lambda found: click.FloatRange(found.least, min_open=found.above_least),
    Kind.CHOICE: lambda found: click.Choice(found.all_choices),
    Kind.ARGV: lambda _: click.UNPROCESSED,
}
CALLBACKS = {Kind.ENV: parse_env}

_made: dict[str, click.Command] = {}
"""The commands that are functions, by the names of their verbs, as far as their modules are
imported. A verb and its parts are in one module."""


def command_of(
    name: str, *, with_negatives: bool = False
) -> Callable[[Callable[..., Any]], click.Command]:
    """Makes a function the command of the verb ``name``, with its docstring as the help, unless the
    verb has one. ``with_negatives`` gives it words that begin with - and are no options; it refuses
    those that are no numbers itself.

    The function gets the verb's parameters by their names. Options that click's decorators add
    below this one take the place of the parameter of `Kind.MACHINE`. Raises LookupError for a verb
    that does not exist.
    """
    verb = find_verb(name)

    def make(function: Callable[..., Any]) -> click.Command:
        made = make_command(verb, function, function.__doc__ or verb.help)
        made.ignore_unknown_options = with_negatives
        _made[name] = made
        return made

    return make


def make_command(verb: AnyVerb, function: Callable[..., Any], text: str) -> click.Command:
    """Makes a command that calls a function with the typed values; ``text`` is its help."""
    below: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", [])))
    function.__dict__.pop("__click_params__", None)
    params: list[click.Parameter] = []
    for found in verb.parameters:
        params += below if found.kind is Kind.MACHINE else [to_click(found)]
    return _class_of(verb)(
        verb.name.rpartition(" ")[2],
        params=params,
        callback=function,
        help=text,
        context_settings={"allow_interspersed_args": False} if verb.takes_rest else {},
    )


def load(verb: AnyVerb) -> click.Command:
    """Returns the command of a verb, and imports its module."""
    first = find_verb(verb.name.partition(" ")[0])
    if first.module:
        import_module(first.module, "quicksand_tui.cli")
    if (made := _made.get(verb.name)) is not None:
        return made
    from quicksand_tui.cli.carrying import carry_out  # noqa: PLC0415

    return make_command(verb, lambda **given: carry_out(verb, given), verb.help)


def is_carried(verb: AnyVerb) -> bool:
    """Returns whether the command of a verb, which is loaded, is that of `cli.carrying`."""
    return verb.name not in _made


def to_click(found: Parameter) -> click.Parameter:
    """Makes an argument or an option of click from the record of a parameter."""
    given: dict[str, Any] = {}
    if found.default is not None or found.kind is Kind.SWITCH:
        given["default"] = found.default
    if (make_type := TYPES.get(found.kind)) is not None:
        given["type"] = make_type(found)
    if (callback := CALLBACKS.get(found.kind)) is not None:
        given["callback"] = callback
    given["metavar"] = found.metavar or None
    given["shell_complete"] = completer_of(found.kind, found.completer)
    if not found.flags:
        nargs = -1 if found.repeatable else 1
        return click.Argument([found.name], required=found.required, nargs=nargs, **given)
    if found.is_flag:
        given["is_flag"] = True
    if found.shows_default:
        given["show_default"] = True
    if found.required:
        given["required"] = True
    names = [found.name, *found.flags]
    return click.Option(names, help=found.help_text, multiple=found.repeatable, **given)


def _class_of(verb: AnyVerb) -> Callable[..., click.Command]:
    if not verb.parts:
        return click.Command
    return _Group if verb.subject is None else _CommandWithParts


class _Group(click.Group):
    """A verb without a subject that does something by itself, and other things with a second word:
    ``images``, ``images rm``."""

    def __init__(self, name: str, **more: Any) -> None:
        super().__init__(name, invoke_without_command=True, **more)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_parts_of(self))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return part_of(self, cmd_name)


class _CommandWithParts(click.Command):
    """A verb whose first word is either the name of a part, as in ``checkpoint rm NAME``, or its
    first argument, as in ``checkpoint NAME``."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args and (part := part_of(self, args[0])) is not None:
            return part.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def part_of(command: click.Command, word: str) -> click.Command | None:
    """Returns the command of a verb's part, by its second word; None if there is none."""
    part = _parts_of(command).get(word)
    return load(part) if part is not None else None


def _parts_of(command: click.Command) -> dict[str, AnyVerb]:
    """Returns a verb's parts by their second words."""
    assert command.name is not None
    return {part.name.rpartition(" ")[2]: part for part in find_verb(command.name).parts}

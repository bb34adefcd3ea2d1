"""Each verb is said once: command, `:` line and shown command are those of its record."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import string
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from hypothesis import given, settings
from hypothesis import strategies as st

import quicksand_tui
from quicksand_tui.actions.all_actions import ACTIONS, Scope
from quicksand_tui.actions.line import MORE, SANDBOX, verbs_of
from quicksand_tui.cli.carrying import EVERYTHING
from quicksand_tui.cli.click_commands import cli, load
from quicksand_tui.verbs.call import AS_JSON, command_line
from quicksand_tui.verbs.index import all_verbs, find_verb
from quicksand_tui.verbs.verb import AnyVerb, Kind, Parameter
from tests.conftest import examples
from tests.each import each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(quicksand_tui.__file__).parent
ALL = [found for verb in all_verbs() for found in verb.walk()]
OF_ALL = {AS_JSON, EVERYTHING}
"""Parameters that mean the same for all commands that have no function of their own."""
FROM_ELSEWHERE = (Kind.MACHINE,)
"""Stand for options that are made of the records of machine options."""


def command_of(record: AnyVerb) -> click.Command:
    return parse(record, ["--help"]).command


def parse(record: AnyVerb, words: list[str]) -> click.Context:
    """What click makes of the words behind a verb; nothing is done."""
    verb, *part = record.name.split()
    command = load(find_verb(verb))
    if isinstance(command, click.Group) and part:
        found = command.get_command(click.Context(command), part[0])
        assert found is not None
        return found.make_context(record.name, words, resilient_parsing="--help" in words)
    return command.make_context(verb, [*part, *words], resilient_parsing="--help" in words)


@each("record", ALL, ids=lambda record: record.name)
def test_a_command_takes_what_its_record_says_and_nothing_else(record: AnyVerb) -> None:
    command = command_of(record)
    expected = [found for found in record.parameters if found.kind not in FROM_ELSEWHERE]
    params = {str(found.name): found for found in command.params}
    for found in expected:
        param = params.pop(found.name)
        flags = [*param.opts, *param.secondary_opts] if found.flags else []
        assert flags == [flag for flags in found.flags for flag in flags.split("/")]
        assert (param.nargs == -1) == (found.repeatable and not found.flags)
        assert param.multiple == (found.repeatable and bool(found.flags))
    has_machine = any(found.kind in FROM_ELSEWHERE for found in record.parameters)
    assert bool(params) == has_machine, "options that are in no record"
    assert command.callback is not None
    if find_verb(record.name.split()[0]).module:
        taken = set(inspect.signature(command.callback).parameters) - {"ctx"}
    else:
        assert record.subject is not None
        taken = {*record.taken, record.subject.name, *OF_ALL}
    assert taken - OF_ALL == {found.name for found in record.parameters} - OF_ALL


def test_every_command_has_a_record() -> None:
    known = {id(command_of(record)) for record in ALL} | {id(cli)}
    for path in (ROOT / "cli").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        for name, value in vars(import_module(module.removesuffix(".__init__"))).items():
            assert not isinstance(value, click.Command) or id(value) in known, name


def test_every_action_that_is_a_command_is_one_with_a_record() -> None:
    for action in ACTIONS:
        if action.verb:
            record = action.verb
            for flag in (*action.flags, *action.flags_if_live):
                assert record.parameter(flag).is_flag, action.address
        else:
            assert not action.flags and not action.flags_if_live


def test_the_line_takes_arguments_of_the_command_or_what_is_no_command() -> None:
    for scope in Scope:
        for verb in verbs_of(scope).values():
            action = verb.action
            if action is not None and action.verb:
                record = action.verb
                assert set(verb.arguments) <= set(record.parameters), verb.name
            elif action is not None:
                assert verb.arguments in (action.takes, (SANDBOX,), ())
            else:
                assert not verb.arguments or verb in MORE


TEXT = st.text(alphabet=string.ascii_letters + string.digits + " -'\"$\\*;", min_size=1, max_size=9)


def values_of(found: Parameter) -> st.SearchStrategy[Any]:
    if found.is_flag:
        return st.just(True) if found.kind is Kind.SWITCH else st.booleans()
    match found.kind:
        case Kind.COUNT:
            least = int(found.least or 0)
            return st.integers(least, found.limit or least + 9)
        case Kind.NUMBER:
            return st.floats((found.least or 0) + 0.5, 99).map(lambda number: str(round(number, 2)))
        case Kind.CHOICE:
            return st.sampled_from(found.all_choices)
        case Kind.ENV:
            return st.lists(st.just("K=v"), max_size=2)
    return st.lists(TEXT, min_size=1, max_size=3) if found.repeatable else TEXT


def given_to(record: AnyVerb, draw: Callable[[st.SearchStrategy[Any]], Any]) -> dict[str, Any]:
    """Values of a verb, options anywhere and arguments in their order."""
    found = [one for one in record.parameters if one.kind not in FROM_ELSEWHERE]
    wanted = [one for one in found if one.required or draw(st.booleans())]
    places = iter([one for one in wanted if not one.flags and one.kind is not Kind.ARGV])
    shuffled = draw(st.permutations([one for one in wanted if one.kind is not Kind.ARGV]))
    order = [one if one.flags else next(places) for one in shuffled]
    # What stands behind a command of the guest is its own, so it comes last.
    order += [one for one in wanted if one.kind is Kind.ARGV]
    return {one.name: draw(values_of(one)) for one in order}


@settings(max_examples=examples(1800))
@given(record=st.sampled_from(ALL), data=st.data())
def test_a_shown_command_says_to_click_what_it_was_made_of(
    record: AnyVerb, data: st.DataObject
) -> None:
    given_values = given_to(record, data.draw)
    program, *words = shlex.split(command_line(record.name, **given_values))
    verb = record.name.split()
    assert program == "quicksand-tui" and words[: len(verb)] == verb
    try:
        context = parse(record, words[len(verb) :])
    except click.UsageError as error:
        raise AssertionError(words) from error
    for name, value in given_values.items():
        if record.parameter(name).kind is not Kind.ENV:
            found = context.params[name]
            got = [str(word) for word in found] if isinstance(found, tuple) else str(found)
            assert got == ([*value] if isinstance(value, list) else str(value)), words


def test_a_sandbox_that_is_called_as_a_part_of_the_verb_is_not_taken_for_it() -> None:
    shown = command_line("checkpoint", name="rm", note="a", tag="rm")
    assert shown == "quicksand-tui checkpoint -m a -- rm rm"
    params = parse(find_verb("checkpoint"), shlex.split(shown)[2:]).params
    assert (params["name"], params["tag"]) == ("rm", "rm")


def shown_commands(path: Path) -> Iterator[tuple[str, set[str]]]:
    """The verbs of the commands that a module shows, and the names of the parameters that each
    gets."""
    for node in ast.walk(ast.parse(path.read_text())):
        called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        given = {one.arg: one.value for one in node.keywords} if isinstance(node, ast.Call) else {}
        if called != "command_line" or not isinstance(node, ast.Call):
            continue
        if isinstance(verb := node.args[0], ast.Constant):
            yield str(verb.value), {str(name) for name in given}


def test_every_command_that_is_shown_is_made_of_parameters_of_its_verb() -> None:
    calls = 0
    for path in ROOT.rglob("*.py"):
        for verb, names in shown_commands(path):
            calls += 1
            record = find_verb(verb)
            assert names <= {found.name for found in record.parameters}, record.name
    assert calls > 5


def literals(path: Path) -> Iterator[tuple[bool, str]]:
    """Texts of a module, and whether values are put into them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
            yield True, "{}".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield False, node.value


def test_no_command_of_the_app_is_written_by_hand_and_none_is_told_of_that_is_not_there() -> None:
    told = 0
    for path in ROOT.rglob("*.py"):
        for has_values, text in literals(path):
            for word in re.findall(r"[`$] ?quicksand-tui ([a-z]+)", text):
                told += 1
                assert find_verb(word)
            if path.relative_to(ROOT).parts[0] not in ("cli", "verbs") and has_values:
                assert not re.search(r"quicksand-tui [a-z]+ \{\}", text), path
    assert told > 20


def test_no_line_of_a_list_of_commands_is_cut() -> None:
    top = click.Context(cli)
    cut = []
    for name in cli.list_commands(top):
        command = cli.get_command(top, name)
        if isinstance(command, click.Group):
            below = click.Context(command, parent=top, info_name=name)
            parts = command.list_commands(below)
            room = 80 - 6 - max(map(len, parts))
            for part in parts:
                found = command.get_command(below, part)
                assert found is not None
                if found.get_short_help_str(room).endswith("..."):
                    cut.append(f"{name} {part}")
    assert cut == []

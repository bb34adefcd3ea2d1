"""The commands of verbs that need no function of their own: each turns the typed words into its
verb's call, carries it out in one sandbox or in several at once, and prints the call's output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click
from quicksand.base.errors import QuicksandError, StateError
from quicksand.base.paths import paths
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Entry
from quicksand.sandbox import Sandbox
from quicksand.things.status import HAS_MACHINE, RUNS

from quicksand_tui.cli.output import (
    Exit,
    complain,
    complain_of,
    print_json,
    print_table,
    say,
    say_notices,
    tell,
)
from quicksand_tui.cli.progress_display import Rate, Standing, shown
from quicksand_tui.cli.runner import Signals, attached, chosen_host, opened, run_async
from quicksand_tui.model.text import clean
from quicksand_tui.verbs.call import AS_JSON, Call, Table, UsageError, ignore
from quicksand_tui.verbs.verb import Kind

AT_ONCE = 8
"""The number of sandboxes that are worked on at the same time."""

Work = Callable[[str], Awaitable[None]]


def do_each(names: Sequence[str], work: Work, *, doing: str) -> int:
    """Does ``work`` for every name; prints the names that succeeded and reports the errors of the
    others. Returns the exit code."""
    pending = dict.fromkeys(names)
    failures: list[str] = []
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with gate:
            try:
                await work(name)
            except QuicksandError as error:
                failures.append(name)
                complain_of(name, error)
            else:
                tell(name)
            finally:
                del pending[name]

    def look() -> Standing:
        return Standing(text=f"{doing} {', '.join(pending)[:60]}")

    async def main(signals: Signals) -> int:
        async with shown(look), asyncio.TaskGroup() as group:
            for name in list(pending):
                group.create_task(one(name), name=f"quicksand-{name}")
        return Exit.FAILURE if failures else Exit.OK

    return run_async(main)


def names_of(wanted: Callable[[Entry], bool]) -> list[str]:
    """Returns the names of the sandboxes that are wanted."""
    return [entry.name for entry in Registry(paths()).list() if wanted(entry)]


def names_or_all(names: tuple[str, ...], chosen: bool, option: str, among: list[str]) -> list[str]:
    """Returns the names that were given, or ``among`` if the option was. Raises UsageError unless
    exactly one of both was."""
    if chosen and names:
        raise click.UsageError(f"give names or {option}, not both")
    if not chosen and not names:
        raise click.UsageError(f"name a sandbox, or say {option}")
    return among if chosen else list(names)


if TYPE_CHECKING:
    from quicksand_tui.verbs.verb import AnyVerb, Parameter

EVERYTHING = "everything"
"""The name of the option that stands for the names of all sandboxes that run."""


def carry_out(verb: AnyVerb, given: dict[str, Any]) -> int:
    """Carries a verb out with what was typed, by the names of its parameters; returns the exit
    code. Raises click.UsageError."""
    as_json = given.pop(AS_JSON, False)
    assert verb.subject is not None, "a verb without a subject has a function"
    about = given.pop(verb.subject.name)
    many = next((one for one in verb.parameters[1:] if one.repeatable and not one.flags), None)
    if many is not None:
        return _to_each(verb, about, given, many)
    if verb.subject.repeatable:
        return _in_each(verb, about, given)
    return _in_one(verb, about, _call(verb, given), as_json=as_json)


def _call(verb: AnyVerb, given: dict[str, Any]) -> Call[Any]:
    """Returns what was asked for. Raises click.UsageError."""
    try:
        call: Call[Any] = verb(**given)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    return call


def _in_one(verb: AnyVerb, name: str, call: Call[Any], *, as_json: bool) -> int:
    rate = Rate(f"{name}: {call.stage}")

    async def main(signals: Signals) -> int:
        async with _open(verb, name, call) as sandbox, shown(rate.look):
            result = await call.act(sandbox, rate.take)
        if as_json:
            print_json(call.facts(sandbox.name, result))
        else:
            _print(call, sandbox.name, result)
        return Exit.OK

    return run_async(main)


@asynccontextmanager
async def _open(verb: AnyVerb, name: str, call: Call[Any]) -> AsyncIterator[Sandbox]:
    """Opens a sandbox if it is in one of the states that the verb needs. Raises
    SandboxNotFoundError and StateError."""
    async with chosen_host() as host:
        if host is None and verb.states == RUNS:
            async with attached(name) as sandbox:
                yield sandbox
        elif host is None and verb.states == HAS_MACHINE:
            async with opened(name, hint=verb.hint.format(name)) as sandbox:
                yield sandbox
        else:
            sandbox = call.open(name, ignore, host)
            try:
                await sandbox.look()
                if verb.states == HAS_MACHINE and not sandbox.is_running:
                    raise StateError(
                        f"the sandbox {sandbox.name!r} is not running", hint=verb.hint.format(name)
                    )
                yield sandbox
            finally:
                sandbox.close()


def _print(call: Call[Any], name: str, result: Any) -> None:
    for about, notices in call.notices(name, result):
        say_notices(clean(about), notices)
    lines = call.lines(name, result)
    if isinstance(lines, Table):
        print_table(lines.heads, lines.rows)
    else:
        for line in lines:
            print(line, flush=True)
    for line in call.said(name, result):
        say(line)


def _in_each(verb: AnyVerb, names: tuple[str, ...], given: dict[str, Any]) -> int:
    """Carries a verb out in several sandboxes at once; prints the names of the successes."""
    if (everything := given.pop(EVERYTHING, None)) is not None:
        live = names_of(lambda entry: entry.is_live) if everything else []
        names = tuple(names_or_all(names, everything, "--all", live))
    for one in verb.parameters:
        if one.kind is Kind.CHECKPOINT and given[one.name] is not None and len(names) > 1:
            what = f"{one.shown_flag} goes with one sandbox: each has checkpoints of its own"
            raise click.UsageError(what)
    call = _call(verb, given)

    def warn(sandbox: Sandbox) -> None:
        for line in call.warnings(sandbox):
            say(line)

    async def work(name: str) -> None:
        async with chosen_host() as host:
            result = await call.carry_out(name, opened=warn, host=host)
        _print(call, name, result)

    return do_each(names, work, doing=call.doing)


def _to_each(verb: AnyVerb, name: str, given: dict[str, Any], many: Parameter) -> int:
    """Carries a verb out for each word of a parameter; prints the words with which it succeeded and
    reports the errors of the others."""
    words = dict.fromkeys(given.pop(many.name))

    async def main(signals: Signals) -> int:
        code = Exit.OK
        calls = {word: _call(verb, {**given, many.name: word}) for word in words}
        async with _open(verb, name, next(iter(calls.values()))) as sandbox:
            for word, call in calls.items():
                try:
                    await call.act(sandbox, lambda _: None)
                except QuicksandError as error:
                    code = Exit.FAILURE
                    complain(error)
                else:
                    print(clean(word), flush=True)
        return code

    return run_async(main)

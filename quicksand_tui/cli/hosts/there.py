"""A command line for another machine. What is done to a sandbox or with its files is done from
here, by methods of that machine (`quicksand_tui.cli.runner.chosen_host`); all else is carried out
by the program there (`quicksand.remote.far_program`). Of such a line this end reads which words
name files of this machine, which are sent."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import augment_usage_errors
from quicksand.base.errors import RemoteError
from quicksand.remote.far_program import VALUE_MAX, VARIABLES, FarLine, name_there, run_line

from quicksand_tui.cli.click_commands import (
    SETTINGS,
    explain_usage,
    invoke,
    is_carried,
    load,
    part_of,
)
from quicksand_tui.cli.guests.executing import FdWriter
from quicksand_tui.cli.host_choice import HERE, LOCAL, OPTION, VARIABLE, has_terminal, open_app
from quicksand_tui.cli.hosts.hosts import find_destination
from quicksand_tui.cli.output import PROGRAM, Exit, say
from quicksand_tui.cli.runner import Signals, reached_host, run_async, working_on
from quicksand_tui.cli.ssh.code import open_editor
from quicksand_tui.cli.ssh.ssh_command import run_ssh
from quicksand_tui.verbs.index import find_verb, is_verb
from quicksand_tui.verbs.verb import AnyVerb, Kind, Parameter

if TYPE_CHECKING:
    from quicksand.hosted.remote_host import RemoteHost

    from quicksand_tui.cli.host_choice import Chosen


SSH, CODE, RUN = "ssh", "code", "run"
BY_METHODS = frozenset(
    {
        *("rm", "restore", "saves rm", "saves restore", "saves verify", "saves prune"),
        *("saves rebase", "snapshot", "export", "import", RUN),
    }
)
"""Commands that are functions of their own, and wait for a machine that is away."""
WITH_US = frozenset({"exec", "shell", "cp", "screenshot", "record", "type"})
"""Commands that work from here, too, and end with the connection."""
OF_ALL = ("everything", "all_stopped", "fleet")
"""Options that stand for sandboxes or machines that only that machine knows."""
KEPT_S = 600.0
"""Seconds for which a sandbox that is worked on is kept for us when the connection breaks."""

MOUNTS = "mounts"
"""The keyword of `run`'s option for mounts."""
FAR_PATHS = frozenset({Kind.DIRECTORY, Kind.MOUNT, Kind.OWN_FILE})
"""Parameters that name a directory or a file of the machine that carries the command out."""
MAYBE_FILES = {
    Kind.SOURCE: (".quicksand", ".qcow2"),
    Kind.RECIPE: (".toml",),
    Kind.PACKAGE: (".whl",),
}
"""Parameters that name a file to be sent if the word looks like one: ends so, and is there."""
ARCHIVES = frozenset({("images build", "from_oci"), ("install", "sources")})
"""Commands and their parameters that may name a file of any name, if it is there."""
PATHS = ("./", "../")
"""Beginnings of words for files of this machine."""


class Line(NamedTuple):
    """A command line for another machine."""

    verb: AnyVerb
    argv: tuple[str | Path, ...]
    """The words for that machine; a path is a file that is sent."""
    given: frozenset[str]
    """The names of the parameters that were given."""
    asks_help: bool = False
    """Whether it only asks for the command's help, which is here."""

    @property
    def files(self) -> list[Path]:
        """The files of this machine in it. Raises click.UsageError for two that would have the same
        name at the other machine."""
        found = [word for word in self.argv if isinstance(word, Path)]
        names = [name_there(file) for file in found]
        for name in names:
            if names.count(name) > 1:
                raise click.UsageError(f"two files are called {name!r}: name one in a call")
        return found

    @property
    def words(self) -> list[str]:
        """The words for the other machine, where files are in the working directory."""
        return [f"./{name_there(word)}" if isinstance(word, Path) else word for word in self.argv]

    @property
    def is_from_here(self) -> bool:
        """Whether it is carried out from here, by methods of the machine."""
        is_able = self.verb.name in BY_METHODS | WITH_US or is_carried(self.verb)
        if not is_able or not self.given.isdisjoint(OF_ALL):
            return False
        return self.verb.name != RUN or not self.files


class Given(NamedTuple):
    """A parameter, and the value that the user gave for it."""

    param: click.Parameter
    value: Any

    @property
    def name(self) -> str:
        return self.param.name or ""

    @property
    def words(self) -> list[str]:
        """Its values."""
        return [self.value] if isinstance(self.value, str) else list(self.value)


def read_line(argv: Sequence[str]) -> Line:
    """Reads a command line, which names a command. Raises click.UsageError for a wrong one."""
    command, verb, words, rest = find_command(argv)
    settings = {**SETTINGS, **command.context_settings}
    with click.Context(command, info_name=" ".join((PROGRAM, *words)), **settings) as ctx:
        values, _, order = command.make_parser(ctx).parse_args(args=list(rest))
        given = [
            Given(param, values[param.name])
            for param in dict.fromkeys(order)
            if isinstance(values.get(param.name or ""), str | bool | list | tuple)
        ]
        names = frozenset(one.name for one in given if one.value is not False)
        helping = set(command.get_help_option_names(ctx))
        if any(not helping.isdisjoint(one.param.opts) for one in given):
            return Line(verb, (), names, asks_help=True)
        options: list[str | Path] = []
        arguments: list[str | Path] = []
        for one in given:
            target = options if isinstance(one.param, click.Option) else arguments
            target += _written(ctx, one, verb)
    return Line(verb, (*words, *options, *(["--", *arguments] if arguments else [])), names)


def find_command(argv: Sequence[str]) -> tuple[click.Command, AnyVerb, list[str], Sequence[str]]:
    """Returns the command, its verb, its own words, and the others. Raises click.UsageError."""
    verb = find_verb(argv[0]) if is_verb(argv[0]) else None
    if verb is None:
        raise click.UsageError(f"there is no command {argv[0]!r}")
    command = load(verb)
    if len(argv) > 1 and verb.parts and (part := part_of(command, argv[1])) is not None:
        return part, find_verb(f"{argv[0]} {argv[1]}"), list(argv[:2]), argv[2:]
    return command, verb, [argv[0]], argv[1:]


def _kind(verb: AnyVerb, name: str) -> Kind:
    found: Mapping[str, Parameter] = {one.name: one for one in verb.parameters}
    if name in found:
        return found[name].kind
    return Kind.MOUNT if name == MOUNTS else Kind.TEXT


def _written(ctx: click.Context, given: Given, verb: AnyVerb) -> Iterator[str | Path]:
    """Yields the words of a parameter for the other machine."""
    param = given.param
    kind = _kind(verb, given.name)
    if isinstance(param, click.Option) and param.is_flag:
        yield param.opts[0] if given.value else param.secondary_opts[0]
        return
    for word in given.words:
        if kind in FAR_PATHS and not word.startswith(("/", "~")):
            raise click.BadParameter(
                f"{word!r} would be a directory of the other machine: write its whole path there",
                ctx,
                param,
            )
        if isinstance(param, click.Option):
            yield param.opts[0]
        yield _as_file(word, kind, (verb.name, given.name))


def _as_file(word: str, kind: Kind, what: tuple[str, str]) -> str | Path:
    """Returns a word, or the file of this machine that it names."""
    path = Path(word)
    if kind is Kind.FILE:
        return path
    is_archive = what in ARCHIVES
    may_be_file = is_archive or path.suffix in MAYBE_FILES.get(kind, ())
    if may_be_file and path.is_file():
        return path
    if (is_archive or kind in MAYBE_FILES) and word.startswith(PATHS):
        raise click.UsageError(f"{word!r} is no file that can be sent to the other machine")
    return word


def run_there(chosen: Chosen) -> int:
    """Carries a command line out on another machine; returns the exit code. Raises
    QuicksandError."""
    argv = chosen.argv
    try:
        is_local = chosen.host in ("", LOCAL)
        if is_local or not argv or argv[0].startswith("-"):
            return invoke(argv) if is_local else _open_app(chosen)
        if argv[0] in HERE:
            raise click.UsageError(f"{argv[0]} is about this machine: leave {OPTION} out")
        if argv[0] in (SSH, CODE):
            return _from_this_machine(chosen.host, argv)
        line = read_line(argv)
        if line.asks_help:
            return invoke(argv)
        if line.is_from_here:
            return _from_here(chosen.host, line, argv)
        return _by_that_program(chosen.host, line)
    except click.ClickException as error:
        return explain_usage(error, argv)


def _open_app(chosen: Chosen) -> int:
    """Opens the app on another machine; returns the exit code. Raises ConfigError, and
    click.UsageError without a terminal."""
    find_destination(chosen.host)
    if not chosen.argv and not has_terminal():
        raise click.UsageError(f"without a terminal, {OPTION} is for a command: ps, for example")
    os.environ[VARIABLE] = chosen.host  # where the app looks for it
    return open_app() if not chosen.argv else invoke(chosen.argv)


def _from_this_machine(host: str, argv: Sequence[str]) -> int:
    """Runs `ssh` or `code`, whose programs and files are those of this machine. Raises
    click.UsageError, QuicksandError."""
    command = load(find_verb(argv[0]))
    with command.make_context(f"{PROGRAM} {argv[0]}", list(argv[1:])) as ctx:
        if argv[0] == SSH:
            return run_ssh(**ctx.params, machine=host)
        return open_editor(**ctx.params, machine=host)


def _from_here(host: str, line: Line, argv: Sequence[str]) -> int:
    """Carries a command out from here, by methods of the machine; returns the exit code. Raises
    click.UsageError, QuicksandError."""
    command, verb, words, rest = find_command(argv)
    destination = find_destination(host)
    ends_with_us = verb.name in WITH_US
    is_told = ends_with_us

    def tell_away(error: RemoteError) -> None:
        nonlocal is_told
        if not is_told:
            say(f"quicksand-tui: {error}; it goes on there, connecting again")
        is_told = True

    @contextlib.asynccontextmanager
    async def reach() -> AsyncIterator[RemoteHost]:
        async with reached_host(destination, asks=_may_ask(), on_away=tell_away) as found:
            if ends_with_us:
                found.grace = 0
            elif verb.name != RUN or "detach" in line.given:
                found.grace = KEPT_S
            yield found

    with (
        command.make_context(" ".join((PROGRAM, *words)), list(rest)) as ctx,
        augment_usage_errors(ctx),
        working_on(reach),
    ):
        code = command.invoke(ctx)
    return code if isinstance(code, int) else Exit.OK


def _by_that_program(host: str, line: Line) -> int:
    """Has a command carried out by the program there; returns the exit code. Raises
    click.UsageError, QuicksandError."""
    if "env" in line.given:
        raise click.UsageError("-e is not for a file of this machine: import it there first")
    files = line.files
    destination = find_destination(host)
    streams = (sys.stdin, sys.stdout, sys.stderr)
    asked = FarLine(argv=line.words, env=_terminal_env())
    if not files and all(stream.isatty() for stream in streams):
        asked = replace(asked, mark="")

    async def main(signals: Signals) -> int:
        out = FdWriter(sys.stdout.fileno())
        code = await run_line(
            destination,
            asked,
            files,
            asks=_may_ask(),
            changes=not line.verb.only_reads(line.given),
            passed_on=signals.passed_on,
            write=out.write,
        )
        await out.close()
        return code

    return run_async(main)


def _may_ask() -> bool:
    """Returns whether ssh may ask for a passphrase."""
    return sys.stdin.isatty() or sys.stderr.isatty()


def _terminal_env() -> dict[str, str]:
    """Returns the variables that say how our terminal shows text."""
    return {
        name: value[:VALUE_MAX]
        for name, value in os.environ.items()
        if VARIABLES.fullmatch(name) and value.isprintable()
    }

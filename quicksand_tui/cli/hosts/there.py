"""Carries a command line out on another machine: by its methods, or by quicksand-tui there with our
streams or our terminal. The line is read first, for its files and directories, and its need of our
streams: only this end knows which words are about this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import augment_usage_errors
from quicksand.base.errors import PathError, RemoteError
from quicksand.guest.agent.wire import Stream
from quicksand.guest.guest_files import GuestFiles
from quicksand.remote.agents import agent_session
from quicksand.remote.asking import AskedCommand, CommandLine
from quicksand.remote.connection import Connection
from quicksand.remote.destination import Destination, NodeDestination
from quicksand.remote.sending import fetch_file, make_place, require_replaceable, send_file

from quicksand_tui.cli.click_commands import (
    SETTINGS,
    explain_usage,
    invoke,
    is_carried,
    load,
    parse_env,
    part_of,
)
from quicksand_tui.cli.guests.executing import FdReader, FdWriter, same_file
from quicksand_tui.cli.host_choice import HERE, LOCAL, OPTION, VARIABLE, has_terminal, open_app
from quicksand_tui.cli.hosts.hosts import find_destination
from quicksand_tui.cli.hosts.sandbox_there import reached_host
from quicksand_tui.cli.output import PROGRAM, Exit, complain, say
from quicksand_tui.cli.runner import Signals, run_async, working_on
from quicksand_tui.verbs.index import find_verb, is_verb
from quicksand_tui.verbs.verb import AnyVerb, Kind, Parameter

if TYPE_CHECKING:
    from quicksand.guest.agent.session import Session
    from quicksand.hosted.remote_host import RemoteHost

    from quicksand_tui.cli.host_choice import Chosen


WITH_US = frozenset(
    {"run", "exec", "shell", "ssh", "ssh-gateway", "view", "record", "demo", "benchmark"}
)
"""Commands that are meant to end with a connection, as with a terminal that is closed."""

DETACH = "detach"
MOUNTS = "mounts"
"""The keyword of `run`'s option for mounts."""

STREAM = "-"
FAR_PATHS = frozenset({Kind.DIRECTORY, Kind.MOUNT, Kind.OWN_FILE})
"""Parameters that name a directory or a file of the machine that carries the command out."""


WRITTEN = frozenset(
    {("screenshot", "file"), ("record", "file"), ("snapshot", "file"), ("export", "file")}
)
"""Commands and their parameters that name a file to be written; it is fetched."""
PICTURES = frozenset({("screenshot", "file"), ("record", "file")})
"""Those of them that others may read, as here; the others hold contents of a sandbox's disk."""
READ = frozenset({("import", "file"), ("info", "file"), ("ssh-gateway", "keys")})
"""Commands and their parameters that name a file to be read; it is sent."""
FILES = frozenset({Kind.FILE, Kind.STREAM})
MAYBE_FILES = {
    Kind.SOURCE: (".quicksand", ".qcow2"),
    Kind.RECIPE: (".toml",),
    Kind.PACKAGE: (".whl",),
}
"""Parameters that name a file to be read if the word looks like one: ends so, and is there."""
ARCHIVES = frozenset({("images build", "from_oci"), ("install", "sources")})
"""Commands and their parameters that may name a file of any name, if it is there."""
PATHS = ("./", "../")
"""Beginnings of words for files of this machine."""


class LocalFile(NamedTuple):
    """A word that names a file of this machine."""

    word: str
    """The word as it was written."""
    is_written: bool
    mode: int = 0o600
    """The permissions of a file that is written."""

    @property
    def path(self) -> Path:
        return Path(self.word)

    @property
    def name(self) -> str:
        """Its name at the other machine."""
        name = self.path.name
        return (
            name if name.isprintable() and not name.startswith("-") else f"file{self.path.suffix}"
        )


class Line(NamedTuple):
    """A command line for another machine."""

    argv: tuple[str | LocalFile, ...]
    stdin: bool
    """Whether it reads its stdin without being asked to by a terminal."""
    changes: bool
    """Whether a break of the connection leaves it unknown what was done."""
    in_guest: bool
    """Whether its exit code is that of a command in a guest."""
    values: Mapping[str, str]
    """The values of the variables that are passed on by their names."""
    asks_help: bool = False
    """Whether it only asks for the command's help, which is here."""


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
    command, record, words, rest = find_command(argv)
    settings = {**SETTINGS, **command.context_settings}
    with click.Context(command, info_name=" ".join(("quicksand-tui", *words)), **settings) as ctx:
        values, _, order = command.make_parser(ctx).parse_args(args=list(rest))
        given = [
            Given(param, values[param.name])
            for param in dict.fromkeys(order)
            if isinstance(values.get(param.name or ""), str | bool | list | tuple)
        ]
        helping = set(command.get_help_option_names(ctx))
        options: list[str | LocalFile] = []
        arguments: list[str | LocalFile] = []
        for one in given:
            if not helping.isdisjoint(one.param.opts):
                return Line(
                    (), stdin=False, changes=False, in_guest=False, values={}, asks_help=True
                )
            target = options if isinstance(one.param, click.Option) else arguments
            target += _written(ctx, one, record)
    replaces = any(one.name == "replace" for one in given)
    if any(found.name == "replace" for found in record.parameters) and not replaces:
        _require_new([*options, *arguments])
    names = {one.name for one in given}
    stdin = "interactive" in names or _reads_stdin(given, record)
    return Line(
        argv=(*words, *options, *(["--", *arguments] if arguments else [])),
        stdin=stdin,
        changes=not (record.only_reads(names) or (record.name in WITH_US and DETACH not in names)),
        in_guest=record.name in ("run", "exec", "shell"),
        values=_values(given, record),
    )


def find_command(argv: Sequence[str]) -> tuple[click.Command, AnyVerb, list[str], Sequence[str]]:
    """Returns the command, its record, its own words, and the others. Raises click.UsageError."""
    record = find_verb(argv[0]) if is_verb(argv[0]) else None
    if record is None:
        raise click.UsageError(f"there is no command {argv[0]!r}")
    command = load(record)
    if len(argv) > 1 and record.parts and (part := part_of(command, argv[1])) is not None:
        return part, find_verb(f"{argv[0]} {argv[1]}"), list(argv[:2]), argv[2:]
    return command, record, [argv[0]], argv[1:]


def _kind(record: AnyVerb, name: str) -> Kind:
    found: Mapping[str, Parameter] = {one.name: one for one in record.parameters}
    if name in found:
        return found[name].kind
    return Kind.MOUNT if name == MOUNTS else Kind.TEXT


def _written(ctx: click.Context, given: Given, record: AnyVerb) -> Iterator[str | LocalFile]:
    """Yields the words of a parameter for the other machine."""
    param = given.param
    kind = _kind(record, given.name)
    if isinstance(param, click.Option) and param.is_flag:
        yield param.opts[0] if given.value else param.secondary_opts[0]
        return
    words = given.words
    if kind in FAR_PATHS:
        for word in words:
            _require_absolute(ctx, param, word)
    if kind is Kind.ENV:
        # A name without a value passes on our value, not the other machine's. It is not written
        # here: there, all users could read it.
        known = parse_env(ctx, param, tuple(words))
        words = [word for word in words if word.partition("=")[0] in known]
    for word in words:
        if isinstance(param, click.Option):
            yield param.opts[0]
        yield _as_file(word, kind, (record.name, given.name))


def _as_file(word: str, kind: Kind, what: tuple[str, str]) -> str | LocalFile:
    """Returns a word, or the file of this machine that it names."""
    if kind in FILES and word != STREAM:
        return LocalFile(word, what in WRITTEN, 0o644 if what in PICTURES else 0o600)
    path = Path(word)
    is_archive = what in ARCHIVES
    may_be_file = is_archive or path.suffix in MAYBE_FILES.get(kind, ())
    if may_be_file and path.is_file():
        return LocalFile(word, False)
    if (is_archive or kind in MAYBE_FILES) and word.startswith(PATHS):
        raise click.UsageError(f"{word!r} is no file that can be sent to the other machine")
    return word


def _require_new(words: Sequence[str | LocalFile]) -> None:
    """Raises PathError for a file that would be replaced."""
    for word in words:
        if isinstance(word, LocalFile) and word.is_written and word.path.exists():
            raise PathError(f"{word.path} is there already", hint="choose another name")


def files_of(line: Line) -> list[LocalFile]:
    """Returns the files of this machine in a line. Raises click.UsageError for two that would have
    the same name at the other machine."""
    found = [word for word in line.argv if isinstance(word, LocalFile)]
    names = [file.name for file in found]
    for file in found:
        if names.count(file.name) > 1:
            raise click.UsageError(f"two files are called {file.name!r}: name one in a call")
    return found


def words_of(line: Line) -> list[str]:
    """Returns the words for the other machine, where files are in the working directory."""
    return [f"./{word.name}" if isinstance(word, LocalFile) else word for word in line.argv]


def _require_absolute(ctx: click.Context, param: click.Parameter, word: str) -> None:
    if not word.startswith(("/", "~")):
        raise click.BadParameter(
            f"{word!r} would be a directory of the other machine: write its whole path there",
            ctx,
            param,
        )


def _reads_stdin(given: list[Given], record: AnyVerb) -> bool:
    """Returns whether a parameter says that input comes from stdin."""
    kinds = (Kind.STREAM, Kind.COPIED, Kind.TEXT)
    return any(
        STREAM in one.words
        for one in given
        if not isinstance(one.value, bool)
        and _kind(record, one.name) in kinds
        and (record.name, one.name) not in WRITTEN
    )


def _values(given: list[Given], record: AnyVerb) -> dict[str, str]:
    """Returns our values of the variables that are given by their names alone."""
    return {
        word: os.environ[word]
        for one in given
        if _kind(record, one.name) is Kind.ENV
        for word in one.words
        if word in os.environ
    }


def terminal_env() -> dict[str, str]:
    """Returns the variables that say how our terminal shows text."""
    wanted = ("TERM", "COLORTERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "NO_COLOR", "LANG")
    return {
        name: value[:256]
        for name, value in os.environ.items()
        if (name in wanted or (name.startswith("LC_") and name[3:].isalpha() and name.isupper()))
        and value.isprintable()
    }


STDIN, STDOUT, STDERR = 0, 1, 2
BY_METHODS = frozenset(
    {"rm", "restore", "saves rm", "saves restore", "saves verify", "saves prune", "saves rebase"}
)
"""Commands that are functions of their own, and ask for their work by methods of the machine."""
OF_ALL = ("everything", "all_stopped")
"""Options that stand for the names of sandboxes, which only that machine knows."""
KEPT_S = 600.0
"""Seconds for which a sandbox that is worked on is kept for us when the connection breaks."""
COPY, SSH, CODE = "cp", "ssh", "code"
"""Commands that run here, and only reach a guest there: their files, ports and editors are those of
this machine."""


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
        line = read_line(argv)
        if line.asks_help:
            return invoke(argv)
        if (code := _from_here(chosen.host, argv)) is not None:
            return code
        files = files_of(line)
    except click.ClickException as error:
        return explain_usage(error, argv)
    destination = find_destination(chosen.host)
    try:
        return run_async(lambda signals: _carry_out(destination, line, files, signals))
    except RemoteError as error:
        complain(error)
        return Exit.SANDBOX_FAILED if line.in_guest else Exit.FAILURE


def _open_app(chosen: Chosen) -> int:
    """Opens the app on another machine; returns the exit code. Raises ConfigError, and
    click.UsageError without a terminal."""
    find_destination(chosen.host)
    if not chosen.argv and not has_terminal():
        raise click.UsageError(f"without a terminal, {OPTION} is for a command: ps, for example")
    os.environ[VARIABLE] = chosen.host  # where the app looks for it
    return open_app() if not chosen.argv else invoke(chosen.argv)


def _by_methods(host: str, argv: Sequence[str]) -> int | None:
    """Carries a verb out by methods of the machine; returns the exit code, and None for a command
    that needs more than those. Raises click.UsageError, QuicksandError."""
    command, verb, words, rest = find_command(argv)
    if not is_carried(verb) and verb.name not in BY_METHODS:
        return None
    context = command.make_context(" ".join((PROGRAM, *words)), list(rest))
    with context as ctx, augment_usage_errors(ctx):
        if any(ctx.params.get(name) for name in OF_ALL):
            return None
        destination = find_destination(host)
        is_told = False

        def tell_away(error: RemoteError) -> None:
            nonlocal is_told
            if not is_told:
                say(f"quicksand-tui: {error}; it goes on there, connecting again")
            is_told = True

        @contextlib.asynccontextmanager
        async def reach() -> AsyncIterator[RemoteHost]:
            async with reached_host(destination, asks=_may_ask(), on_away=tell_away) as found:
                found.grace = KEPT_S
                yield found

        with working_on(reach):
            code = command.invoke(ctx)
        return code if isinstance(code, int) else Exit.OK


def _from_here(host: str, argv: Sequence[str]) -> int | None:
    """Runs a command here with a sandbox of another machine; None for one that runs there. Raises
    click.UsageError, QuicksandError."""
    if argv[0] not in (COPY, SSH, CODE):
        return _by_methods(host, argv)
    destination = find_destination(host)
    command = load(find_verb(argv[0]))
    with command.make_context(f"{PROGRAM} {argv[0]}", list(argv[1:])) as ctx:
        given = ctx.params
        if argv[0] == SSH:
            from quicksand_tui.cli.ssh.ssh_command import run_ssh  # noqa: PLC0415

            return run_ssh(**given, machine=host)
        if argv[0] == CODE:
            from quicksand_tui.cli.ssh.code import open_editor  # noqa: PLC0415

            return open_editor(**given, machine=host)

    return copy_there(destination, given, asks=_may_ask())


def _may_ask() -> bool:
    """Returns whether ssh may ask for a passphrase."""
    return os.isatty(STDIN) or os.isatty(STDERR)


async def _carry_out(
    destination: Destination | NodeDestination,
    line: Line,
    files: Sequence[LocalFile],
    signals: Signals,
) -> int:
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if in_terminal := all(stream.isatty() for stream in streams):
        from quicksand_tui.cli.guests.terminal import terminal_size  # noqa: PLC0415
    for file in files:
        if file.is_written:
            require_replaceable(file.path)
    async with Connection(destination, asks=_may_ask()) as connection:
        place = await make_place(connection.link) if files else ""
        for file in files:
            if not file.is_written:
                await send_file(connection.link, file.path, place, file.name)
        command = AskedCommand(
            connection.link,
            CommandLine(
                argv=words_of(line),
                place=place,
                files={file.name: file.word for file in files},
                env=terminal_env(),
                values=line.values,
                stdin=line.stdin or in_terminal,
                terminal=terminal_size() if in_terminal else None,
                changes=line.changes,
            ),
        )
        await command.start()
        try:
            if in_terminal:
                await show_in_terminal(command, signals)
            else:
                await _with_streams(command, line, signals)
        except asyncio.CancelledError:
            # The command undoes its work, as it would here.
            command.signal((signals.received or signal.SIGTERM).name.removeprefix("SIG"))
            raise
        for file in files:
            if file.is_written and command.exit_code == Exit.OK:
                await fetch_file(connection.link, place, file.name, file.path, file.mode)
        assert command.exit_code is not None
        return command.exit_code


async def _with_streams(command: AskedCommand, line: Line, signals: Signals) -> None:
    out = FdWriter(STDOUT)
    err = out if same_file(STDOUT, STDERR) else FdWriter(STDERR)
    sinks = {Stream.STDOUT: out, Stream.STDERR: err}
    async with _feeding(command, wanted=line.stdin):
        with signals.passed_on(command.signal):
            async for stream, data in command.pieces():
                await sinks[Stream(stream)].write(data)
    await out.close()
    await err.close()


@contextlib.asynccontextmanager
async def _feeding(command: AskedCommand, *, wanted: bool) -> AsyncIterator[None]:
    """Passes our stdin on, if it is wanted; the command need not read all of it."""
    task = asyncio.create_task(_feed(command), name="quicksand-stdin") if wanted else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))


async def _feed(command: AskedCommand) -> None:
    # The reader of the output gets the same error.
    with contextlib.suppress(RemoteError):
        async for data in FdReader(STDIN):
            await command.feed(data)
        await command.feed(b"")


def copy_there(
    destination: Destination | NodeDestination, given: Mapping[str, Any], *, asks: bool
) -> int:
    """Carries out `cp`, and returns the exit code. ``asks``: ssh may ask for a passphrase. Raises
    click.UsageError, QuicksandError."""

    @contextlib.asynccontextmanager
    async def reach(name: str) -> AsyncIterator[GuestFiles]:
        async with (
            Connection(destination, asks=asks) as connection,
            agent_session(connection.link, name) as session,
        ):

            async def same() -> Session:
                return session

            yield GuestFiles(same)

    from quicksand_tui.cli.guests.copy import copy_files  # noqa: PLC0415

    return copy_files(**given, reach=reach)


KILLED = 128 + signal.SIGKILL


async def show_in_terminal(command: AskedCommand, signals: Signals) -> None:
    """Shows the command's terminal in ours until it ends."""
    from quicksand_vt import Restoring  # noqa: PLC0415

    from quicksand_tui.cli.guests.terminal import raw_terminal, terminal_size  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    writer = FdWriter(1)
    restoring = Restoring()
    typing = asyncio.create_task(_type(command, signals), name="quicksand-typed")
    with raw_terminal():
        loop.add_signal_handler(signal.SIGWINCH, lambda: command.resize(*terminal_size()))
        try:
            async for _, data in command.pieces():
                if before := restoring.feed(data):
                    await writer.write(before)
                await writer.write(data)
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            typing.cancel()
            await asyncio.wait((typing,))
            if command.exit_code in (None, KILLED):
                # The command could not put our terminal right by itself.
                await writer.write(restoring.undo(terminal_size()[0]) + b"\r\n")
            await writer.close()


async def _type(command: AskedCommand, signals: Signals) -> None:
    async for data in FdReader(0):
        with contextlib.suppress(RemoteError):
            await command.feed(data)
    signals.end(signal.SIGHUP)

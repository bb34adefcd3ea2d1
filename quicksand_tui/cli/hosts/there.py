"""Has quicksand-tui on another machine carry a command out, with our streams or our terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import click
from click.core import augment_usage_errors
from quicksand.base.errors import RemoteError
from quicksand.guest.agent.wire import Stream
from quicksand.remote.asking import AskedCommand, CommandLine
from quicksand.remote.connection import Connection
from quicksand.remote.destination import Destination, NodeDestination
from quicksand.remote.sending import fetch_file, make_place, require_replaceable, send_file

from quicksand_tui.cli.click_commands import explain_usage, invoke, is_carried, load
from quicksand_tui.cli.guests.executing import FdReader, FdWriter, same_file
from quicksand_tui.cli.host_choice import HERE, LOCAL, OPTION, VARIABLE, has_terminal, open_app
from quicksand_tui.cli.hosts.destinations import find_destination
from quicksand_tui.cli.hosts.sandbox_there import reached_host
from quicksand_tui.cli.hosts.there_words import (
    Line,
    LocalFile,
    files_of,
    find_command,
    read_line,
    terminal_env,
    words_of,
)
from quicksand_tui.cli.output import PROGRAM, Exit, complain, say
from quicksand_tui.cli.runner import Signals, run_async, working_on
from quicksand_tui.verbs.index import find_verb

if TYPE_CHECKING:
    from quicksand.hosted.remote_host import RemoteHost

    from quicksand_tui.cli.host_choice import Chosen

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
    from quicksand_tui.cli.hosts.there_copy import copy_there  # noqa: PLC0415

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
        from quicksand_tui.cli.hosts.there_terminal import show_in_terminal  # noqa: PLC0415
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

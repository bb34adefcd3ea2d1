"""Has another machine carry a command out: its quicksand-tui does, with our streams or our
terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

import click
from quicksand.base.errors import ConfigError, RemoteError
from quicksand.guest.agent.wire import Stream
from quicksand.guest.files import GuestFiles
from quicksand.remote.agents import agent_session
from quicksand.remote.asking import AskedCommand, CommandLine
from quicksand.remote.connection import Connection
from quicksand.remote.destination import SCHEME, Destination
from quicksand.remote.node import NODE_SCHEME, NodeDestination, find_node, parse_address
from quicksand.remote.sending import (
    fetch_file,
    make_place,
    require_replaceable,
    send_file,
)

from quicksand_tui.cli.copy import copy_files
from quicksand_tui.cli.group import explain_usage, invoke, load
from quicksand_tui.cli.host_choice import HERE, LOCAL, OPTION, VARIABLE
from quicksand_tui.cli.opening import has_terminal, open_app
from quicksand_tui.cli.output import PROGRAM, Exit, complain, say
from quicksand_tui.cli.runner import Signals, run_async
from quicksand_tui.cli.streams import FdReader, FdWriter, same_file
from quicksand_tui.cli.terminal import raw_terminal, terminal_size
from quicksand_tui.cli.there_words import (
    Line,
    LocalFile,
    files_of,
    read_line,
    terminal_env,
    words_of,
)
from quicksand_tui.home.host_file import HostsError, read_hosts
from quicksand_tui.home.state import config_file
from quicksand_tui.model.text import did_you_mean
from quicksand_tui.terminal.restoring import Restoring
from quicksand_tui.verbs.rows import find_verb

if TYPE_CHECKING:
    from quicksand.guest.agent.session import Session

    from quicksand_tui.cli.host_choice import Chosen

AGAIN_S = 2.0
"""Seconds; a second Ctrl-C within this time leaves the command alone."""

STDIN, STDOUT, STDERR = 0, 1, 2
INTERRUPT = b"\x03"
KILLED = 128 + signal.SIGKILL
COPY = "cp"


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
        if argv[0] == COPY:
            return _copy(find_destination(chosen.host), argv)
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


def find_destination(host: str) -> Destination | NodeDestination:
    """Returns the machine of that name or address. Raises ConfigError."""
    if host.startswith((SCHEME, NODE_SCHEME)):
        return parse_address(host)
    if "@" in host or ":" in host:  # as the app calls a machine that has no name
        return Destination.parse(f"{SCHEME}{host}")
    try:
        known = read_hosts(config_file())
    except HostsError as error:
        raise ConfigError(str(error), hint=error.hint) from error
    if host not in known and (node := find_node(host)) is not None:
        return node
    if host not in known:
        near = did_you_mean(host, list(known), cutoff=0.5)
        raise ConfigError(
            f"there is no host {host!r:.100}{near} ({OPTION} or {VARIABLE})",
            hint="`quicksand-tui hosts add NAME ssh://USER@HOST` adds one",
        )
    return Destination.parse(known[host])


def _copy(destination: Destination | NodeDestination, argv: Sequence[str]) -> int:
    """Copies between this machine and a guest of another one: `cp` runs here, and talks to the
    guest's agent there. Raises click.UsageError, QuicksandError."""
    command = load(find_verb(COPY))
    with command.make_context(f"{PROGRAM} {COPY}", list(argv[1:])) as ctx:
        given = ctx.params

    @contextlib.asynccontextmanager
    async def reach(name: str) -> AsyncIterator[GuestFiles]:
        async with (
            Connection(destination, asks=_may_ask()) as connection,
            agent_session(connection.link, name) as session,
        ):

            async def same() -> Session:
                return session

            yield GuestFiles(same)

    return copy_files(**given, reach=reach)


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
    in_terminal = all(stream.isatty() for stream in streams)
    for file in files:
        if file.is_written:
            require_replaceable(file.path)
    async with Connection(destination, asks=_may_ask()) as connection:
        place = await make_place(connection.link) if files else ""
        for file in files:
            if not file.is_written:
                await send_file(connection.link, file.path, place, file.name)
        command = AskedCommand(
            connection,
            CommandLine(
                argv=words_of(line),
                place=place,
                env=terminal_env(),
                values=line.values,
                stdin=line.stdin or in_terminal,
                terminal=terminal_size() if in_terminal else None,
                once=line.once,
            ),
            on_away=_Away(destination.short).tell,
        )
        await command.start()
        try:
            if in_terminal:
                await _in_terminal(command, signals)
            else:
                await _with_streams(command, line, signals)
        except asyncio.CancelledError:
            # It undoes what it has begun, as it would here.
            command.signal((signals.received or signal.SIGTERM).name.removeprefix("SIG"))
            raise
        if command.lost:
            complain(
                f"{command.lost} bytes of its output were not kept while {destination.short} "
                "was away"
            )
        for file in files:
            if file.is_written and command.exit_code == Exit.OK:
                await fetch_file(connection.link, place, file.name, file.path, file.mode)
        return exit_code_of(command)


def exit_code_of(command: AskedCommand) -> int:
    """Returns the exit code of a command that has ended; not 0 for one whose output has a gap: who
    reads only that would take it for whole."""
    assert command.exit_code is not None
    return command.exit_code or (Exit.FAILURE if command.lost else Exit.OK)


class _Away:
    """Tells once that the other machine is away."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_told = False

    def tell(self, error: RemoteError) -> None:
        if not self._is_told:
            ending = "\r" if os.isatty(STDIN) else ""
            say(
                f"{ending}quicksand-tui: {error}; the command goes on there, connecting again"
                f"{ending}"
            )
        self._is_told = True


async def _with_streams(command: AskedCommand, line: Line, signals: Signals) -> None:
    out = FdWriter(STDOUT)
    err = out if same_file(STDOUT, STDERR) else FdWriter(STDERR)
    sinks = {Stream.STDOUT: out, Stream.STDERR: err}
    async with _feeding(command, wanted=line.stdin):
        with signals.interrupts_to(_interrupter(command, signals)):
            async for stream, data in command.pieces():
                await sinks[Stream(stream)].write(data)
    await out.close()
    await err.close()


def _interrupter(command: AskedCommand, signals: Signals) -> Callable[[], None]:
    last = -AGAIN_S

    def interrupt() -> None:
        nonlocal last
        now = time.monotonic()
        if command.is_away or now - last < AGAIN_S:
            signals.end(signal.SIGINT)
            return
        last = now
        command.signal("INT")

    return interrupt


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
    # Who reads the output gets the same error.
    with contextlib.suppress(RemoteError):
        async for data in FdReader(STDIN):
            await command.feed(data)
        await command.feed(b"")


async def _in_terminal(command: AskedCommand, signals: Signals) -> None:
    """Shows the command's terminal in ours until it ends."""
    loop = asyncio.get_running_loop()
    writer = FdWriter(STDOUT)
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
                # It could not put our terminal right by itself.
                await writer.write(restoring.undo(terminal_size()[0]) + b"\r\n")
            await writer.close()


async def _type(command: AskedCommand, signals: Signals) -> None:
    async for data in FdReader(STDIN):
        if command.is_away and INTERRUPT in data:
            signals.end(signal.SIGINT)
        with contextlib.suppress(RemoteError):
            await command.feed(data)
    signals.end(signal.SIGHUP)

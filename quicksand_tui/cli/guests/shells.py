"""`quicksand-tui shell`: terminals in a running sandbox; `run` and `exec` open them, too."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from quicksand.base.errors import RevertedError

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.guests.relay import Wish, starting
from quicksand_tui.cli.guests.terminal import (
    Relay,
    leave,
    require_terminal,
    terminal_env,
    terminal_size,
)
from quicksand_tui.cli.options import parse_keys
from quicksand_tui.cli.output import Exit, complain, print_json, print_table, say, show_age
from quicksand_tui.cli.runner import attached, run_in_sandbox
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.guest.shell import Shell, ShellInfo
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.runner import Signals


async def run_in_terminal(
    sandbox: Sandbox, wish: Wish, keys: bytes, signals: Signals, *, keep: bool = False
) -> int:
    """Runs a command, or else a login shell, in a terminal of the guest; returns its exit code.

    Raises Left when the user typed the detach keys, and RevertedError as `relay` does. If a signal
    ends us, the program ends too unless ``keep`` is true.
    """
    with starting():
        shell = await open_terminal(sandbox, wish)
    try:
        async with asyncio.timeout(wish.timeout):
            return await relay(sandbox, shell, wish, keys, signals, keep=keep)
    except TimeoutError:
        complain(f"timed out after {wish.timeout:g} s")
        return Exit.TIMEOUT


class Left(Exception):  # noqa: N818 - not an error
    """Raised when the user typed the detach keys. The program runs on in the terminal
    ``session``."""

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session


async def open_terminal(sandbox: Sandbox, wish: Wish) -> Shell:
    """Opens a terminal in the guest that has the size and TERM of ours."""
    keywords = wish.keywords()
    keywords["env"] = {**await terminal_env(sandbox), **wish.env}
    columns, rows = terminal_size()
    return await sandbox.shell(list(wish.argv) or None, columns=columns, rows=rows, **keywords)


async def relay(
    sandbox: Sandbox, shell: Shell, wish: Wish, keys: bytes, signals: Signals, *, keep: bool
) -> int:
    """Shows a guest's terminal until its program ends; returns the exit code. Raises Left.

    When the sandbox is reverted, this continues with the same terminal as it was at that moment, or
    with a new shell. Raises RevertedError if the terminal belonged to a command that did not run at
    that moment.
    """
    follows = False
    while True:
        mine = await _find_live(sandbox, shell.session)
        try:
            return await _relay_once(sandbox, shell, keys, signals, keep=keep, follows=follows)
        except RevertedError as error:
            follows = True
            say(clean(error))
            shell = await _follow(sandbox, mine, wish, error)


async def _find_live(sandbox: Sandbox, session: str) -> ShellInfo | None:
    """Returns the guest's report on a terminal, or None if its program does not run."""
    infos = await sandbox.shells()
    return next((info for info in infos if info.session == session and info.alive), None)


async def _follow(
    sandbox: Sandbox, mine: ShellInfo | None, wish: Wish, error: RevertedError
) -> Shell:
    """Returns the same terminal in the reverted guest, or a new one in its place. Raises ``error``
    if there can be none.

    Terminals are numbered, so another one may have our number after a revert.
    """
    now = await _find_live(sandbox, mine.session) if mine is not None else None
    if mine is not None and now is not None and (now.pid, now.created) == (mine.pid, mine.created):
        columns, rows = terminal_size()
        return await sandbox.attach_shell(mine.session, columns=columns, rows=rows)
    if wish.is_command:
        raise error
    say("this terminal was not open then: here is a new one")
    return await open_terminal(sandbox, wish)


async def _relay_once(
    sandbox: Sandbox, shell: Shell, keys: bytes, signals: Signals, *, keep: bool, follows: bool
) -> int:
    try:
        status = await Relay(sandbox, shell, keys, signals, follows=follows).run()
    except BaseException as error:
        await leave(shell, end=not keep)
        if keep and isinstance(error, asyncio.CancelledError):
            say_left(sandbox, shell.session)
        raise
    if status is None:
        await leave(shell, end=False)
        raise Left(shell.session)
    return status.exit_code


def say_left(sandbox: Sandbox, session: str) -> None:
    """Tells the user how to return to the terminal."""
    name, session = clean(sandbox.name), clean(session)
    say(f"detached; `quicksand-tui shell {name} --session {session}` attaches again")


@command_of("shell")
def shell_command(
    name: str,
    user: str | None,
    session: str | None,
    listing: bool,
    detach_keys: str,
    as_json: bool,
) -> int:
    """Open a terminal in a sandbox, or return to one.

    The exit code is that of the shell. Ctrl-] and then d leave the shell running, and so does a
    broken connection; `--session` returns to it. After a revert you are in the same terminal as it
    was then, or in a new one.
    """
    if as_json and not listing:
        raise click.UsageError("--json goes with --list")
    if session is not None and user is not None:
        raise click.UsageError("--user is for a new terminal, --session for one that is there")

    keys = parse_keys(detach_keys)

    async def main(signals: Signals) -> int:
        with attached(name) as sandbox:
            if listing:
                return _list(await sandbox.shells(), as_json)
            wish = Wish(argv=(), env={}, user=user)
            if session is None:
                shell = await open_terminal(sandbox, wish)
            else:
                columns, rows = terminal_size()
                shell = await sandbox.attach_shell(session, columns=columns, rows=rows)
            try:
                return await relay(sandbox, shell, wish, keys, signals, keep=True)
            except Left as left:
                say_left(sandbox, left.session)
                return Exit.OK

    if not listing:
        require_terminal()
    return run_in_sandbox(main)


def _list(shells: list[ShellInfo], as_json: bool) -> int:
    if as_json:
        print_json([asdict(shell) for shell in shells])
        return Exit.OK
    rows = [
        (
            shell.session,
            shell.pid,
            f"{shell.columns}x{shell.rows}",
            shell.attached,
            show_age(shell.created),
            "running" if shell.alive else "ended",
            " ".join(shell.argv),
        )
        for shell in shells
    ]
    print_table(("SESSION", "PID", "SIZE", "ATTACHED", "AGE", "STATE", "COMMAND"), rows)
    return Exit.OK

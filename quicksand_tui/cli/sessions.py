"""Terminals in a guest from beginning to end: opened, relayed, left or ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from quicksand.errors import RevertedError

from quicksand_tui.cli.exits import Exit
from quicksand_tui.cli.output import complain, say
from quicksand_tui.cli.relay import Wish, starting
from quicksand_tui.cli.terminal import Relay, leave, terminal_env, terminal_size
from quicksand_tui.cli.text import clean

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox
    from quicksand.shell import Shell, ShellInfo

    from quicksand_tui.cli.runner import Signals


async def run_in_terminal(
    sandbox: Sandbox, wish: Wish, keys: bytes, signals: Signals, *, keep: bool = False
) -> int:
    """Run a command in a terminal, or a login shell if it is none; return its exit code.

    Raises Left when the detach keys were typed. When we are ended by a signal the program ends too,
    unless ``keep``.
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
    """The detach keys were typed; the program runs on in the terminal ``session``."""

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session


async def open_terminal(sandbox: Sandbox, wish: Wish) -> Shell:
    """A new terminal of the size and kind of ours."""
    keywords = wish.keywords()
    keywords["env"] = {**await terminal_env(sandbox), **wish.env}
    columns, rows = terminal_size()
    return await sandbox.shell(list(wish.argv) or None, columns=columns, rows=rows, **keywords)


async def relay(
    sandbox: Sandbox, shell: Shell, wish: Wish, keys: bytes, signals: Signals, *, keep: bool
) -> int:
    """Be the guest's terminal until its program ends; return its exit code. Raises Left.

    When the sandbox is reverted, this goes on in the terminal as it was then, or in a new shell.
    Raises RevertedError when the terminal was of a command that did not run then.
    """
    while True:
        mine = await _find_live(sandbox, shell.session)
        try:
            return await _relay_once(sandbox, shell, keys, signals, keep=keep)
        except RevertedError as error:
            say(clean(error))
            shell = await _follow(sandbox, mine, wish, error)


async def _find_live(sandbox: Sandbox, session: str) -> ShellInfo | None:
    """What the guest says of a terminal whose program runs."""
    infos = await sandbox.shells()
    return next((info for info in infos if info.session == session and info.alive), None)


async def _follow(
    sandbox: Sandbox, mine: ShellInfo | None, wish: Wish, error: RevertedError
) -> Shell:
    """The same terminal in the guest as it is now, or a new one in its place.

    Terminals are numbered: after a revert another one may have got the number of ours.
    """
    now = await _find_live(sandbox, mine.session) if mine is not None else None
    if mine is not None and now is not None and (now.pid, now.created) == (mine.pid, mine.created):
        columns, rows = terminal_size()
        return await sandbox.attach_shell(mine.session, columns=columns, rows=rows)
    if wish.argv:
        raise error
    say("this terminal was not open then: here is a new one")
    return await open_terminal(sandbox, wish)


async def _relay_once(
    sandbox: Sandbox, shell: Shell, keys: bytes, signals: Signals, *, keep: bool
) -> int:
    try:
        status = await Relay(sandbox, shell, keys, signals).run()
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
    """Tell how to come back."""
    name, session = clean(sandbox.name), clean(session)
    say(f"left; `quicksand-tui shell {name} --session {session}` comes back")

"""`quicksand-tui cp`: copies files into and out of a sandbox."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.guests import incoming, transfer
from quicksand_tui.cli.guests.transfer import NotEnoughSpaceError, Tally
from quicksand_tui.cli.output import Exit
from quicksand_tui.cli.progress_display import shown
from quicksand_tui.cli.runner import attached, run_async
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.guest.guest_files import GuestFiles

    from quicksand_tui.cli.runner import Signals


_IN_GUEST = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62}):(.*)", re.DOTALL)
STANDARD = "-"


Reach = Callable[[str], AbstractAsyncContextManager["GuestFiles"]]
"""Leads to the files of the sandbox of that name."""


@asynccontextmanager
async def _reach_here(name: str) -> AsyncIterator[GuestFiles]:
    """Leads to a running sandbox of this machine."""
    with attached(name) as sandbox:
        yield sandbox.files


@dataclass(frozen=True, slots=True)
class Place:
    """The source or the target of a copy."""

    path: str
    sandbox: str | None = None
    """The name of the sandbox; None for a path of this host, or "-" for a standard stream."""

    @classmethod
    def parse(cls, text: str) -> Place:
        """Reads a place as typed. NAME:/path is in a guest; a file of this host whose name has a
        colon is written ./NAME:..."""
        match = _IN_GUEST.fullmatch(text)
        if match is None:
            return cls(text)
        if not match[2].startswith("/"):
            raise click.UsageError(
                f"{text!r}: a path in a sandbox begins with a slash (a local file: './{text}')"
            )
        return cls(match[2], match[1])


@command_of("cp")
def cp_command(source: str, target: str, follow: bool, yes: bool) -> int:
    """Copy files into or out of a sandbox.

    One side is NAME:/path, the other a local path, or - for stdin or stdout. A directory is copied
    with all its contents: into TARGET if that is a directory, else as TARGET. SOURCE/. copies only
    the contents. Times and modes are kept, except setuid and setgid on the way out. Symlinks stay
    symlinks, and hard links within SOURCE stay hard links. A directory that exists keeps its mode
    and time. Devices, pipes and sockets are left out.

    Holes stay holes. If a copy may not fit on this disk, you are asked first; a file that does not
    fit is not left here in part.
    """
    return copy_files(source, target, follow, yes, reach=_reach_here)


def copy_files(source: str, target: str, follow: bool, yes: bool, *, reach: Reach) -> int:
    """Copies as `cp` says, with a guest that ``reach`` leads to; returns the exit code. Raises
    click.UsageError, QuicksandError."""
    origin, goal = Place.parse(source), Place.parse(target)
    name = origin.sandbox or goal.sandbox
    if name is None or (origin.sandbox is not None and goal.sandbox is not None):
        raise click.UsageError("one of SOURCE and TARGET must be NAME:/path, the other local")
    try:
        return _copy(origin, goal, reach(name), follow=follow, to_the_full=yes)
    except NotEnoughSpaceError as error:
        if not _agreed(error):
            raise
    return _copy(origin, goal, reach(name), follow=follow, to_the_full=True)


def _agreed(error: Exception) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = f"{clean(error)}. Copy until the disk is full?"
    return click.confirm(question, default=False, err=True)


def _copy(
    origin: Place,
    goal: Place,
    reached: AbstractAsyncContextManager[GuestFiles],
    *,
    follow: bool,
    to_the_full: bool,
) -> int:
    tally = Tally()

    async def main(signals: Signals) -> int:
        async with reached as files, shown(tally.look):
            if origin.sandbox is not None:
                await _fetch(
                    files,
                    origin.path,
                    goal.path,
                    tally,
                    follow=follow,
                    to_the_full=to_the_full,
                )
            else:
                await _send(files, origin.path, goal.path, tally, follow=follow)
        tally.tell_rest()
        return Exit.FAILURE if tally.failed else Exit.OK

    return run_async(main)


async def _fetch(
    files: GuestFiles,
    source: str,
    target: str,
    tally: Tally,
    *,
    follow: bool,
    to_the_full: bool,
) -> None:
    if target == STANDARD:
        await incoming.to_stdout(files, source, tally)
    else:
        await incoming.fetch(files, source, target, tally, follow=follow, to_the_full=to_the_full)


async def _send(files: GuestFiles, source: str, target: str, tally: Tally, *, follow: bool) -> None:
    if source == STANDARD:
        await transfer.from_stdin(files, target, tally)
    else:
        await transfer.send(files, source, target, tally, follow=follow)

"""`quicksand-tui serve`: the far end of `--host`."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Sequence

import click
import quicksand
from quicksand.base.errors import RemoteRefusedError
from quicksand.hosted.offering import all_offers, finish_revert
from quicksand.remote.serving import Offer, serve_stdio

from quicksand_tui import __version__
from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.host_choice import HERE
from quicksand_tui.cli.output import Exit
from quicksand_tui.door.far_end import SavesOffer, WatchOffer
from quicksand_tui.verbs.index import is_verb

PROGRAM = (sys.executable, "-P", "-m", "quicksand_tui")
"""The beginning of a command line of ours. -P: nothing of the working directory is imported."""


@command_of("serve")
def serve_command(stdio: bool) -> int:
    """Carry out commands that another machine asks for.

    `quicksand-tui --host ssh://HOST` runs this on HOST, by ssh, and talks to it on its stdin and
    stdout. Nothing listens on a network: who may log in may do this, and nobody else. It ends with
    the connection, and so do commands; what is done to a sandbox is carried out to its end.
    """
    if not stdio:
        raise click.UsageError("say --stdio: it answers at stdin and stdout only")
    if not all(_is_pipe(descriptor) for descriptor in (0, 1)):
        raise click.UsageError("stdin and stdout must be pipes: `--host` calls this by ssh")
    offers: tuple[Offer, ...] = (
        *all_offers(lambda: quicksand.Sandbox),
        WatchOffer(),
        SavesOffer(),
    )
    asyncio.run(serve_stdio(PROGRAM, _check, finish_revert, offers))
    return Exit.OK


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _check(argv: Sequence[str]) -> None:
    """Checks a command line. Raises RemoteRefusedError if it is not carried out for others."""
    if not is_verb(argv[0]):
        raise RemoteRefusedError(
            f"quicksand-tui {__version__} has no command {argv[0]!r:.80}",
            code="no_such_command",
            hint="install the same version on both machines",
        )
    if argv[0] in HERE:
        raise RemoteRefusedError(f"{argv[0]} is not for others", code="forbidden")

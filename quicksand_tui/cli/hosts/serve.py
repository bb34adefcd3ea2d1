"""`quicksand-tui serve`: the far end of `--host`."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from typing import Any

import click
import quicksand
from quicksand.base.faults import note_unhandled
from quicksand.hosted.offering import all_offers, finish_revert
from quicksand.remote.serving import Offer, serve_stdio

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit
from quicksand_tui.door.far_end import SavesOffer, WatchOffer


@command_of("serve")
def serve_command(stdio: bool) -> int:
    """Carry out commands that another machine asks for.

    `quicksand-tui --host ssh://HOST` runs this on HOST, by ssh, and talks to it on its stdin and
    stdout. Nothing listens on a network: who may log in may do this, and nobody else. It ends with
    the connection; what is done to a sandbox is carried out to its end.
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
    asyncio.run(_serve(offers))
    return Exit.OK


def _unhandled(_: object, context: Mapping[str, Any]) -> None:
    """Asyncio would write it to stderr, which the user reads at the other end."""
    note_unhandled(context)


async def _serve(offers: tuple[Offer, ...]) -> None:
    asyncio.get_running_loop().set_exception_handler(_unhandled)
    await serve_stdio(finish_revert, offers)


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)

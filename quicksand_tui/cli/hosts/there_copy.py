"""Copies between this machine and a guest of another one: `cp` runs here, and talks to the guest's
agent there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from quicksand.guest.guest_files import GuestFiles
from quicksand.remote.agents import agent_session
from quicksand.remote.connection import Connection

from quicksand_tui.cli.guests.copy import copy_files

if TYPE_CHECKING:
    from quicksand.guest.agent.session import Session
    from quicksand.remote.destination import Destination, NodeDestination


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

    return copy_files(**given, reach=reach)

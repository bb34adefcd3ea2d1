"""A `Sandbox` of another machine, over the connection that the app has there: for questions by the
methods of a sandbox of this one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from quicksand.base.errors import RemoteUnreachableError
from quicksand.hosted.remote_host import RemoteHost
from quicksand.sandbox import Sandbox

if TYPE_CHECKING:
    from quicksand.remote.connection import Way
    from quicksand.remote.peer_link import Link

    from quicksand_tui.door.far_host import FarHost


KEPT_S = 600.0
"""Seconds for which a sandbox that is worked on is kept for a machine that is away."""


def open_there(host: FarHost, sandbox_id: str) -> Sandbox:
    """Opens a sandbox by its id there. The first call that is awaited looks for it."""
    return Sandbox.open(sandbox_id, host=RemoteHost.by(FarSharing(host)))


def patient(host: FarHost, tell: Callable[[str], None]) -> RemoteHost:
    """Returns the machine for work that goes on when a broken connection is there again. Calls
    ``tell`` with words for the wait and its end."""
    sharing = FarSharing(host)
    sharing.tell = tell
    found = RemoteHost.by(sharing)
    found.grace = KEPT_S
    return found


class FarSharing:
    """Implements `quicksand.remote.connection.Sharing`. `FarHost.run` makes the connection,
    and ends it."""

    def __init__(self, host: FarHost) -> None:
        self._host = host
        self.tell: Callable[[str], None] | None = None
        """If it is there, a machine that is away is waited for, and this gets words about it."""

    @property
    def destination(self) -> Way:
        return self._host.destination

    @property
    def generation(self) -> int:
        return self._host.generation

    def use(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def link(self) -> Link:
        """Returns the present connection, without waiting for one if somebody looks at the screen.
        Raises RemoteError."""
        tell, host = self.tell, self._host
        if tell is None:
            return self.present()
        while True:
            try:
                return self.present()
            except RemoteUnreachableError as error:
                await host.again(error, told=lambda _: tell(host.waiting_words))
                tell(f"{host.name} is back: it goes on")

    def present(self) -> Link:
        """Returns the present connection. Raises RemoteUnreachableError."""
        link = self._host.link
        if link.ended.is_set():
            raise RemoteUnreachableError(self._host.away_words)
        return link

    def can(self, capability: str) -> bool:
        return self._host.can(capability)

    def got_on(self) -> None:
        self._host.got_on()

    async def ended(self) -> None:
        """Does nothing: the connection does not end with its users."""

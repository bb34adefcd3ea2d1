"""A `Sandbox` of another machine, over the connection that the app has there: for questions by the
methods of a sandbox of this one."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from quicksand.base.errors import RemoteUnreachableError
from quicksand.hosted.host import RemoteHost
from quicksand.sandbox import Sandbox

if TYPE_CHECKING:
    from quicksand.remote.link import Link
    from quicksand.remote.shared import Way

    from quicksand_tui.door.far_host import FarHost


def open_there(host: FarHost, sandbox_id: str) -> Sandbox:
    """Opens a sandbox by its id there. The first call that is awaited looks for it."""
    return Sandbox.open(sandbox_id, host=RemoteHost.by(FarSharing(host)))


class FarSharing:
    """Implements `quicksand.remote.shared.Sharing`. `FarHost.run` makes the connection, and ends
    it."""

    def __init__(self, host: FarHost) -> None:
        self._host = host

    @property
    def destination(self) -> Way:
        return self._host.destination

    @property
    def generation(self) -> int:
        return self._host.generation

    def use(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def link(self) -> Link:
        """Returns the present connection, without waiting for one: somebody looks at the screen.
        Raises RemoteUnreachableError."""
        return self.present()

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

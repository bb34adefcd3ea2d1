"""The place of a sandbox's screen, and the machine that shows it now."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from quicksand.base.paths import paths
from quicksand.records.registry import Registry
from quicksand.sandbox import Sandbox

if TYPE_CHECKING:
    from quicksand.display.place import Place
    from quicksand.display.rfb import RfbClient


class OpenScreen(NamedTuple):
    """The screen of a machine that runs."""

    place: Place
    """The source of pictures."""
    client: RfbClient
    """Takes keys and the pointer."""
    sandbox: Sandbox
    """Types characters that have no key."""


class ScreenPlace(Protocol):
    """A sandbox whose screen is to be shown, and shown again."""

    @property
    def mark(self) -> object:
        """A value that tells its present machine from those before and after it; None if none shows
        a screen now. Never raises."""

    def open(self) -> AbstractAsyncContextManager[OpenScreen]:
        """Connects to its screen. Raises QuicksandError."""


class ScreenHere:
    """A sandbox of this machine."""

    def __init__(self, sandbox_id: str) -> None:
        self._id = sandbox_id

    @property
    def mark(self) -> object:
        machine = Registry(paths()).machine(self._id)
        with contextlib.suppress(OSError):  # the machine is looked at again
            return machine if machine.vnc_socket.exists() else None
        return None

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[OpenScreen]:
        machine = Registry(paths()).machine(self._id)
        with contextlib.closing(Sandbox.open(self._id)) as sandbox:
            async with sandbox.display() as client:
                yield OpenScreen(machine, client, sandbox)

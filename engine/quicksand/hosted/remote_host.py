"""`RemoteHost`: another machine, by its address, for `Sandbox(host=…)` and for its lists."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quicksand.base.errors import ConfigError, RemoteProtocolError
from quicksand.base.paths import paths
from quicksand.base.progress import Progress
from quicksand.hosted.calling import ask, require_capability
from quicksand.hosted.codec import ForeignValueError, HostedSandbox, decode
from quicksand.hosted.protocol import GRACE_MAX_S, GRACE_S
from quicksand.hosted.save_moving import MovedSave, Mover, Terms
from quicksand.records.known_hosts import find_address
from quicksand.remote.connection import SharedConnection, SharedConnections, Sharing
from quicksand.remote.destination import NODE_SCHEME, SCHEME, parse_address

STDIN = 0


class RemoteHost:
    """Another machine that has this program, reached by the user's own ssh.

    ::

        box = RemoteHost("ssh://me@box", grace=5)
        async with Sandbox(image="debian", host=box) as sandbox:
            ...

    All objects of one program for the same machine share one ssh. It starts when it is first
    needed, and ends with the last sandbox that uses it.
    """

    def __init__(self, address: str, *, grace: float = GRACE_S, asks: bool = True) -> None:
        """``address``: ``ssh://[USER@]HOST[:PORT]``, a name in the config's table [hosts], or
        ``node://NAME`` for a local node of a fleet. ``grace``: seconds, at most 3600, after which
        this program's sandboxes end if it is gone. ``asks``: ssh may ask for passwords if stdin is
        a terminal. Raises ConfigError, FleetError."""
        if not isinstance(address, str):
            raise ConfigError(f"{address!r:.80} is no address of a machine")  # pyright: ignore[reportUnreachable]  # for callers without types
        if isinstance(grace, bool) or not isinstance(grace, int | float):
            raise ConfigError(f"grace must be a number of seconds, not {grace!r:.80}")
        if not 0 <= grace <= GRACE_MAX_S:
            raise ConfigError(f"grace must be 0 to {GRACE_MAX_S:g} seconds, not {grace}")
        is_address = address.startswith((SCHEME, NODE_SCHEME))
        self._destination = parse_address(address if is_address else find_address(address))
        self._asks = asks
        self._sharing: Sharing | None = None
        self.grace = float(grace)

    @classmethod
    def by(cls, sharing: Sharing) -> RemoteHost:
        """Return the machine at the other end of a connection that another object keeps up."""
        made = cls(str(sharing.destination))
        made._sharing = sharing
        return made

    def __repr__(self) -> str:
        return f"RemoteHost({self.address!r})"

    @property
    def address(self) -> str:
        """The machine's address."""
        return str(self._destination)

    @property
    def name(self) -> str:
        """The machine's name in messages."""
        return self._destination.short

    def sharing(self) -> Sharing:
        """The connection to the machine."""
        return self._sharing or self.shared()

    def shared(self) -> SharedConnection:
        """The connection of this program (its event loop) to the machine."""
        return SharedConnections.find(self._destination, asks=self._asks and os.isatty(STDIN))

    async def list(self) -> Sequence[HostedSandbox]:
        """Every sandbox of the user there, running or not, oldest first. Raises RemoteError,
        HostError if there is no ssh here."""
        found = await self._ask("sandboxes")
        try:
            return tuple(decode(found, tuple[HostedSandbox, ...]))
        except ForeignValueError as error:
            raise RemoteProtocolError(f"{self.name} sent a list that makes no sense") from error

    async def logs(self, sandbox: str) -> str:
        """The end of the console of a guest there, as `Sandbox.logs` has it here. ``sandbox`` is
        its name or id. Raises RemoteError."""
        found = await self._ask("logs", sandbox=sandbox)
        if not isinstance(found, str):
            raise RemoteProtocolError(f"{self.name} sent a log that makes no sense")
        return found

    async def send_save(
        self,
        name: str | Path,
        *,
        new_name: str = "",
        replace: bool = False,
        trusted: bool = False,
        progress: Progress | None = None,
    ) -> MovedSave:
        """Send a save of this machine, given by its name or path, to the other one: only files of
        it, and of the image below it, that are not there yet. After a break of the connection the
        transfer goes on; files that have arrived are not sent again, not even by a later call.

        ``new_name``, ``replace`` and ``trusted`` are as in `quicksand.saves.import_`, on that
        machine. ``progress`` is called with a stage, the bytes done and the total bytes. It is no
        error if the save is there already, under that name. Raises SaveNotFoundError, SaveError,
        BundleError, ImageError, HostError (DiskSpaceError, also of that machine), RemoteError.
        After an error there is no save there, unless the connection broke: then it is unknown."""
        terms = Terms(name=new_name, replace=replace, trusted=trusted)
        return await Mover(self.shared(), paths(), terms, progress).send(name)

    async def fetch_save(
        self,
        name: str,
        *,
        new_name: str = "",
        replace: bool = False,
        trusted: bool = False,
        progress: Progress | None = None,
    ) -> MovedSave:
        """Fetch a save of that machine, as `send_save` sends one. Raises as that does."""
        terms = Terms(name=new_name, replace=replace, trusted=trusted)
        return await Mover(self.shared(), paths(), terms, progress).fetch(name)

    async def _ask(self, method: str, **params: Any) -> Any:
        shared = self.sharing()
        try:
            with shared.use():
                await require_capability(shared)
                return await ask(shared, method, **params)
        finally:
            await shared.ended()


def find_host(host: str | RemoteHost) -> RemoteHost:
    """Return the machine that a caller means. Raises ConfigError."""
    return host if isinstance(host, RemoteHost) else RemoteHost(host)

"""`RemoteHost`: another machine, by its address, for `Sandbox(host=…)` and what it has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from quicksand.base.errors import ConfigError, RemoteProtocolError, RemoteRefusedError
from quicksand.hosted.calling import ask
from quicksand.hosted.codec import ForeignValueError, decode
from quicksand.hosted.known import HostedSandbox
from quicksand.hosted.protocol import CAPABILITY, GRACE_MAX_S, GRACE_S
from quicksand.records.known_hosts import find_address
from quicksand.remote.destination import SCHEME, Destination
from quicksand.remote.shared import SharedConnection, SharedConnections

STDIN = 0


class RemoteHost:
    """Another machine that has quicksand-tui, reached by the user's own ssh.

    ::

        box = RemoteHost("ssh://me@box", grace=5)
        async with Sandbox(image="debian", host=box) as sandbox:
            ...

    All objects of one program that lead to the same machine share one ssh, which is started when it
    is needed first, and ends with the last sandbox that uses it.
    """

    def __init__(self, address: str, *, grace: float = GRACE_S) -> None:
        """``address``: ``ssh://[USER@]HOST[:PORT]``, or a name in the config's table [hosts].
        ``grace``: seconds without this program after which sandboxes that belong to it end; 3600 at
        most. Raises ConfigError."""
        if not isinstance(address, str):
            raise ConfigError(f"{address!r:.80} is no address of a machine")
        if isinstance(grace, bool) or not isinstance(grace, int | float):
            raise ConfigError(f"grace must be a number of seconds, not {grace!r:.80}")
        if not 0 <= grace <= GRACE_MAX_S:
            raise ConfigError(f"grace must be 0 to {GRACE_MAX_S:g} seconds, not {grace}")
        found = address if address.startswith(SCHEME) else find_address(address)
        self._destination = Destination.parse(found)
        self.grace = float(grace)

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

    def shared(self) -> SharedConnection:
        """The connection of this program (its event loop) to the machine."""
        return SharedConnections.find(self._destination, asks=os.isatty(STDIN))

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

    async def _ask(self, method: str, **params: Any) -> Any:
        shared = self.shared()
        try:
            with shared.use():
                await require_capability(shared)
                return await ask(shared, method, **params)
        finally:
            await shared.ended()


async def require_capability(shared: SharedConnection, capability: str = CAPABILITY) -> None:
    """Connect. Raises RemoteRefusedError if the other machine cannot do what is needed."""
    await shared.link()
    if not shared.can(capability):
        raise RemoteRefusedError(
            f"quicksand-tui on {shared.destination.short} is too old for {capability!r}",
            code="unsupported",
            hint="install the same version on both machines",
        )


def find_host(host: str | RemoteHost) -> RemoteHost:
    """The machine that a caller means. Raises ConfigError."""
    return host if isinstance(host, RemoteHost) else RemoteHost(host)

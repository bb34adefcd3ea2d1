"""The shares that a guest has mounted, by its own report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quicksand.base.errors import AgentRefusedError
from quicksand.guest.agent.session import Ask
from quicksand.mounts.shares import stream_of

DETACH_S = 20.0
"""Seconds for a guest to detach mounts, or to list them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestShares:
    """A guest's use of the shares of a machine."""

    mounted: frozenset[str] = frozenset()
    """The names of those that are mounted."""
    mounting: frozenset[str] = frozenset()
    """The names of those that its kernel is mounting."""
    connected: frozenset[int] | None = None
    """The streams to which its kernel has a connection, for a present or former mount; None if it
    cannot tell, as an older agent."""

    @property
    def in_use(self) -> frozenset[int]:
        """The streams on which its client may still be busy with a server of the past."""
        return streams_of(self.mounted) | (self.connected or frozenset())


def streams_of(names: Iterable[str]) -> frozenset[int]:
    return frozenset(number for name in names if (number := stream_of(name)) is not None)


async def ask_for_shares(ask: Ask) -> GuestShares:
    """Ask a guest for its use of the shares. Raises AgentError."""
    try:
        reply = await ask("shares", {}, DETACH_S)
    except AgentRefusedError:
        return GuestShares()  # an agent that is older than mounts has none

    def ours(names: object) -> frozenset[str]:
        found = names if isinstance(names, list) else []
        return frozenset(
            name for name in found if isinstance(name, str) and stream_of(name) is not None
        )

    connected = reply.get("connected")
    return GuestShares(
        mounted=ours(reply.get("shares")),
        mounting=ours(reply.get("mounting")),
        connected=streams_of(ours(connected)) if isinstance(connected, list) else None,
    )

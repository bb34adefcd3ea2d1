"""A connection that the guest's agent carries on a channel, until one side ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from quicksand.base.errors import (
    AgentTooOldError,
)
from quicksand.guest.agent.wire import Stream

if TYPE_CHECKING:
    from types import TracebackType

    from quicksand.guest.agent.channel import Channel
    from quicksand.guest.agent.session import Session


class Carried:
    """A channel and its session. Leaving ``async with`` closes it."""

    def __init__(self, session: Session, channel: Channel) -> None:
        self._session = session
        self._channel = channel

    def close(self) -> None:
        """End it. Idempotent."""
        end_channel(self._session, self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def open_channel(
    session: Session,
    method: str,
    params: dict[str, Any],
    *,
    streams: tuple[Stream, ...] = (Stream.STDOUT,),
) -> Channel:
    """Open the channel of a request that the agent has answered. Raises AgentRefusedError,
    StateError if too many are open."""
    channel = session.open(method, params, streams=streams)
    try:
        await channel.opened()
    except BaseException:
        end_channel(session, channel)
        raise
    return channel


def end_channel(session: Session, channel: Channel) -> None:
    """End a channel, whatever its state. Idempotent."""
    if channel.has_ended:
        channel.close()
    else:
        session.cancel(channel)


def require_able(session: Session, capability: str, what: str) -> None:
    """Raise AgentTooOldError unless the agent has the capability. An agent in a checkpoint may be
    older."""
    if not session.can(capability):
        raise AgentTooOldError(
            f"the guest's agent is too old to carry {what}",
            hint="stop the sandbox and start it again",
        )

"""Connections to services in a guest, carried by its agent: they need no network card."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from quicksand.base.errors import AgentError, AgentProtocolError
from quicksand.guest.agent import raw
from quicksand.guest.agent.wire import Stream

if TYPE_CHECKING:
    from types import TracebackType

    from quicksand.guest.agent.channel import Channel
    from quicksand.guest.agent.session import Session

CANCEL_S = 5.0
"""The agent shuts a connection within milliseconds."""


class GuestConnection:
    """A connection to a service in the guest. Bytes are read and written at the other side's pace.

    One task may read while another one writes. `close` is to be called at the end, or use it as an
    asynchronous context manager.
    """

    def __init__(self, session: Session, channel: Channel) -> None:
        self._session = session
        self._channel = channel
        self._is_over = False
        """Whether nothing more will arrive."""
        self._is_shut = False
        self._has_ended = False

    async def read(self) -> bytes:
        """Return the next bytes, some hundred KiB at most; b"" once the service has sent its last.

        Raises AgentRefusedError if the connection was broken off, with the guest's ``errno``, and
        RevertedError or AgentUnreachableError if the machine is gone.
        """
        while not self._is_over:
            item = await self._channel.read()
            if isinstance(item, tuple):
                return item[1]
            self._take(item)
        return b""

    def _take(self, event: dict[str, Any]) -> None:
        match event.get("event"):
            case "eof":
                self._is_over = True
            case "end":
                self._is_over = self._has_ended = True
                if (error := event.get("error")) is not None:
                    raise self._channel.refusal(error, "the connection was broken off")
            case other:
                raise AgentProtocolError(f"the agent sent the event {other!r} of a connection")

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes, waiting while the service does not take them. Raises as `read`; what the
        service has closed is reported by `read`."""
        await self._channel.write(data)

    def write_eof(self) -> None:
        """Tell the service that nothing more comes. It may still send. Idempotent."""
        if not self._is_shut:
            self._is_shut = True
            self._channel.write_eof()

    async def close(self) -> None:
        """Shut the connection; unless both sides have ended, the service sees a reset. Idempotent.
        """
        if not self._has_ended:
            self._has_ended = self._is_over = True
            try:
                await self._session.request(
                    "cancel", {"id": self._channel.number}, timeout=CANCEL_S
                )
            except AgentError:
                pass  # then the session has ended, and with it the connection
        self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def dial(session: Session, address: dict[str, Any]) -> GuestConnection:
    """Connect to ``address``, the parameters of the agent's `dial`. Raises AgentRefusedError with
    the guest's ``errno``, AgentUnreachableError."""
    channel = session.open("dial", address, streams=(Stream.STDOUT,))
    try:
        await channel.opened()
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError):
            session.send_cancel(channel.number)
        channel.close()
        raise
    return GuestConnection(session, channel)

"""Watches terminals in a guest without being noticed there or by other clients."""

from __future__ import annotations

from collections.abc import AsyncIterator

from quicksand.base.errors import AgentProtocolError, StateError
from quicksand.guest.agent import values
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.wire import Stream
from quicksand.guest.execution import open_command
from quicksand.guest.shell import REPLAY_MAX, Piece, Shell

CAPABILITY = "pty_watch"


class WatchedShell:
    """A look at a terminal: it types nothing, sets no size, is not counted among the terminal's
    clients, and never holds its program back. Made by `Sandbox.watch_shell`."""

    def __init__(self, shell: Shell, columns: int, rows: int, repeated: int = 0) -> None:
        self._shell = shell
        self.repeated = repeated
        """Bytes of earlier output that come first."""
        self.columns = columns
        """The terminal's width when the look began; `Sandbox.shells` tells the present one."""
        self.rows = rows

    @classmethod
    async def open(cls, session: Session, name: str, *, replay: int) -> WatchedShell:
        """Look at the terminal with the id ``name``, beginning with the last ``replay`` bytes of
        its output. Raises AgentRefusedError (code "not_found"), and StateError if the guest's
        agent is older than this."""
        if not session.can(CAPABILITY):
            raise StateError(
                "the guest's agent is too old to have its terminals watched",
                hint="stop the sandbox and start it again",
            )
        replay = min(replay, REPLAY_MAX)
        params = {"session": name, "watch": True, "replay": replay}
        channel = open_command(session, "pty_attach", params, streams=(Stream.STDOUT,))
        try:
            reply = await channel.opened()
            try:
                size = values.whole(reply.get("cols")), values.whole(reply.get("rows"))
                repeated = values.whole(reply.get("replay"))
            except ValueError:
                raise AgentProtocolError("the agent shows a terminal without a size") from None
        except BaseException:
            channel.close()
            raise
        return cls(Shell(session, channel, name, repeated), *size, repeated)

    def pieces(self) -> AsyncIterator[Piece]:
        """Yield its output until its program ends, as `Shell.pieces` does. Of output that is not
        read in time, only the last part comes (`take_skipped`)."""
        return self._shell.pieces()

    def take_skipped(self) -> bool:
        """Whether output was left out since the last call."""
        skipped, self._shell.lagged = self._shell.lagged, False
        return skipped

    async def close(self) -> None:
        """End the look."""
        await self._shell.detach()

"""Terminals in a guest. The agent holds them open, so they outlive their clients. A watcher sees
one without being noticed there or by other clients."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from quicksand.base.arguments import checked_methods
from quicksand.base.errors import AgentProtocolError, StateError
from quicksand.guest.agent import values
from quicksand.guest.agent.channel import Channel
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.wire import Stream
from quicksand.guest.execution import ExitStatus, command_params, open_command

LISTED_MAX = 1000
NAME_MAX = 64
"""Bytes."""

ARGUMENTS_MAX = 100
ARGUMENT_MAX = 1024
"""Bytes."""

PATH_MAX = 4096
"""Bytes; Linux's own limit."""

REPLAY_MAX: Final = 256 * 1024
"""Bytes of earlier output, at most, that a client gets when it reconnects."""

QUIET_S: Final = 0.5
"""Seconds of silence after which the replay of an older agent counts as complete, since such an
agent does not say how long it is."""


class Piece(NamedTuple):
    """A part of a terminal's output."""

    data: bytes
    """Empty exactly once, when the replay is complete."""
    replayed: bool
    """Whether it was written before this client connected: show it, but answer no queries in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellInfo:
    """A terminal as the agent lists it. All text comes from the guest."""

    session: str
    """The agent's id for it, for `Sandbox.attach_shell`."""
    pid: int
    argv: tuple[str, ...]
    columns: int
    rows: int
    attached: int
    """The number of clients that are connected to it."""
    created: float
    """Unix time, by the guest's clock."""
    alive: bool
    name: str = ""
    """The name given by the client that opened it."""
    foreground: tuple[str, ...] = ()
    """The command line of the program in the foreground; () if it is not known."""
    cwd: str = ""
    """The directory of that program; "" if it is not known."""

    @classmethod
    def parse(cls, value: object) -> ShellInfo:
        """Parse one entry of the agent's list. Raises AgentProtocolError."""
        try:
            assert isinstance(value, dict)
            return cls(
                session=values.text(value["session"], NAME_MAX),
                pid=values.whole(value["pid"]),
                argv=tuple(
                    values.text(word, ARGUMENT_MAX) for word in list(value["argv"])[:ARGUMENTS_MAX]
                ),
                columns=values.whole(value["cols"]),
                rows=values.whole(value["rows"]),
                attached=values.whole(value["attached"]),
                created=values.real(value["created_unix"]),
                alive=value["alive"] is True,
                name=values.text(value.get("name") or "", NAME_MAX),
                foreground=tuple(
                    values.text(word, ARGUMENT_MAX)
                    for word in list(value.get("foreground") or ())[:ARGUMENTS_MAX]
                ),
                cwd=values.text(value.get("cwd") or "", PATH_MAX),
            )
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise AgentProtocolError("the agent lists a terminal that makes no sense") from error


@checked_methods
class Shell:
    """A connection to a terminal. `detach` leaves the terminal running; `close` ends it.

    Its methods raise AgentUnreachableError or MachineError if the guest is gone, AgentRefusedError
    if the terminal has ended.
    """

    def __init__(
        self, session: Session, channel: Channel, name: str, replay: int | None = 0
    ) -> None:
        """``replay``: bytes of earlier output that come first; None if that is unknown."""
        self._session = session
        self._channel = channel
        self._replay = REPLAY_MAX if replay is None else min(replay, REPLAY_MAX)
        self._is_exact = replay is not None
        self.session = name
        """The agent's id for it, for `Sandbox.attach_shell`."""
        self.status: ExitStatus | None = None
        """How its program ended; None while it runs."""
        self.lagged = False
        """Whether output was dropped because this client read more slowly than others."""

    @classmethod
    async def open(
        cls,
        session: Session,
        command: str | Sequence[str] | None,
        *,
        columns: int,
        rows: int,
        cwd: str | None,
        user: str | None,
        env: Mapping[str, str] | None,
        name: str = "",
        entrypoint: bool = False,
    ) -> Shell:
        """Open a new terminal; see `Sandbox.shell`. Raises AgentRefusedError, ConfigError."""
        if entrypoint and command is None:
            command = ()
        params = command_params(
            command if command is not None else "x",
            timeout=None,
            cwd=cwd,
            shell="/bin/sh",
            user=user,
            env=env,
            defaults=True,
            entrypoint=entrypoint,
        )
        if command is None:
            params = {k: v for k, v in params.items() if k not in ("command", "shell")}
        params |= {"cols": columns, "rows": rows, **({"name": name} if name else {})}
        return await cls._attached(session, "pty_open", params)

    @classmethod
    async def attach(cls, session: Session, name: str, *, columns: int, rows: int) -> Shell:
        """Reconnect to the terminal with the id ``name``. Raises AgentRefusedError (code
        "not_found")."""
        params = {"session": name, "cols": columns, "rows": rows, "replay": REPLAY_MAX}
        return await cls._attached(session, "pty_attach", params)

    @classmethod
    async def _attached(cls, session: Session, method: str, params: dict[str, Any]) -> Shell:
        channel = open_command(session, method, params, streams=(Stream.STDOUT,))
        try:
            reply = await channel.opened()
            try:
                name = values.text(reply.get("session", params.get("session")), NAME_MAX)
            except ValueError:
                raise AgentProtocolError("the agent opened a terminal without a name") from None
        except BaseException:
            channel.close()
            raise
        if method == "pty_open":
            return cls(session, channel, name)
        replay = reply.get("replay")
        known = isinstance(replay, int) and not isinstance(replay, bool) and replay >= 0
        return cls(session, channel, name, replay if known else None)

    @staticmethod
    async def list(session: Session) -> builtins.list[ShellInfo]:
        """The terminals that are open in the guest."""
        found = (await session.request("pty_list")).get("sessions")
        if not isinstance(found, list):
            raise AgentProtocolError("the agent's list of terminals is no list")
        return [ShellInfo.parse(value) for value in found[:LISTED_MAX]]

    async def output(self) -> AsyncIterator[bytes]:
        """Yield its output until its program ends; then `status` is set.

        Raises AgentUnreachableError or MachineError if the guest is gone.
        """
        async for piece in self.pieces():
            if piece.data:
                yield piece.data

    async def pieces(self) -> AsyncIterator[Piece]:
        """Like `output`, but tells replayed output from new output."""
        if not self._replay:
            yield Piece(b"", replayed=False)
        while True:
            item = await self._read()
            if isinstance(item, tuple):
                repeated, new = item[1][: self._replay], item[1][self._replay :]
                if repeated:
                    self._replay -= len(repeated)
                    yield Piece(repeated, replayed=True)
                    if not self._replay:
                        yield Piece(b"", replayed=False)
                if new:
                    yield Piece(new, replayed=False)
            elif item is None or item.get("event") == "lagged":
                self.lagged = self.lagged or item is not None
                if self._replay:
                    # After a gap all output is new.
                    self._replay = 0
                    yield Piece(b"", replayed=False)
            elif item.get("event") == "exit":
                self.status = ExitStatus.from_event(item)
                self._channel.close()
                return

    async def _read(self) -> tuple[Stream, bytes] | dict[str, Any] | None:
        """Return the next message; None if silence ends an older agent's replay."""
        if self._is_exact or not self._replay:
            return await self._channel.read()
        try:
            async with asyncio.timeout(QUIET_S):
                return await self._channel.read()
        except TimeoutError:
            return None

    async def write(self, data: bytes) -> None:
        """Send ``data`` as if it were typed."""
        await self._channel.write(data)

    async def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size in characters."""
        await self._session.request(
            "pty_resize", {"session": self.session, "cols": columns, "rows": rows}
        )

    async def signal(self, name: str) -> None:
        """Send a signal such as "INT" to its foreground process group."""
        await self._session.request("pty_signal", {"session": self.session, "signal": name})

    async def detach(self) -> None:
        """Disconnect and leave it running."""
        await self._session.request("pty_detach", {"id": self._channel.number})
        self._channel.close()

    async def close(self) -> None:
        """End it with SIGHUP, and with SIGKILL 2 s later."""
        await self._session.request("pty_close", {"session": self.session})
        self._channel.close()


WATCHING = "pty_watch"


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
        if not session.can(WATCHING):
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

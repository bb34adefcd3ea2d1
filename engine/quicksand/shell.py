"""Terminals in a guest. They belong to the agent: they live on when the client goes."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quicksand.agent.session import Channel, Session
from quicksand.errors import AgentProtocolError
from quicksand.execution import ExitStatus, command_params

LISTED_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellInfo:
    """A terminal as the agent lists it. All text comes from the guest."""

    session: str
    pid: int
    argv: tuple[str, ...]
    columns: int
    rows: int
    attached: int
    created: float
    alive: bool

    @classmethod
    def parse(cls, value: object) -> ShellInfo:
        """Raises AgentProtocolError."""
        try:
            assert isinstance(value, dict)
            return cls(
                session=str(value["session"])[:64],
                pid=int(value["pid"]),
                argv=tuple(str(word)[:1000] for word in list(value["argv"])[:100]),
                columns=int(value["cols"]),
                rows=int(value["rows"]),
                attached=int(value["attached"]),
                created=float(value["created_unix"]),
                alive=value["alive"] is True,
            )
        except (AssertionError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise AgentProtocolError("the agent lists a terminal that makes no sense") from error


class Shell:
    """An attached terminal. `detach` leaves it running; `close` ends it."""

    def __init__(self, session: Session, channel: Channel, name: str) -> None:
        self._session = session
        self._channel = channel
        self.session = name
        """The agent's name for it, for `Sandbox.attach_shell`."""
        self.status: ExitStatus | None = None
        """Set when its program has ended."""
        self.lagged = False
        """Output was left out because this client was too slow beside others."""

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
    ) -> Shell:
        """Open a new terminal. Raises AgentRefusedError, ConfigError."""
        params = command_params(
            command if command is not None else "x",
            timeout=None,
            cwd=cwd,
            shell="/bin/sh",
            user=user,
            env=env,
        )
        if command is None:
            params = {k: v for k, v in params.items() if k not in ("command", "shell")}
        params |= {"cols": columns, "rows": rows}
        return await cls._attached(session, "pty_open", params)

    @classmethod
    async def attach(cls, session: Session, name: str, *, columns: int, rows: int) -> Shell:
        """Come back to a terminal. Raises AgentRefusedError (code "not_found")."""
        params = {"session": name, "cols": columns, "rows": rows}
        return await cls._attached(session, "pty_attach", params)

    @classmethod
    async def _attached(cls, session: Session, method: str, params: dict[str, Any]) -> Shell:
        channel = session.open(method, params)
        try:
            reply = await channel.opened()
            name = reply.get("session", params.get("session"))
            if not isinstance(name, str):
                raise AgentProtocolError("the agent opened a terminal without a name")
        except BaseException:
            channel.close()
            raise
        return cls(session, channel, name)

    @staticmethod
    async def list(session: Session) -> builtins.list[ShellInfo]:
        """The guest's terminals."""
        found = (await session.request("pty_list")).get("sessions")
        if not isinstance(found, list):
            raise AgentProtocolError("the agent's list of terminals is no list")
        return [ShellInfo.parse(value) for value in found[:LISTED_MAX]]

    async def output(self) -> AsyncIterator[bytes]:
        """Its output, until its program ends; then `status` is set.

        Raises AgentUnreachableError or MachineError when the guest is gone.
        """
        while True:
            item = await self._channel.read()
            if isinstance(item, tuple):
                yield item[1]
            elif item.get("event") == "exit":
                self.status = ExitStatus.from_event(item)
                self._channel.close()
                return
            elif item.get("event") == "lagged":
                self.lagged = True

    async def write(self, data: bytes) -> None:
        """Type ``data``."""
        await self._channel.write(data)

    async def resize(self, columns: int, rows: int) -> None:
        """Tell its program the new size."""
        await self._session.request(
            "pty_resize", {"session": self.session, "cols": columns, "rows": rows}
        )

    async def signal(self, name: str) -> None:
        """Signal its foreground process group."""
        await self._session.request("pty_signal", {"session": self.session, "signal": name})

    async def detach(self) -> None:
        """Leave it running."""
        await self._session.request("pty_detach", {"id": self._channel.number})
        self._channel.close()

    async def close(self) -> None:
        """End it: SIGHUP, and SIGKILL 2 s later."""
        await self._session.request("pty_close", {"session": self.session})
        self._channel.close()

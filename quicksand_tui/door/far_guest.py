"""A guest of another machine, reached through its agent's bytes, which that machine relays."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from quicksand.base.errors import QuicksandError, RemoteUnreachableError, StateError
from quicksand.guest import execution
from quicksand.guest.shell import Shell, ShellInfo, WatchedShell
from quicksand.life.sandbox_stats import GuestProcess, SandboxStats, read_guest
from quicksand.qemu.host_usage import HostUsage
from quicksand.remote.agents import agent_session
from quicksand.things.status import Status

from quicksand_tui.model.shown_sandboxes import at_host

NOT_KNOWN = HostUsage(cpu_seconds=0.0, rss=0, disk=0, uptime_s=0.0)
"""Stands for a sandbox's use of another machine, which only that machine tells."""

if TYPE_CHECKING:
    from quicksand.guest.agent.session import Session
    from quicksand.guest.execution import Command

    from quicksand_tui.door.far_host import FarHost
    from quicksand_tui.door.reach import Guest
    from quicksand_tui.door.terminal_place import Right


class FarGuest:
    """Implements `door.reach.Guest` on a session with the guest's agent."""

    def __init__(self, host: FarHost, sandbox_id: str, session: Session) -> None:
        self._host = host
        self._id = sandbox_id
        self._session = session

    @property
    def is_running(self) -> bool:
        view = self._host.sandbox(self._id)
        return view is not None and not view.away and view.state is Status.RUNNING

    async def _opened(self) -> Session:
        return self._session

    async def shells(self) -> list[ShellInfo]:
        return await Shell.list(self._session)

    async def shell(
        self, *, columns: int, rows: int, cwd: str | None, env: Mapping[str, str], name: str
    ) -> Shell:
        return await Shell.open(
            self._session,
            None,
            columns=columns,
            rows=rows,
            cwd=cwd,
            user=None,
            env=env,
            name=name,
        )

    async def attach_shell(self, session: str, *, columns: int, rows: int) -> Shell:
        return await Shell.attach(self._session, session, columns=columns, rows=rows)

    async def watch_shell(self, session: str, *, replay: int) -> WatchedShell:
        return await WatchedShell.open(self._session, session, replay=replay)

    async def spawn(self, command: str, *, timeout: float | None) -> Command:
        params = execution.command_params(
            command,
            timeout=timeout,
            cwd=None,
            shell="/bin/sh",
            user=None,
            env=None,
            defaults=True,
        )
        return await execution.spawn(self._session, params, stdin=False, detach=False)

    async def stats(self) -> SandboxStats:
        return await read_guest(NOT_KNOWN, self._opened)

    async def processes(self) -> list[GuestProcess]:
        return GuestProcess.parse_all(await self._session.request("processes"))


@contextlib.asynccontextmanager
async def reach_there(host: FarHost, sandbox_id: str) -> AsyncIterator[Guest]:
    """Reaches a guest of another machine, by its id there. Raises RemoteError, AgentError."""
    async with agent_session(host.link, sandbox_id) as session:
        yield FarGuest(host, sandbox_id, session)


class FarRight:
    """The right to answer the queries of another machine's terminal. A client has it that opened
    the terminal, or was its only client."""

    def __init__(self, *, is_held: bool) -> None:
        self._is_held = is_held

    def take(self) -> bool:
        return self._is_held

    def takes_over(self) -> bool:
        return self._is_held

    def close(self) -> None: ...


class PlaceThere:
    """Implements `door.terminal_place.SandboxPlace` for a sandbox of another machine. The far end's
    words and the connection tell its machine from others."""

    def __init__(self, host: FarHost, sandbox_id: str) -> None:
        self._host = host
        self._id = sandbox_id
        self._has_answered = False
        self._was_away = False

    @property
    def is_away(self) -> bool:
        self._was_away = not self._host.connection
        return self._was_away

    @property
    def again(self) -> str:
        return f"{self._host.name} is there again" if self._was_away else "the sandbox runs again"

    @property
    def machine(self) -> object:
        view = self._host.sandbox(self._id)
        return None if view is None else (view.run, view.origin)

    @property
    def mark(self) -> object:
        view = self._host.sandbox(self._id)
        if view is None or view.away or not view.is_live:
            return None
        return self._host.connection, view.run, view.origin

    async def runs(self) -> bool:
        view = self._host.sandbox(self._id)
        return view is not None and not view.away and view.state is Status.RUNNING

    async def starts(self) -> bool:
        view = self._host.sandbox(self._id)
        return view is not None and not view.away and view.state is Status.STARTING

    def reach(self) -> AbstractAsyncContextManager[Guest]:
        return reach_there(self._host, self._id)

    def right(self, session: str, attached: int) -> Right:
        self._has_answered = self._has_answered or not attached
        return FarRight(is_held=self._has_answered)

    def why_gone(self) -> QuicksandError | None:
        view = self._host.sandbox(self._id)
        if view is None:
            return StateError(f"{at_host(self._id, self._host.name)} was removed")
        if view.away:
            return RemoteUnreachableError(self._host.away_words)
        if not view.is_live:
            why = f": {view.error}" if view.error else ""
            return StateError(f"{view.name} is {view.state.value}{why}")
        return None

"""Work in a sandbox's guest: commands, terminals, users, and questions to the guest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from quicksand.base.effort import best_effort
from quicksand.base.errors import AgentError
from quicksand.guest import execution
from quicksand.guest.agent.session import Ask, Session, sync_guest
from quicksand.guest.execution import Command, ExecuteResult, ExitStatus, StdinSource, checked
from quicksand.life import machinery

if TYPE_CHECKING:
    from quicksand.guest.connections import GuestConnection, GuestDatagrams, GuestListener
    from quicksand.guest.directory_watch import DirectoryWatch
    from quicksand.guest.shell import Shell, ShellInfo, WatchedShell
    from quicksand.guest.users import Login, SandboxUser
    from quicksand.life.sandbox_stats import GuestProcess, SandboxStats
    from quicksand.snapshots.recognition import ShellTail
    from quicksand.things.sandbox_facts import GuestTraffic

SHELL_LOOK_S = 1.0
"""Seconds to wait for a terminal's output; a checkpoint does not wait longer for an extra."""
SHELL_KEPT = 8 * 1024
"""Bytes of a terminal's output that a checkpoint keeps."""


class GuestOf(Protocol):
    """The part of a sandbox, local or not, that is needed here: `Life` is one."""

    @property
    def can_answer(self) -> bool: ...

    @property
    def log(self) -> Path: ...

    async def session(self) -> Session: ...

    async def stats(self) -> SandboxStats: ...

    def note_command(self, command: str | Sequence[str], status: ExitStatus) -> None: ...


class InGuest:
    """Work in the guest of one sandbox. The public methods are those of `Sandbox`."""

    def __init__(self, life: GuestOf) -> None:
        self._life = life

    async def ask(self, method: str, params: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send a request to the agent, as `request` does, and return its answer."""
        return await (await self._life.session()).request(method, params, timeout=timeout)

    @property
    def asker(self) -> Ask | None:
        """`ask`, or None while the guest is stopped or paused and cannot answer."""
        return self.ask if self._life.can_answer else None

    async def sync(self) -> None:
        """Have the guest flush its page cache to its disk. Does nothing if the guest cannot answer
        or takes too long."""
        if (ask := self.asker) is not None:
            await sync_guest(ask, self._life.log)

    async def execute(
        self,
        command: str | Sequence[str],
        timeout: float | None = 30.0,
        cwd: str | None = None,
        shell: str = "/bin/sh",
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        exclusive: bool = False,
        user: str | None = None,
        *,
        stdin: StdinSource | None = None,
        env: Mapping[str, str] | None = None,
        entrypoint: bool = False,
        check: bool = False,
    ) -> ExecuteResult:
        """Run a command and wait for its end.

        ``shell`` runs a string; a list is executed directly. The command runs as root in ``/``, or
        as ``user`` in that user's home; no state is kept between calls. An image that was made of a
        container image may have another user and directory, and variables, which apply where
        nothing is given; with ``entrypoint`` its own command is run, with ``command`` as further
        words. After ``timeout`` seconds
        its processes are killed and the result has ``timed_out`` set and the output so far. The
        callbacks receive decoded text as it arrives and may be coroutine functions. An
        ``exclusive`` command is refused while another command runs. At most `KEEP_MAX` bytes of
        each stream are kept in the result (guest/execution.py). Bytes that are not UTF-8, in
        the command, ``cwd``, ``shell``, ``env`` and a text for ``stdin``, are written as
        `os.fsdecode` makes them.

        With ``check`` a command that does not exit with 0 raises CommandFailedError, which ends
        with its last output. Raises ConfigError for a bad command or timeout, AgentRefusedError if
        the command cannot be started (no such user or directory), StateError, MachineError,
        AgentUnreachableError if the guest is gone (whether the command ran is then unknown),
        RevertedError if the sandbox was reverted meanwhile. Cancelling ends the command.
        """
        source = None if stdin is None else checked(stdin)
        running = await self.spawn(
            command,
            timeout=timeout,
            cwd=cwd,
            shell=shell,
            exclusive=exclusive,
            user=user,
            env=env,
            stdin=stdin is not None,
            entrypoint=entrypoint,
        )
        result = await execution.run(
            running, stdin=source, on_stdout=on_stdout, on_stderr=on_stderr
        )
        return result.check(command) if check else result

    async def spawn(
        self,
        command: str | Sequence[str],
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        shell: str = "/bin/sh",
        exclusive: bool = False,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        detach: bool = False,
        entrypoint: bool = False,
    ) -> Command:
        """Start a command and return at once; see `Command`. Parameters and errors are those of
        `execute`. With ``detach`` the command keeps running after this process disconnects, and
        `attach_command` goes on with it.
        """
        params = execution.command_params(
            command,
            timeout=timeout,
            cwd=cwd,
            shell=shell,
            user=user,
            env=env,
            exclusive=exclusive,
            defaults=True,
            entrypoint=entrypoint,
        )
        session = await self._life.session()
        running = await execution.spawn(session, params, stdin=stdin, detach=detach)
        running.ended = lambda status: self._life.note_command(command, status)
        return running

    async def attach_command(self, name: str, *, stdin: bool = False) -> Command:
        """Go on with a command that was spawned with ``detach`` and whose client has left, by its
        `Command.name`. Output is delivered from now on; the command's end is known for up to 60 s
        after it. Raises AgentRefusedError (code "not_found", or "busy" while another client is
        connected to it), StateError if the guest's agent is too old for it."""
        return await execution.attach(await self._life.session(), name, stdin=stdin)

    async def shell(
        self,
        command: str | Sequence[str] | None = None,
        *,
        columns: int = 80,
        rows: int = 24,
        cwd: str | None = None,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        name: str = "",
        entrypoint: bool = False,
    ) -> Shell:
        """Open a terminal that runs a login shell, or ``command``, or with ``entrypoint`` the
        image's own command. It stays open in the guest until
        its program ends or it is closed; `attach_shell` reconnects to it. `shells` lists it with
        ``name``. Raises ConfigError, AgentRefusedError if it cannot be started."""
        return await machinery.Shell.open(
            await self._life.session(),
            command,
            columns=columns,
            rows=rows,
            cwd=cwd,
            user=user,
            env=env,
            name=name,
            entrypoint=entrypoint,
        )

    async def attach_shell(self, session: str, *, columns: int = 80, rows: int = 24) -> Shell:
        """Reconnect to a terminal; its latest output (at most 256 KiB) is replayed. Raises
        AgentRefusedError (code "not_found")."""
        return await machinery.Shell.attach(
            await self._life.session(), session, columns=columns, rows=rows
        )

    async def watch_shell(self, session: str, *, replay: int = 64 * 1024) -> WatchedShell:
        """Watch a terminal without being noticed: nothing is typed, and its size and its list of
        clients stay. The last ``replay`` bytes of its output come first. Raises AgentRefusedError
        (code "not_found"), and StateError if the guest's agent is too old for it."""
        return await machinery.WatchedShell.open(await self._life.session(), session, replay=replay)

    async def shells(self) -> list[ShellInfo]:
        """The terminals that are open in the guest."""
        return await machinery.Shell.list(await self._life.session())

    async def look_at_shell(self) -> ShellTail | None:
        """The end of the output of the terminal that was opened last, among those with a client if
        there are any; None if there is none, or if the guest does not answer in time."""
        if self.asker is None:
            return None
        with best_effort("look at the guest's shells", self._life.log):
            async with asyncio.timeout(SHELL_LOOK_S):
                alive = [info for info in await self.shells() if info.alive]
                if not alive:
                    return None
                last = max(alive, key=lambda info: (info.attached > 0, info.created))
                return await self._end_of(last)
        return None

    async def _end_of(self, info: ShellInfo) -> ShellTail:
        watched = await self.watch_shell(info.session, replay=SHELL_KEPT)
        try:
            output = b""
            if watched.repeated:
                async for piece in watched.pieces():
                    output += piece.data
                    if len(output) >= watched.repeated:
                        break
        finally:
            await watched.close()
        program = " ".join(info.foreground or info.argv)
        return machinery.ShellTail(
            program=program, columns=watched.columns, rows=watched.rows, output=output
        )

    async def create_user(self, name: str, *, sudo: bool = False) -> SandboxUser:
        """Create a user with a home directory; ``sudo`` allows sudo without a password. The result
        runs commands as this user. Raises AgentRefusedError (code "exists") if the user exists."""
        reply = await self.request("create_user", {"name": name, "sudo": sudo})
        return machinery.SandboxUser.parse(self, name, reply)

    async def delete_user(self, name: str, *, remove_home: bool = True) -> None:
        """Delete a user. Raises AgentRefusedError (code "not_found") if there is none."""
        await self.request("delete_user", {"name": name, "remove_home": remove_home})

    async def find_user(self, name: str | None = None) -> Login:
        """Describe a user of the guest, given by name or number; without either, the image's user
        or root. Raises AgentRefusedError (code "not_found")."""
        reply = await self.request("find_user", {} if name is None else {"user": name})
        return machinery.Login.parse(reply)

    async def dial(
        self,
        port: int | None = None,
        *,
        host: str = "127.0.0.1",
        path: str | None = None,
        user: str | None = None,
    ) -> GuestConnection:
        """Connect to a program in the guest, by way of the agent: that needs no network card, and
        reaches programs on the guest's own loopback. With ``path`` it is a Unix socket, opened with
        the rights of ``user``, by default the image's user or root. A ``host`` other than the guest
        is reached from the guest.

        Raises AgentRefusedError with the guest's ``errno`` if nobody listens there (ECONNREFUSED,
        ENOENT), if the name is not known (code "not_found") or if there is no answer within 10 s;
        ConfigError for what is no address; StateError if too many are open, some 300, or the
        guest's agent is too old; and as `execute` if the guest is gone."""
        address = machinery.address(port, host, path, user)
        return await machinery.dial(await self._life.session(), address)

    async def dial_udp(self, port: int, *, host: str = "127.0.0.1") -> GuestDatagrams:
        """Make a UDP socket in the guest that is connected to a port of its own loopback, or of a
        ``host`` as the guest reaches it. There is no error if nobody listens there. Otherwise
        raises as `dial`."""
        address = machinery.address(port, host, None, None)
        return await machinery.dial_udp(await self._life.session(), address)

    async def listen(
        self,
        port: int | None = None,
        *,
        host: str = "127.0.0.1",
        path: str | None = None,
        user: str | None = None,
    ) -> GuestListener:
        """Listen in the guest, for programs there: at a port of its loopback, 0 for any free one,
        or at a Unix socket, made with the rights of ``user``. Raises as `dial`, with the code
        "forbidden" for an address that others could reach."""
        address = machinery.address(port, host, path, user, least=0)
        return await machinery.listen(await self._life.session(), address)

    async def open_sftp(self, user: str | None = None) -> Command:
        """Start an SFTP server, version 3, on a command's stdin and stdout, as a user, by default
        the image's user or root. Raises as `dial`."""
        return await machinery.open_sftp(await self._life.session(), user)

    async def watch(
        self, path: str, *, recursive: bool = False, local: bool = False
    ) -> DirectoryWatch:
        """Watch a directory, and with ``recursive`` those below it on the same file system, 8192 at
        most; see `DirectoryWatch`. When this returns, the watch is active. The contents of a
        directory that appears later may be reported twice. ``local`` refuses a directory on a
        network file system, since changes by its other hosts are not reported.

        Raises AgentRefusedError with the codes "not_found", "bad_request" (errno ENOTDIR),
        "too_many" and "unsupported" (``local``); ConfigError for what is no path; StateError if too
        many are open or the guest's agent is too old; and as `execute` if the guest is gone."""
        session = await self._life.session()
        return await machinery.watch(session, path, recursive=recursive, local=local)

    async def wait_disconnected(self) -> AgentError:
        """Connect to the guest's agent, wait until that connection ends, and return why: the
        sandbox was reverted (RevertedError) or stopped, or it crashed. Raises as `execute` if there
        is no connection to begin with."""
        return await (await self._life.session()).wait_closed()

    async def request(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float = 30.0
    ) -> dict[str, Any]:
        """Call a method of the guest's agent directly (docs/internals/agent-protocol.md) and return
        its reply. ``timeout`` is in seconds. Raises AgentRefusedError with the protocol's code."""
        return await self.ask(method, params or {}, timeout)

    async def ping(self) -> float:
        """The time of one round trip to the guest's agent, in seconds."""
        started = time.perf_counter()
        await self.request("ping")
        return time.perf_counter() - started

    async def stats(self) -> SandboxStats:
        """CPU, memory and disk that the sandbox uses on the host and within the guest."""
        return await self._life.stats()

    async def traffic(self) -> GuestTraffic | None:
        """The bytes that the guest reports as received and sent since it booted; None if it reports
        none."""
        return await machinery.read_traffic(machinery.GuestFiles(self._life.session))

    async def processes(self) -> list[GuestProcess]:
        """The guest's processes, as the guest reports them."""
        return machinery.GuestProcess.parse_all(await self.request("processes"))

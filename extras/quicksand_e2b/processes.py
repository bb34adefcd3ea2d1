"""The processes of one sandbox that were started for clients."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from quicksand import AgentRefusedError, QuicksandError, Sandbox

from quicksand_e2b.errors import RpcError, is_too_old, rpc_error
from quicksand_e2b.fanout import LISTENERS_MAX, Cut, Listener
from quicksand_e2b.lines import Line, Lines
from quicksand_e2b.process import (
    CommandSource,
    Facts,
    FoundSource,
    Process,
    Source,
    TerminalSource,
    began,
)
from quicksand_e2b.process_list import PROCESSES_MAX, ProcessList
from quicksand_e2b.tasks import Tasks

REMEMBERED_S = 30.0
"""Seconds for which the end of a process is told to clients that connect late."""

REMEMBERED_MAX = 100

BASH = "/bin/bash"
SHELL = "/bin/sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A process to be started."""

    config: Mapping[str, Any]
    """The values that clients give, and are told again: ``cmd``, ``args``, ``envs``, ``cwd``."""
    user: str
    env: Mapping[str, str]
    """All its variables."""
    tag: str
    has_stdin: bool
    terminal: tuple[int, int] | None
    """Columns and rows; None if it has no terminal."""
    timeout_s: float | None


async def _begin(guest: Sandbox, argv: list[str], order: Order) -> tuple[Facts, Source]:
    cwd, user, env, timeout_s = order.config.get("cwd"), order.user, order.env, order.timeout_s
    config = dict(order.config)
    if order.terminal is None:
        stdin = order.has_stdin
        command = await guest.spawn(
            argv, timeout=timeout_s, cwd=cwd, user=user, env=env, stdin=stdin, detach=True
        )
        facts = Facts(
            pid=command.pid, tag=order.tag, config=config, command=command.name, has_stdin=stdin
        )
        return facts, CommandSource(command, facts)
    columns, rows = order.terminal
    shell = await guest.shell(argv, columns=columns, rows=rows, cwd=cwd, user=user, env=env)
    listed = {found.session: found.pid for found in await guest.shells()}
    facts = Facts(
        pid=listed.get(shell.session, 0),
        tag=order.tag,
        config=config,
        session=shell.session,
        deadline=None if timeout_s is None else time.time() + timeout_s,
    )
    return facts, TerminalSource(guest, shell, facts)


class Processes:
    """Starts processes, finds them again by number or tag, and lists them on disk, so that another
    server finds those that run."""

    def __init__(
        self,
        guest: Sandbox,
        connect: Callable[[], Sandbox],
        listed: ProcessList,
        tasks: Tasks,
    ) -> None:
        """``connect`` makes another connection to the same guest."""
        self._guest = guest
        self._lines = Lines(guest, connect)
        self._tasks = tasks
        self._list = listed
        self._running: dict[int, Process] = {}
        self._ended: dict[int, Process] = {}
        self._earlier: dict[int, Facts] = self._list.read()
        """Processes of another server, or of a connection that broke, not looked for yet."""
        self._finding = asyncio.Lock()

    async def start(self, order: Order) -> tuple[Process, Listener]:
        """Starts a process. When this returns, another server would find it. Raises RpcError,
        QuicksandError."""
        if len(self._running) >= PROCESSES_MAX:
            raise RpcError("resource_exhausted", f"{PROCESSES_MAX} processes run in this sandbox")
        argv = [order.config["cmd"], *order.config["args"]]
        try:
            return await self._start(argv, order)
        except AgentRefusedError as error:
            if argv[0] != BASH or error.parameter != "argv" or error.code != "not_found":
                raise _cannot_start(error) from error
        try:
            argv[0] = SHELL
            return await self._start(argv, order)
        except AgentRefusedError as error:
            raise _cannot_start(error) from error

    async def _start(self, argv: list[str], order: Order) -> tuple[Process, Listener]:
        line = self._lines.take()
        try:
            facts, source = await _begin(line.sandbox, argv, order)
        except BaseException:
            self._lines.give_back(line)
            raise
        taken = self._take(Process(facts, source, self._guest), line)
        await self._list.written()
        return taken

    def _take(self, process: Process, line: Line) -> tuple[Process, Listener]:
        """Begins to read a process, with a listener from its start on."""
        listener = process.listen()
        pid = process.facts.pid
        self._ended.pop(pid, None)
        self._earlier.pop(pid, None)
        self._running[pid] = process
        self._tasks.start(self._run(process, line), f"api-process-{pid}")
        self._list.put(self._all())
        self._tasks.start(self._note_begin(process), f"api-process-begin-{pid}")
        return process, listener

    async def _run(self, process: Process, line: Line) -> None:
        try:
            await process.run(self._has_ended)
        finally:
            self._lines.give_back(line)
            if self._running.get(process.facts.pid) is process:
                # The connection broke, and the process may well go on: it is looked for again.
                del self._running[process.facts.pid]
                self._earlier[process.facts.pid] = process.facts

    async def _note_begin(self, process: Process) -> None:
        """Notes when the process began, unless it is over by then, as most are."""
        await asyncio.sleep(0.5)
        if process.facts.pid not in self._running or process.facts.began is not None:
            return
        with contextlib.suppress(QuicksandError):
            at = await began(self._guest, process.facts.pid)
            process.facts = replace(process.facts, began=at)
            self._list.put(self._all())

    def _has_ended(self, process: Process) -> None:
        self._running.pop(process.facts.pid, None)
        self._ended[process.facts.pid] = process
        while len(self._ended) > REMEMBERED_MAX:
            del self._ended[next(iter(self._ended))]
        self._list.put(self._all())

    def _all(self) -> list[Facts]:
        return [*self._earlier.values(), *(found.facts for found in self._running.values())]

    # Finding them

    async def require(self, pid: int | None, tag: str) -> Process:
        """Returns a running process, by its number or its tag. Raises RpcError ("not_found")."""
        await self.find_earlier()
        for process in self._running.values():
            if process.facts.pid == pid or (pid is None and tag and process.facts.tag == tag):
                return process
        named = f"process {pid}" if pid is not None else f"process with the tag {tag!r:.80}"
        raise RpcError("not_found", f"there is no {named}")

    async def listen(self, pid: int | None, tag: str) -> tuple[Process, Listener]:
        """Listens to a process that runs, or has ended a moment ago. Raises RpcError ("not_found",
        "resource_exhausted")."""
        now = time.time()
        for process in self._ended.values():
            same = process.facts.pid == pid or (pid is None and tag and process.facts.tag == tag)
            if same and now - process.ended_at < REMEMBERED_S:
                return process, process.listen()
        process = await self.require(pid, tag)
        if len(process.fanout) >= LISTENERS_MAX:
            raise RpcError(
                "resource_exhausted", f"{LISTENERS_MAX} clients listen to this process already"
            )
        return process, process.listen()

    async def signal(self, pid: int | None, tag: str, number: int) -> None:
        await (await self.require(pid, tag)).signal(number)

    async def list(self) -> list[Facts]:
        await self.find_earlier()
        return [process.facts for process in self._running.values()]

    async def find_earlier(self) -> None:
        """Connects to the processes that another server, or this one over a connection that broke,
        has started, as far as they still run or have just ended. Raises QuicksandError."""
        async with self._finding:
            while self._earlier:
                pid, facts = next(iter(self._earlier.items()))
                line = self._lines.take()
                try:
                    source = await self._find(facts, line.sandbox)
                except BaseException:
                    self._lines.give_back(line)
                    raise
                if source is None:
                    self._lines.give_back(line)
                    del self._earlier[pid]
                    self._list.put(self._all())
                    continue
                _, listener = self._take(Process(source.facts, source, self._guest), line)
                listener.close()

    async def _find(self, facts: Facts, guest: Sandbox) -> Source | None:
        if facts.command:
            try:
                command = await guest.attach_command(facts.command, stdin=facts.has_stdin)
                return CommandSource(command, facts)
            except AgentRefusedError as error:
                if error.code != "busy":  # a client of this machine has it by now
                    return None
        if not facts.session:
            at = await began(self._guest, facts.pid)
            if at is None or facts.began not in (None, at):
                return None
            return FoundSource(self._guest, replace(facts, began=at))
        for found in await self._guest.shells():
            if found.session == facts.session and found.pid == facts.pid and found.alive:
                shell = await guest.attach_shell(
                    found.session, columns=found.columns, rows=found.rows
                )
                return TerminalSource(guest, shell, facts)
        return None

    @property
    def are_running(self) -> bool:
        return bool(self._running)

    def cut(self) -> None:
        """Breaks off all streams: the sandbox ends."""
        for process in self._running.values():
            process.fanout.finish(Cut())
        self._lines.close()


def _cannot_start(error: AgentRefusedError) -> RpcError:
    if is_too_old(error):
        return rpc_error(error)
    if error.parameter == "user":
        return RpcError("unauthenticated", f"invalid username: {error}")
    if error.parameter in ("argv", "shell", "cwd") or error.code in ("not_found", "bad_request"):
        return RpcError("invalid_argument", str(error))
    return RpcError("resource_exhausted" if error.code == "too_many" else "internal", str(error))

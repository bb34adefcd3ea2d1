"""One process that was started for a client: its output for listeners, its input, its end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from quicksand import (
    AgentRefusedError,
    Command,
    GuestFileNotFoundError,
    QuicksandError,
    Sandbox,
    Shell,
)
from quicksand.extending import ExitStatus, Stream

from quicksand_e2b.errors import RpcError
from quicksand_e2b.fanout import Cut, Fanout, Listener

LOOK_S = 1.0
"""Seconds between two looks whether a process that was found again still runs."""

SIGNAL_NAMES = {
    1: "hangup", 2: "interrupt", 3: "quit", 4: "illegal instruction", 6: "aborted",
    7: "bus error", 8: "floating point exception", 9: "killed", 10: "user defined signal 1",
    11: "segmentation fault", 12: "user defined signal 2", 13: "broken pipe", 14: "alarm clock",
    15: "terminated",
}  # fmt: skip
"""The names of signals by which clients know them, which are Go's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts told of a process, and kept on disk."""

    pid: int
    tag: str
    """The tag; "" if it has none."""
    config: dict[str, Any]
    """The values asked for: ``cmd``, ``args``, ``envs``, ``cwd``."""
    session: str = ""
    """The session of its terminal; "" if it has none."""
    command: str = ""
    """The key by which the guest finds a command again; "" if it cannot."""
    has_stdin: bool = False
    """Whether a command takes input."""
    deadline: float | None = None
    """Unix time at which it is killed."""
    began: int | None = None
    """Its start in the guest's ticks, which tells it from a later one with the same number."""


class Source(Protocol):
    """The way to reach a process."""

    facts: Facts

    async def pump(self, fanout: Fanout) -> dict[str, Any]:
        """Passes on its output until it ends, and returns the event of its end. Raises
        QuicksandError if the guest is gone, RpcError for an end that is an error."""

    async def write(self, data: bytes, *, to_terminal: bool) -> None: ...

    async def close_stdin(self) -> None: ...

    async def resize(self, columns: int, rows: int) -> None: ...


class Process:
    """A process, read by a task of the caller's (`run`)."""

    def __init__(self, facts: Facts, source: Source, guest: Sandbox) -> None:
        self.facts = facts
        self.fanout = Fanout()
        self._source = source
        self._guest = guest
        self.end: dict[str, Any] | None = None
        """The event of its end."""
        self.error: RpcError | None = None
        """The reason why its stream ends with an error."""
        self.ended_at = 0.0

    async def run(self, ended: Callable[[Process], None]) -> None:
        """Reads the process to its end; ``ended`` is called then, unless the process may still
        run."""
        try:
            self.end = await self._source.pump(self.fanout)
            await self.fanout.put({"end": self.end})
        except RpcError as error:
            self.error = error
        except QuicksandError:
            self.fanout.finish(Cut())
            return
        finally:
            self.fanout.finish()
        self.ended_at = time.time()
        ended(self)

    def listen(self) -> Listener:
        """Returns a listener. A late one gets no earlier output, but the end."""
        return self.fanout.listen(last={"end": self.end} if self.end is not None else None)

    async def write(self, data: bytes, *, to_terminal: bool) -> None:
        self._require_running()
        await self._source.write(data, to_terminal=to_terminal)

    async def close_stdin(self) -> None:
        self._require_running()
        await self._source.close_stdin()

    async def resize(self, columns: int, rows: int) -> None:
        self._require_running()
        await self._source.resize(columns, rows)

    async def signal(self, number: int) -> None:
        """Sends a signal to its process group."""
        self._require_running()
        await kill(self._guest, self.facts.pid, number)

    def _require_running(self) -> None:
        if self.end is not None or self.error is not None:
            raise RpcError("not_found", f"the process {self.facts.pid} has ended")


async def kill(guest: Sandbox, pid: int, number: int) -> None:
    """Signals a process group. Raises RpcError ("not_found") if there is none."""
    try:
        await guest.request("kill", {"pid": pid, "signal": number, "group": True})
    except AgentRefusedError as error:
        if error.errno == 3 or error.code == "not_found":  # ESRCH
            raise RpcError("not_found", f"there is no process {pid}") from error
        raise


class CommandSource:
    """A command whose channel this server has."""

    def __init__(self, command: Command, facts: Facts) -> None:
        self._command = command
        self.facts = facts

    async def pump(self, fanout: Fanout) -> dict[str, Any]:
        async for stream, data in self._command.output():
            if data and len(fanout):
                key = "stdout" if stream is Stream.STDOUT else "stderr"
                await fanout.put({"data": {key: _coded(data)}}, len(data))
        assert self._command.status is not None
        async with self._command:  # it has ended: this only gives its channel back
            return end_of(self._command.status)

    async def write(self, data: bytes, *, to_terminal: bool) -> None:
        if to_terminal:
            raise RpcError("invalid_argument", "the process has no terminal")
        if not self.facts.has_stdin:
            raise RpcError("failed_precondition", "the process was started without stdin")
        await self._command.write(data)

    async def close_stdin(self) -> None:
        if not self.facts.has_stdin:
            raise RpcError("failed_precondition", "the process was started without stdin")
        self._command.close_stdin()

    async def resize(self, columns: int, rows: int) -> None:
        raise RpcError("failed_precondition", "the process has no terminal")


class TerminalSource:
    """A process with a terminal, which the guest keeps and which can be found again."""

    def __init__(self, guest: Sandbox, shell: Shell, facts: Facts) -> None:
        self._guest = guest
        self._shell = shell
        self.facts = facts

    async def pump(self, fanout: Fanout) -> dict[str, Any]:
        deadline = self.facts.deadline
        watch = None
        if deadline is not None:
            watch = asyncio.create_task(self._kill_at(deadline), name="api-terminal-deadline")
        try:
            async for piece in self._shell.pieces():
                if piece.data and not piece.replayed and len(fanout):
                    await fanout.put({"data": {"pty": _coded(piece.data)}}, len(piece.data))
        finally:
            if watch is not None:
                watch.cancel()
        if deadline is not None and time.time() >= deadline:
            raise RpcError("deadline_exceeded", "the process was killed at its timeout")
        assert self._shell.status is not None
        return end_of(self._shell.status)

    async def _kill_at(self, deadline: float) -> None:
        await asyncio.sleep(max(0.0, deadline - time.time()))
        with contextlib.suppress(QuicksandError, RpcError):
            await kill(self._guest, self.facts.pid, 9)

    async def write(self, data: bytes, *, to_terminal: bool) -> None:
        if not to_terminal:
            raise RpcError("invalid_argument", "the process has a terminal: send `pty` instead")
        await self._shell.write(data)

    async def close_stdin(self) -> None:
        raise RpcError("failed_precondition", "the stdin of a terminal cannot be closed")

    async def resize(self, columns: int, rows: int) -> None:
        await self._shell.resize(columns, rows)


class FoundSource:
    """A command that another server has started in a guest whose agent does not keep its pipes. It
    can be signalled, and its end be noticed, but nobody knows its outcome."""

    def __init__(self, guest: Sandbox, facts: Facts) -> None:
        self._guest = guest
        self.facts = facts

    async def pump(self, fanout: Fanout) -> dict[str, Any]:
        # Nothing tells of its end.
        while await began(self._guest, self.facts.pid) == self.facts.began:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        status = "exit status unknown: the server was restarted while it ran"
        return {"exitCode": -1, "exited": False, "status": status, "error": status}

    async def write(self, data: bytes, *, to_terminal: bool) -> None:
        raise self._lost()

    async def close_stdin(self) -> None:
        raise self._lost()

    async def resize(self, columns: int, rows: int) -> None:
        raise RpcError("failed_precondition", "the process has no terminal")

    @staticmethod
    def _lost() -> RpcError:
        return RpcError(
            "failed_precondition", "the stdin of the process was lost when the server restarted"
        )


def end_of(status: ExitStatus) -> dict[str, Any]:
    """Returns the event of a process's end. Raises RpcError (deadline_exceeded) at a timeout."""
    if status.timed_out:
        raise RpcError("deadline_exceeded", "the process was killed at its timeout")
    if status.signal is not None:
        name = SIGNAL_NAMES.get(status.signal, f"signal {status.signal}")
        text = f"signal: {name}"
        return {"exitCode": -1, "exited": False, "status": text, "error": text}
    text = f"exit status {status.exit_code}"
    end: dict[str, Any] = {"exitCode": status.exit_code, "exited": True, "status": text}
    if status.exit_code:
        end["error"] = text
    return end


async def began(guest: Sandbox, pid: int) -> int | None:
    """Returns the start of a process in the guest's ticks since it booted; None if there is no
    process, or only its remains."""
    try:
        text = await guest.files.read(f"/proc/{pid}/stat", length=4096)
    except (GuestFileNotFoundError, AgentRefusedError):
        return None
    # proc_pid_stat(5): the name in parentheses may hold anything; 3 is the state, 22 the start.
    _, _, rest = text.rpartition(b") ")
    words = rest.split()
    if len(words) < 20 or words[0] in (b"Z", b"X") or not words[19].isdigit():
        return None
    return int(words[19])


def _coded(data: bytes) -> str:
    return base64.b64encode(data).decode()

"""A command as a process of ours, with pipes or its own terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from quicksand.guest.agent.wire import Stream
from quicksand.remote.outflow import Outflow

READ = 64 * 1024

IN_TERMINAL = ("/bin/sh", "-c", 'exec "$@" <>"$0" >&0 2>&0')
"""Starts the following command in the terminal of that name, which becomes the terminal of the new
session, since the session's leader opens it first."""

END_OF_FILE = b"\x04"
"""Ctrl-D ends the input in a terminal."""

END_S = 60.0
"""Seconds that a command has to end once its client has gone: `run` first stops its sandbox."""


class Started:
    """A command that runs, or has ended. It leads its own session, and so its own process group."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        flows: Mapping[Stream, Outflow],
        terminal: _Terminal | None = None,
    ) -> None:
        self._process = process
        self._terminal = terminal
        self.flows = flows
        self.exit_code = 0
        """The exit code as a shell gives it, once the command has ended."""
        self.over = asyncio.create_task(self._wait(), name="quicksand-command")
        """Done when the command has ended and all its output has been read."""

    async def _wait(self) -> None:
        async with asyncio.TaskGroup() as pumps:
            if self._terminal is not None:
                pumps.create_task(self._terminal.pump(self.flows[Stream.STDOUT]))
            else:
                pumps.create_task(_pump(self._process.stdout, self.flows[Stream.STDOUT]))
                pumps.create_task(_pump(self._process.stderr, self.flows[Stream.STDERR]))
            code = await self._process.wait()
            if self._terminal is not None:
                self._terminal.close_inner()
        if self._terminal is not None:
            self._terminal.close()
        self.exit_code = code if code >= 0 else 128 - code
        for flow in self.flows.values():
            flow.end()

    async def feed(self, data: bytes) -> None:
        """Write to the command's input; b"" ends it. Bytes that it no longer takes are dropped."""
        if self._terminal is not None:
            await self._terminal.write(data)
        elif (stdin := self._process.stdin) is not None:
            with contextlib.suppress(OSError):
                if data:
                    stdin.write(data)
                    await stdin.drain()
                else:
                    stdin.close()

    def end_input(self) -> None:
        """End the input without waiting. A command with a terminal gets Ctrl-D."""
        if self._terminal is not None:
            self._terminal.end_input()
        elif self._process.stdin is not None:
            self._process.stdin.close()

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of its terminal."""
        if self._terminal is not None:
            self._terminal.resize(columns, rows)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def hang_up(self) -> None:
        """End the command as if its terminal had gone, and wait for its end."""
        for flow in self.flows.values():
            flow.let_go()
        self.signal(signal.SIGHUP)
        done, _ = await asyncio.wait([self.over], timeout=END_S)
        if not done:
            self.signal(signal.SIGKILL)
            await asyncio.wait([self.over])


class _Terminal:
    """The pseudo-terminal of a command; we hold its outer end."""

    def __init__(self, columns: int, rows: int) -> None:
        self._outer, inner = os.openpty()
        self._inner: int | None = inner
        """Open until the command has ended: reading fails while no process has it open."""
        os.set_blocking(self._outer, False)
        self.name = os.ttyname(inner)
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._outer, termios.TIOCSWINSZ, size)

    async def pump(self, flow: Outflow) -> None:
        """Pass the output on until the command's end of the terminal is closed."""
        loop = asyncio.get_running_loop()
        while True:
            await _ready(self._outer, loop.add_reader, loop.remove_reader)
            try:
                data = os.read(self._outer, READ)
            except BlockingIOError:
                continue
            except OSError:  # EIO, on Linux: no process has it open any more
                return
            if not data:
                return
            await flow.put(data)

    async def write(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        view = memoryview(data)
        while view and self._inner is not None:
            try:
                view = view[os.write(self._outer, view) :]
            except BlockingIOError:
                await _ready(self._outer, loop.add_writer, loop.remove_writer)
            except OSError:
                return

    def end_input(self) -> None:
        if self._inner is not None:
            with contextlib.suppress(OSError):  # it is full: its reader has enough
                os.write(self._outer, END_OF_FILE)

    def close_inner(self) -> None:
        """Close the inner end, after the command has ended."""
        if self._inner is not None:
            os.close(self._inner)
            self._inner = None

    def close(self) -> None:
        self.close_inner()
        os.close(self._outer)


async def _ready(
    descriptor: int,
    add: Callable[[int, Callable[[], None]], None],
    remove: Callable[[int], bool],
) -> None:
    """Wait until a descriptor can be read or written."""
    is_ready = asyncio.Event()
    add(descriptor, is_ready.set)
    try:
        await is_ready.wait()
    finally:
        remove(descriptor)


async def _pump(source: asyncio.StreamReader | None, flow: Outflow) -> None:
    assert source is not None
    while data := await source.read(READ):
        await flow.put(data)


async def start_with_pipes(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, *, stdin: bool, keeps: bool
) -> Started:
    """Start a command with pipes. ``keeps`` is as in `Outflow`. Raises OSError."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=pipe if stdin else nothing,
        stdout=pipe,
        stderr=pipe,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )
    streams = (Stream.STDOUT, Stream.STDERR)
    return Started(process, {stream: Outflow(keeps=keeps) for stream in streams})


async def start_in_terminal(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, *, columns: int, rows: int, keeps: bool
) -> Started:
    """Start a command in its own terminal. ``keeps`` is as in `Outflow`. Raises OSError."""
    terminal = _Terminal(columns, rows)
    nothing = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *IN_TERMINAL,
            terminal.name,
            *argv,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except BaseException:
        terminal.close()
        raise
    return Started(process, {Stream.STDOUT: Outflow(keeps=keeps)}, terminal)

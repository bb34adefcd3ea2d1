"""A command as a process of ours, with pipes or its own terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from quicksand.guest.agent.wire import Stream

READ = 64 * 1024

IN_TERMINAL = ("/bin/sh", "-c", 'exec "$@" <>"$0" >&0 2>&0')
"""Starts the following command in the terminal of that name, which becomes the terminal of the new
session, since the session's leader opens it first."""

Put = Callable[[Stream, bytes], Awaitable[None]]
"""Takes a piece of output; b"" is the end of a stream."""


class Started:
    """A command that runs, or has ended. It leads its own session, and so its own process group."""

    def __init__(
        self, process: asyncio.subprocess.Process, terminal: _Terminal | None = None
    ) -> None:
        self._process = process
        self._terminal = terminal

    async def run(self, put: Put) -> int:
        """Pass the output on until the command has ended and all of it has been read. Return the
        exit code as a shell gives it."""
        async with asyncio.TaskGroup() as pumps:
            if self._terminal is not None:
                pumps.create_task(self._terminal.pump(put))
            else:
                pumps.create_task(_pump(self._process.stdout, Stream.STDOUT, put))
                pumps.create_task(_pump(self._process.stderr, Stream.STDERR, put))
            code = await self._process.wait()
            if self._terminal is not None:
                self._terminal.close_inner()
        if self._terminal is not None:
            self._terminal.close()
        return code if code >= 0 else 128 - code

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

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of its terminal."""
        if self._terminal is not None:
            self._terminal.resize(columns, rows)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


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

    async def pump(self, put: Put) -> None:
        """Pass the output on until the command's end of the terminal is closed."""
        loop = asyncio.get_running_loop()
        data = b"?"
        while data:
            await _ready(self._outer, loop.add_reader, loop.remove_reader)
            try:
                data = os.read(self._outer, READ)
            except BlockingIOError:
                continue
            except OSError:  # EIO, on Linux: no process has it open any more
                data = b""
            await put(Stream.STDOUT, data)

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


async def _pump(source: asyncio.StreamReader | None, stream: Stream, put: Put) -> None:
    assert source is not None
    data = b"?"
    while data:
        data = await source.read(READ)
        await put(stream, data)


async def start_with_pipes(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, *, stdin: bool
) -> Started:
    """Start a command with pipes. Raises OSError."""
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
    return Started(process)


async def start_in_terminal(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, *, columns: int, rows: int
) -> Started:
    """Start a command in its own terminal. Raises OSError."""
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
    return Started(process, terminal)

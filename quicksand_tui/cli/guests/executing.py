"""Runs a command in a running sandbox, with our streams or to be told as JSON, and chooses the type
of a terminal for it. Scripts do that in loops, so this imports neither the reader of command lines,
nor anything that only a terminal needs.

Our descriptors are read and written in threads: inherited ones must not be made non-blocking (the
flag is shared by all processes that have them open), and a slow reader must not stop the event
loop. The threads are daemons, so a thread that hangs does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import threading
from collections import deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quicksand.base.errors import AgentRefusedError, AgentUnreachableError, QuicksandError
from quicksand.base.regular import read_at_most
from quicksand.guest import execution
from quicksand.guest.agent.wire import Stream
from quicksand.guest.execution import ExitStatus

from quicksand_tui.cli.output import Exit, complain, print_json
from quicksand_tui.cli.runner import CannotStart, Signals, attached, run_in_sandbox, why_gone

if TYPE_CHECKING:
    from quicksand.guest.execution import Command
    from quicksand.sandbox import Sandbox


QUEUE_MAX = 1024 * 1024
"""The most bytes that wait for a slow reader before the writer has to wait."""

READ_SIZE = 256 * 1024
READ_AHEAD = 2
"""The number of pieces that are read ahead."""


class FdWriter:
    """Writes to one descriptor. If its reader is gone, `write` raises BrokenPipeError."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._waiting = 0
        self._closing = False
        self._error: OSError | None = None
        self._room = asyncio.Event()
        self._done = asyncio.Event()
        threading.Thread(target=self._work, name=f"write-{descriptor}", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Queues ``data``; waits while `QUEUE_MAX` bytes or more are unwritten. Raises OSError."""
        with self._changed:
            self._chunks.append(data)
            self._waiting += len(data)
            self._changed.notify()
        while self._error is None and self._waiting > QUEUE_MAX:
            self._room.clear()
            await self._room.wait()
        if self._error is not None:
            raise self._error

    async def drain(self) -> None:
        """Waits until all is written. Raises OSError."""
        while self._error is None and self._waiting:
            self._room.clear()
            await self._room.wait()
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Waits until all is written. Raises OSError. Does not close the descriptor."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await self._done.wait()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            try:
                while chunks := self._next():
                    for chunk in chunks:
                        _write_all(self._descriptor, chunk)
                    with self._changed:
                        self._waiting -= sum(len(chunk) for chunk in chunks)
                    self._loop.call_soon_threadsafe(self._room.set)
            except OSError as error:
                self._error = error
            self._loop.call_soon_threadsafe(self._room.set)
            self._loop.call_soon_threadsafe(self._done.set)

    def _next(self) -> list[bytes]:
        """Returns all pieces that are queued; [] at the end."""
        with self._changed:
            while not self._chunks and not self._closing:
                self._changed.wait()
            chunks = list(self._chunks)
            self._chunks.clear()
            return chunks


class FdReader:
    """Reads one descriptor to its end, as an asynchronous iterator of bytes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._wanted = threading.Semaphore(READ_AHEAD)
        self._pieces: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._started = False

    def __aiter__(self) -> FdReader:
        return self

    async def __anext__(self) -> bytes:
        if not self._started:
            self._started = True
            name = f"read-{self._descriptor}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        piece = await self._pieces.get()
        if isinstance(piece, OSError):
            raise piece
        if not piece:
            self._pieces.put_nowait(piece)  # every later read finds the end, too
            raise StopAsyncIteration
        self._wanted.release()
        return piece

    def _work(self) -> None:
        piece: bytes | OSError = b"more"
        while piece and not isinstance(piece, OSError):
            self._wanted.acquire()
            try:
                piece = _read_some(self._descriptor)
            except OSError as error:
                piece = error
            try:
                self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
            except RuntimeError:
                return  # the loop is closed: nobody wants it


def same_file(first: int, second: int) -> bool:
    """Returns whether two descriptors lead to the same file, pipe or terminal."""
    return os.path.sameopenfile(first, second)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # another process made it non-blocking
            select.select([], [descriptor], [])


def _read_some(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, READ_SIZE)
        except BlockingIOError:
            select.select([descriptor], [], [])


CANCEL_S = 1.0
"""Seconds to wait for the agent's confirmation. Closing the connection ends the command too."""

STDIN, STDOUT, STDERR = 0, 1, 2


class Wish(NamedTuple):
    """A command to run in a guest, and how to run it."""

    argv: tuple[str, ...]
    env: dict[str, str]
    user: str | None = None
    cwd: str | None = None
    timeout: float | None = None
    stdin: bool = False
    entrypoint: bool = False
    """Whether the image's own command is run, with ``argv`` as further words."""

    @property
    def is_command(self) -> bool:
        """Whether a command is run, and no shell asked for."""
        return bool(self.argv) or self.entrypoint

    def keywords(self) -> dict[str, Any]:
        """The keyword arguments that `Sandbox.spawn` and `Sandbox.shell` share."""
        return {
            "env": self.env,
            "user": self.user,
            "cwd": self.cwd,
            "entrypoint": self.entrypoint,
        }


@contextlib.contextmanager
def starting() -> Any:
    """Raises CannotStart, with the exit code that shells use, for a command that cannot be started;
    other errors pass."""
    try:
        yield
    except AgentRefusedError as error:
        if error.parameter != "argv" or error.errno is None:
            raise  # the user or the directory is at fault, not the command
        code = Exit.NOT_FOUND if error.code == "not_found" else Exit.CANNOT_RUN
        raise CannotStart(error, code) from error


async def run_command(sandbox: Sandbox, wish: Wish, signals: Signals) -> int:
    """Runs a command with our stdin, stdout and stderr; returns its exit code. Raises CannotStart,
    QuicksandError, and OSError for our own streams."""
    command = await _spawn(sandbox, wish)
    out = FdWriter(STDOUT)
    err = out if same_file(STDOUT, STDERR) else FdWriter(STDERR)
    sinks = {Stream.STDOUT: out, Stream.STDERR: err}
    async with _guarded(sandbox, command, signals), _feeding(command, wish):
        async for stream, data in command.output():
            await sinks[stream].write(data)
    await out.close()
    await err.close()
    return _conclude(command.status, wish)


async def collect_command(sandbox: Sandbox, wish: Wish, signals: Signals, **facts: Any) -> int:
    """Runs a command, prints one JSON object with its output and ``facts``, and returns its exit
    code. Raises CannotStart, QuicksandError."""
    command = await _spawn(sandbox, wish)
    async with _guarded(sandbox, command, signals):
        stdin = FdReader(STDIN) if wish.stdin else None
        result = await execution.run(command, stdin=stdin, on_stdout=None, on_stderr=None)
    print_json(
        {
            **facts,
            "stdout": result.stdout,
            "stderr": result.stderr,
            "exit_code": result.exit_code,
            "signal": result.signal,
            "timed_out": result.timed_out,
            "truncated": result.truncated,
            "duration_s": result.duration_s,
        }
    )
    return _conclude(command.status, wish)


async def _spawn(sandbox: Sandbox, wish: Wish) -> Command:
    with starting():
        return await sandbox.spawn(
            list(wish.argv), timeout=wish.timeout, stdin=wish.stdin, **wish.keywords()
        )


def _conclude(status: ExitStatus | None, wish: Wish) -> int:
    assert status is not None
    if status.timed_out:
        complain(f"timed out after {wish.timeout:g} s")
        return Exit.TIMEOUT
    return status.exit_code


@contextlib.asynccontextmanager
async def _guarded(sandbox: Sandbox, command: Command, signals: Signals) -> AsyncIterator[None]:
    """Passes our signals to the command, and ends the command when we end."""
    sending: set[asyncio.Task[None]] = set()

    def send(name: str) -> None:
        task = asyncio.create_task(_send(command, name), name="quicksand-signal")
        sending.add(task)
        task.add_done_callback(sending.discard)

    try:
        with signals.passed_on(send):
            yield
    except AgentUnreachableError as error:
        raise await why_gone(sandbox, error) from error
    finally:
        for task in sending:
            task.cancel()
        if command.status is None:
            await _end(command)


async def _send(command: Command, name: str) -> None:
    with contextlib.suppress(QuicksandError):
        await command.signal(name)


async def _end(command: Command) -> None:
    """Ends the command, without waiting for a guest that does not answer."""
    with contextlib.suppress(QuicksandError, TimeoutError):
        async with asyncio.timeout(CANCEL_S):
            await command.cancel()


@contextlib.asynccontextmanager
async def _feeding(command: Command, wish: Wish) -> AsyncIterator[None]:
    """Passes our stdin on if the command wants it; the command need not read all of it."""
    if not wish.stdin:
        yield
        return
    task = asyncio.create_task(_feed(command, FdReader(STDIN)), name="quicksand-stdin")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


async def _feed(command: Command, source: AsyncIterable[bytes]) -> None:
    try:
        await command.feed(source)
    except AgentUnreachableError:
        return  # the reader of the output gets the same error
    except OSError:
        # The command must not take half of its input for all of it.
        await _end(command)
        raise


Run = Callable[["Sandbox", Wish, Signals], Awaitable[int]]
"""Runs a command in a sandbox; returns its exit code."""


def execute(name: str, wish: Wish, run: Run = run_command) -> int:
    """Runs a command in the sandbox ``name``; returns the exit code. Raises as
    `run_in_sandbox`."""

    async def main(signals: Signals) -> int:
        async with attached(name) as sandbox:
            return await run(sandbox, wish, signals)

    return run_in_sandbox(main)


def execute_plainly(argv: Sequence[str]) -> int | None:
    """Carries out the command line ``exec NAME -- COMMAND...``, which has no options to be read;
    returns the exit code, and None for any other line. Raises as `execute`. Reading the line as any
    other would take 7 ms of 60."""
    match argv:
        case ["exec", name, "--", _, *_] if not name.startswith("-"):
            return execute(name, Wish(argv=tuple(argv[3:]), env={}))
    return None


KNOWN = frozenset({"linux", "screen-256color", "tmux-256color", "xterm", "xterm-256color"})
"""Types that every Debian knows, so that the guest need not be asked."""

USUAL = "xterm-256color"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")

DIRECTORIES = ("/usr/share/terminfo", "/lib/terminfo", "/etc/terminfo")
BROUGHT = "/etc/terminfo"
"""The place of an entry of this host's: ncurses looks there for types that the system's own entries
lack (terminfo(5))."""

MAGIC = (b"\x1a\x01", b"\x1e\x02")
"""The beginnings of a compiled entry (term(5))."""
SIZE_MAX = 32 * 1024
"""The most bytes of an entry (term(5))."""


async def choose_term(sandbox: Sandbox, wanted: str) -> str:
    """Returns the type to tell a guest for a terminal of the type ``wanted``: that type if the
    guest knows it, or can be given this host's entry of it; else a common one."""
    if wanted in KNOWN:
        return wanted
    if not _NAME.fullmatch(wanted):
        return USUAL
    place = f"{wanted[0]}/{wanted}"
    for directory in DIRECTORIES:
        if await sandbox.files.exists(f"{directory}/{place}"):
            return wanted
    if (entry := _find_entry(wanted, os.environ)) is None:
        return USUAL
    try:
        await sandbox.files.write(f"{BROUGHT}/{place}", entry, mode=0o644, parents=True)
    except AgentRefusedError:  # its disk is full, or not to be written
        return USUAL
    return wanted


def _find_entry(name: str, environ: Mapping[str, str]) -> bytes | None:
    """Returns this host's compiled entry of a type; None if it has none."""
    for directory in _directories(environ):
        for letter in (name[0], f"{ord(name[0]):x}"):  # as ncurses has it here, and on macOS
            try:
                entry = read_at_most(directory / letter / name, SIZE_MAX + 1)
            except OSError:
                continue
            if len(entry) <= SIZE_MAX and entry.startswith(MAGIC):
                return entry
    return None


def _directories(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yields the directories where ncurses looks: TERMINFO names those of terminals themselves."""
    home = environ.get("HOME", "")
    named = (
        environ.get("TERMINFO", ""),
        f"{home}/.terminfo",
        *environ.get("TERMINFO_DIRS", "").split(":"),
        *DIRECTORIES,
    )
    yield from (Path(one) for one in named if one.startswith("/"))

"""A guest's terminal in ours: raw, byte for byte, both ways; ours is put right in every case."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from quicksand.errors import AgentUnreachableError, QuicksandError

from quicksand_tui.cli.attaching import why_gone
from quicksand_tui.cli.keys import DetachKeys
from quicksand_tui.cli.modes import ModeTracker
from quicksand_tui.cli.streams import FdWriter

if TYPE_CHECKING:
    from quicksand.execution import ExitStatus
    from quicksand.sandbox import Sandbox
    from quicksand.shell import Shell

    from quicksand_tui.cli.runner import Signals

READ_SIZE = 64 * 1024
TYPED_MAX = 256 * 1024
"""Bytes of a paste that wait for a guest that does not read, before we stop reading too."""

LEAVE_S = 1.0
"""How long to wait for the agent when leaving; the connection's end detaches as well."""

STDIN, STDOUT = 0, 1

KNOWN_TERMS = frozenset({"linux", "screen-256color", "tmux-256color", "xterm", "xterm-256color"})
"""What is in every Debian: not worth asking for."""

USUAL_TERM = "xterm-256color"
TERMINFO = ("/usr/share/terminfo", "/lib/terminfo", "/etc/terminfo")
_TERM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")


def require_terminal() -> None:
    """Raise UsageError unless stdin and stdout are terminals."""
    if not (os.isatty(STDIN) and os.isatty(STDOUT)):
        raise click.UsageError("stdin and stdout must be a terminal for this")


def terminal_size() -> tuple[int, int]:
    """Columns and rows of our terminal."""
    try:
        columns, rows = os.get_terminal_size(STDOUT)
    except OSError:
        columns, rows = 0, 0
    return columns or 80, rows or 24


async def terminal_env(sandbox: Sandbox) -> dict[str, str]:
    """TERM and COLORTERM as here; a TERM that the guest does not know becomes a usual one."""
    term = os.environ.get("TERM", "")
    if term not in KNOWN_TERMS and not await _knows_term(sandbox, term):
        term = USUAL_TERM
    color = os.environ.get("COLORTERM", "")
    return {"TERM": term, **({"COLORTERM": color} if color else {})}


async def _knows_term(sandbox: Sandbox, term: str) -> bool:
    if not _TERM_NAME.fullmatch(term):
        return False
    for directory in TERMINFO:
        if await sandbox.files.exists(f"{directory}/{term[0]}/{term}"):
            return True
    return False


@contextlib.contextmanager
def raw_terminal() -> Iterator[None]:
    """Our terminal in raw mode meanwhile. After a stop (SIGSTOP, SIGCONT) it is made raw again."""
    before = termios.tcgetattr(STDIN)
    loop = asyncio.get_running_loop()
    tty.setraw(STDIN, termios.TCSANOW)
    loop.add_signal_handler(signal.SIGCONT, tty.setraw, STDIN, termios.TCSANOW)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGCONT)
        with contextlib.suppress(termios.error):  # the terminal itself is gone
            termios.tcsetattr(STDIN, termios.TCSANOW, before)


class Relay:
    """Connects our terminal and a guest's, until its program ends or somebody leaves."""

    def __init__(self, sandbox: Sandbox, shell: Shell, keys: bytes, signals: Signals) -> None:
        self._sandbox = sandbox
        self._shell = shell
        self._keys = DetachKeys(keys)
        self._signals = signals
        self._modes = ModeTracker()
        self._typed = bytearray()
        self._typed_more = asyncio.Event()
        self._hung_up = False
        self._resized = asyncio.Event()
        self._resized.set()  # it may have changed since the size was taken for the opening

    async def run(self) -> ExitStatus | None:
        """Return how its program ended, or None when the detach keys were typed.

        Raises what tells why the guest is gone. The terminal is put right before this returns.
        """
        loop = asyncio.get_running_loop()
        writer = FdWriter(STDOUT)
        try:
            with raw_terminal():
                loop.add_signal_handler(signal.SIGWINCH, self._resized.set)
                loop.add_reader(STDIN, self._read_typed)
                try:
                    await self._until_over(writer)
                finally:
                    loop.remove_reader(STDIN)
                    loop.remove_signal_handler(signal.SIGWINCH)
                    await self._put_right(writer)
        except AgentUnreachableError as error:
            raise await why_gone(self._sandbox, error) from error
        return self._shell.status

    async def _until_over(self, writer: FdWriter) -> None:
        """Until the program has ended or the keys were typed; the first failure is raised."""
        tasks = {
            asyncio.create_task(self._show(writer), name="quicksand-output"),
            asyncio.create_task(self._send(), name="quicksand-typed"),
            asyncio.create_task(self._resize(), name="quicksand-resize"),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in done:
            task.result()

    async def _put_right(self, writer: FdWriter) -> None:
        ended = self._shell.status is not None
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(None if ended else LEAVE_S):
                await writer.write(self._modes.undo() + (b"" if ended else b"\r\n"))
                await writer.close()

    async def _show(self, writer: FdWriter) -> None:
        async for data in self._shell.output():
            self._modes.feed(data)
            await writer.write(data)

    def _read_typed(self) -> None:
        try:
            data = os.read(STDIN, READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        loop = asyncio.get_running_loop()
        if not data:
            loop.remove_reader(STDIN)
            self._hung_up = True
        self._typed += self._keys.feed(data)
        if len(self._typed) > TYPED_MAX:
            loop.remove_reader(STDIN)
        self._typed_more.set()

    async def _send(self) -> None:
        """Send what is typed, until the keys that leave."""
        while True:
            await self._typed_more.wait()
            self._typed_more.clear()
            if self._typed:
                data = bytes(self._typed)
                self._typed.clear()
                await self._shell.write(data)
            if self._keys.found:
                return
            if self._hung_up:
                self._signals.end(signal.SIGHUP)
                await asyncio.Event().wait()  # the end comes as a cancellation
            asyncio.get_running_loop().add_reader(STDIN, self._read_typed)

    async def _resize(self) -> None:
        while True:
            await self._resized.wait()
            self._resized.clear()
            await self._shell.resize(*terminal_size())


async def leave(shell: Shell, *, end: bool) -> None:
    """Let go of a terminal: end its program, or let it run on. A guest that does not answer is not
    waited for."""
    with contextlib.suppress(QuicksandError, TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await (shell.close() if end else shell.detach())


def is_terminal() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty()

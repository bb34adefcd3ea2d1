"""Shows a guest's terminal in ours: raw and byte for byte in both directions. Our terminal is
restored at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import termios
import time
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click
from quicksand.base.errors import AgentUnreachableError, QuicksandError
from quicksand.base.paths import paths
from quicksand.records.registry import Registry
from quicksand_vt import Restoring, Unasking

from quicksand_tui.cli.fd_streams import FdWriter
from quicksand_tui.cli.guests.terminal_types import choose_term
from quicksand_tui.cli.runner import why_gone
from quicksand_tui.door.terminal_place import AnswerRight

if TYPE_CHECKING:
    from quicksand.guest.execution import ExitStatus
    from quicksand.guest.shell import Piece, Shell
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.runner import Signals


@dataclass(slots=True)
class DetachKeys:
    """Looks for the detach keys in typed input.

    Keys that may begin the sequence are held back until it is clear whether they do. Typing the
    first key twice sends it once.
    """

    sequence: bytes
    _held: int = 0
    """The number of keys of the sequence that have been typed."""
    found: bool = field(default=False, init=False)

    def feed(self, data: bytes) -> bytes:
        """Returns the bytes to send to the guest. After `found` there are none."""
        out = bytearray()
        for code in b"" if self.found else data:
            if code == self.sequence[self._held]:
                self._held += 1
                if self._held == len(self.sequence):
                    self.found = True
                    return bytes(out)
            elif self._held == 1 and code == self.sequence[0]:
                out.append(code)
                self._held = 0
            else:
                out += self.sequence[: self._held]
                self._held = 1 if code == self.sequence[0] else 0
                if not self._held:
                    out.append(code)
        return bytes(out)


class Questions:
    """Passes a guest's present queries to our terminal, but removes those that are replayed, and
    those that another client of the same terminal answers."""

    def __init__(self, right: AnswerRight) -> None:
        self._right = right
        self._unasking: Unasking | None = Unasking()
        """The filter of queries; None once our terminal answers, and gets everything."""

    def shown(self, piece: Piece) -> bytes:
        """Returns the part of a piece of output that our terminal gets."""
        if self._unasking is None:
            return piece.data
        if piece.replayed:
            return self._unasking.feed(piece.data)
        if not self._right.takes_over():
            return self._unasking.feed(piece.data) + self._unasking.settle()
        before, self._unasking = self._unasking, None
        return before.settle() + before.unfinished + piece.data


PROBE = b"\x1b[c"
"""The query for device attributes. Every terminal answers it, after all earlier queries."""

PROBE_S = 2.0
"""Seconds to wait for the answer to `PROBE`."""

AFTER_S = 0.2
"""Seconds to go on after the first answer to `PROBE`: the guest may have sent the same query, so
that this may be the answer to it."""

CUT_S = 0.05
"""Seconds after which an answer that has begun counts as complete. Terminals send an answer in one
piece, which a network may split. ESC alone counts as a key after that time."""

ANSWER_MAX = 4096

_ANSWER = re.compile(
    rb"\x1b\[(?:"
    rb"\?[\d;]*[cnRuS]|[>=][\d;]*c"  # device attributes, status, keyboard, graphics
    rb"|\??[\d;]*\$y|>[\d;]*m"  # modes
    rb"|[\d;]*[nt]|\d+;\d+R"  # status, sizes, where the cursor is
    rb"|<[\d;]*[Mm]|[IO])"  # the mouse, the focus
    rb"|\x1b[]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)"
)
"""The answers that xterm's control sequences (ctlseqs) describe."""

_ATTRIBUTES = re.compile(rb"\x1b\[\?[\d;]*c")
_CUT = re.compile(rb"\x1b(?:\[[?>=<]?[\d;]*\$?|[]P_^X][^\x07\x1b]*\x1b?)?\Z")


class LateAnswers:
    """Removes answers to a guest's queries from before a revert from our terminal's input, until
    the terminal answers `PROBE`, which was sent at the revert."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = clock() + PROBE_S
        self._held = b""

    @property
    def holds(self) -> bool:
        """Whether bytes are held back that may begin an answer. If nothing follows for `CUT_S`,
        `release` is to be called."""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """Returns the part of ``data`` that the user typed."""
        data, self._held = self._held + data, b""
        if self._clock() >= self._until:
            return data
        if _ATTRIBUTES.search(data):
            self._until = min(self._until, self._clock() + AFTER_S)
        data = _ANSWER.sub(b"", data)
        cut = _CUT.search(data)
        if cut is not None and len(cut[0]) <= ANSWER_MAX:
            data, self._held = data[: cut.start()], cut[0]
        return data

    def release(self) -> bytes:
        """Returns the bytes held back if they are a key after all: ESC, or Alt and a key. Anything
        longer counts as an answer."""
        if len(self._held) > 2:
            return b""
        held, self._held = self._held, b""
        return held


READ_SIZE = 64 * 1024
TYPED_MAX = 256 * 1024
"""The most typed bytes that wait for a guest that does not read, before we stop reading."""

LEAVE_S = 1.0
"""Seconds to wait for the agent when leaving a terminal. A lost connection detaches as well."""

STDIN, STDOUT = 0, 1


def require_terminal() -> None:
    """Raises UsageError unless stdin and stdout are terminals."""
    if not (os.isatty(STDIN) and os.isatty(STDOUT)):
        raise click.UsageError("stdin and stdout must be a terminal for this")


def terminal_size() -> tuple[int, int]:
    """Returns the columns and rows of our terminal."""
    try:
        columns, rows = os.get_terminal_size(STDOUT)
    except OSError:
        columns, rows = 0, 0
    return columns or 80, rows or 24


async def terminal_env(sandbox: Sandbox) -> dict[str, str]:
    """Returns TERM and COLORTERM for a terminal in the guest that is shown in ours."""
    term = await choose_term(sandbox, os.environ.get("TERM", ""))
    color = os.environ.get("COLORTERM", "")
    return {"TERM": term, **({"COLORTERM": color} if color else {})}


@contextlib.contextmanager
def raw_terminal() -> Iterator[None]:
    """Puts our terminal into raw mode in the context, and again after a stop (SIGSTOP, SIGCONT)."""
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
    """Connects our terminal and a guest's, until the guest's program ends or the user leaves."""

    def __init__(
        self,
        sandbox: Sandbox,
        shell: Shell,
        keys: bytes,
        signals: Signals,
        *,
        follows: bool = False,
    ) -> None:
        """``follows`` says that a revert has ended another relay just before: answers to queries of
        that guest may still arrive."""
        self._sandbox = sandbox
        self._shell = shell
        self._keys = DetachKeys(keys)
        self._signals = signals
        self._restoring = Restoring()
        self._late = LateAnswers() if follows else None
        self._typed = bytearray()
        self._typed_more = asyncio.Event()
        self._hung_up = False
        self._resized = asyncio.Event()
        self._resized.set()  # the size may have changed since the terminal was opened

    async def run(self) -> ExitStatus | None:
        """Returns how the guest's program ended, or None if the user typed the detach keys.

        Raises a QuicksandError that tells why the guest is gone, and OSError for our own terminal,
        which is restored in any case.
        """
        loop = asyncio.get_running_loop()
        writer = FdWriter(STDOUT)
        try:
            with raw_terminal(), self._answering() as questions:
                if self._late is not None:
                    await writer.write(PROBE)
                loop.add_signal_handler(signal.SIGWINCH, self._resized.set)
                loop.add_reader(STDIN, self._read_typed)
                try:
                    await self._until_over(writer, questions)
                finally:
                    loop.remove_reader(STDIN)
                    loop.remove_signal_handler(signal.SIGWINCH)
                    await self._restore(writer)
        except AgentUnreachableError as error:
            raise await why_gone(self._sandbox, error) from error
        return self._shell.status

    @contextlib.contextmanager
    def _answering(self) -> Iterator[Questions]:
        machine = Registry(paths()).machine(self._sandbox.id)
        right = AnswerRight(machine, self._shell.session)
        try:
            right.take()
            yield Questions(right)
        finally:
            right.close()

    async def _until_over(self, writer: FdWriter, questions: Questions) -> None:
        """Waits for the program's end or the detach keys; raises the first failure."""
        tasks = {
            asyncio.create_task(self._show(writer, questions), name="quicksand-output"),
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

    async def _restore(self, writer: FdWriter) -> None:
        """Puts our terminal right, even if another signal arrives meanwhile."""
        restoring = asyncio.create_task(self._put_right(writer), name="quicksand-restoring")
        try:
            await asyncio.shield(restoring)
        except asyncio.CancelledError:
            await restoring
            raise

    async def _put_right(self, writer: FdWriter) -> None:
        ended = self._shell.status is not None
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(None if ended else LEAVE_S):
                undo = self._restoring.undo(terminal_size()[0])
                await writer.write(undo + (b"" if ended else b"\r\n"))
                await writer.close()

    async def _show(self, writer: FdWriter, questions: Questions) -> None:
        async for piece in self._shell.pieces():
            if data := questions.shown(piece):
                if before := self._restoring.feed(data):
                    await writer.write(before)
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
        if self._late is not None and data:
            data = self._late.feed(data)
            if self._late.holds:
                loop.call_later(CUT_S, self._release_held, self._late)
        self._take_typed(data)

    def _release_held(self, late: LateAnswers) -> None:
        if data := late.release():
            self._take_typed(data)

    def _take_typed(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._typed += self._keys.feed(data)
        if len(self._typed) > TYPED_MAX:
            loop.remove_reader(STDIN)
        self._typed_more.set()

    async def _send(self) -> None:
        """Sends the typed keys, up to the detach keys."""
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
                await asyncio.Event().wait()  # waits to be cancelled
            asyncio.get_running_loop().add_reader(STDIN, self._read_typed)

    async def _resize(self) -> None:
        while True:
            await self._resized.wait()
            self._resized.clear()
            await self._shell.resize(*terminal_size())


async def leave(shell: Shell, *, end: bool) -> None:
    """Leaves a terminal: ends its program or lets it run on. Does not wait for a silent guest."""
    with contextlib.suppress(QuicksandError, TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await (shell.close() if end else shell.detach())

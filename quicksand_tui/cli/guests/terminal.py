"""`quicksand-tui shell`, and terminals for `run` and `exec`: a guest's terminal shown in ours, raw
and byte for byte in both directions. Our terminal is restored at the end."""

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
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import click
from quicksand.base.errors import AgentUnreachableError, QuicksandError, RevertedError
from quicksand.base.paths import paths
from quicksand.records.registry import Registry
from quicksand_vt import Restoring, Unasking

from quicksand_tui.cli.click_commands import command_of, parse_keys
from quicksand_tui.cli.guests.executing import FdWriter, Wish, choose_term, starting
from quicksand_tui.cli.host_choice import LOCAL
from quicksand_tui.cli.output import Exit, complain, print_json, print_table, say, show_age
from quicksand_tui.cli.runner import attached, run_in_sandbox, why_gone
from quicksand_tui.door.terminal_place import AnswerRight, FarRight
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.guest.execution import ExitStatus
    from quicksand.guest.shell import Piece, Shell, ShellInfo
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.runner import Signals
    from quicksand_tui.door.terminal_place import Right


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

    def __init__(self, right: Right) -> None:
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
    loop.add_signal_handler(signal.SIGCONT, _make_raw_again)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGCONT)
        with contextlib.suppress(termios.error):  # the terminal itself is gone
            termios.tcsetattr(STDIN, termios.TCSANOW, before)


def _make_raw_again() -> None:
    with contextlib.suppress(termios.error):  # the terminal has gone, as its end tells soon
        tty.setraw(STDIN, termios.TCSANOW)


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
        alone: bool = False,
    ) -> None:
        """``follows`` says that a revert has ended another relay just before: answers to queries of
        that guest may still arrive. ``alone`` says that there is no other client."""
        self._sandbox = sandbox
        self._shell = shell
        self._keys = DetachKeys(keys)
        self._signals = signals
        self._restoring = Restoring()
        self._late = LateAnswers() if follows else None
        self._typed = bytearray()
        self._typed_more = asyncio.Event()
        self._alone = alone
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
        right: Right
        if self._sandbox.host == LOCAL:
            machine = Registry(paths()).machine(self._sandbox.id)
            right = AnswerRight(machine, self._shell.session)
        else:
            right = FarRight(is_held=self._alone)
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


async def run_in_terminal(
    sandbox: Sandbox, wish: Wish, keys: bytes, signals: Signals, *, keep: bool = False
) -> int:
    """Runs a command, or else a login shell, in a terminal of the guest; returns its exit code.

    Raises Left when the user typed the detach keys, and RevertedError as `relay` does. If a signal
    ends us, the program ends too unless ``keep`` is true.
    """
    with starting():
        shell = await open_terminal(sandbox, wish)
    try:
        async with asyncio.timeout(wish.timeout):
            return await relay(sandbox, shell, wish, keys, signals, keep=keep)
    except TimeoutError:
        complain(f"timed out after {wish.timeout:g} s")
        return Exit.TIMEOUT


async def run_until_left(sandbox: Sandbox, wish: Wish, signals: Signals, *, keys: bytes) -> int:
    """Runs a command as `run_in_terminal` does; returns its exit code, or 0 if the user left it,
    which is told."""
    try:
        return await run_in_terminal(sandbox, wish, keys, signals)
    except Left as left:
        say_left(sandbox, left.session)
        return Exit.OK


class Left(Exception):  # noqa: N818 - not an error
    """Raised when the user typed the detach keys. The program runs on in the terminal
    ``session``."""

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session


async def open_terminal(sandbox: Sandbox, wish: Wish) -> Shell:
    """Opens a terminal in the guest that has the size and TERM of ours."""
    keywords = wish.keywords()
    keywords["env"] = {**await terminal_env(sandbox), **wish.env}
    columns, rows = terminal_size()
    return await sandbox.shell(list(wish.argv) or None, columns=columns, rows=rows, **keywords)


async def relay(
    sandbox: Sandbox, shell: Shell, wish: Wish, keys: bytes, signals: Signals, *, keep: bool
) -> int:
    """Shows a guest's terminal until its program ends; returns the exit code. Raises Left.

    When the sandbox is reverted, this continues with the same terminal as it was at that moment, or
    with a new shell. Raises RevertedError if the terminal belonged to a command that did not run at
    that moment.
    """
    follows = False
    while True:
        mine = await _find_live(sandbox, shell.session)
        try:
            alone = mine is not None and mine.attached <= 1
            through = Relay(sandbox, shell, keys, signals, follows=follows, alone=alone)
            return await _relay_once(through, sandbox, shell, keep=keep)
        except RevertedError as error:
            follows = True
            say(clean(error))
            shell = await _follow(sandbox, mine, wish, error)


async def _find_live(sandbox: Sandbox, session: str) -> ShellInfo | None:
    """Returns the guest's report on a terminal, or None if its program does not run."""
    infos = await sandbox.shells()
    return next((info for info in infos if info.session == session and info.alive), None)


async def _follow(
    sandbox: Sandbox, mine: ShellInfo | None, wish: Wish, error: RevertedError
) -> Shell:
    """Returns the same terminal in the reverted guest, or a new one in its place. Raises ``error``
    if there can be none.

    Terminals are numbered, so another one may have our number after a revert.
    """
    now = await _find_live(sandbox, mine.session) if mine is not None else None
    if mine is not None and now is not None and (now.pid, now.created) == (mine.pid, mine.created):
        columns, rows = terminal_size()
        return await sandbox.attach_shell(mine.session, columns=columns, rows=rows)
    if wish.is_command:
        raise error
    say("this terminal was not open then: here is a new one")
    return await open_terminal(sandbox, wish)


async def _relay_once(through: Relay, sandbox: Sandbox, shell: Shell, *, keep: bool) -> int:
    try:
        status = await through.run()
    except BaseException as error:
        await leave(shell, end=not keep)
        if keep and isinstance(error, asyncio.CancelledError):
            say_left(sandbox, shell.session)
        raise
    if status is None:
        await leave(shell, end=False)
        raise Left(shell.session)
    return status.exit_code


def say_left(sandbox: Sandbox, session: str) -> None:
    """Tells the user how to return to the terminal."""
    name, session = clean(sandbox.name), clean(session)
    say(f"detached; `quicksand-tui shell {name} --session {session}` attaches again")


@command_of("shell")
def shell_command(
    name: str,
    user: str | None,
    session: str | None,
    listing: bool,
    detach_keys: str,
    as_json: bool,
) -> int:
    """Open a terminal in a sandbox, or return to one.

    The exit code is that of the shell. Ctrl-] and then d leave the shell running, and so does a
    broken connection; `--session` returns to it. After a revert you are in the same terminal as it
    was then, or in a new one.
    """
    if as_json and not listing:
        raise click.UsageError("--json goes with --list")
    if session is not None and user is not None:
        raise click.UsageError("--user is for a new terminal, --session for one that is there")

    keys = parse_keys(detach_keys)

    async def main(signals: Signals) -> int:
        async with attached(name) as sandbox:
            if listing:
                return _list(await sandbox.shells(), as_json)
            wish = Wish(argv=(), env={}, user=user)
            if session is None:
                shell = await open_terminal(sandbox, wish)
            else:
                columns, rows = terminal_size()
                shell = await sandbox.attach_shell(session, columns=columns, rows=rows)
            try:
                return await relay(sandbox, shell, wish, keys, signals, keep=True)
            except Left as left:
                say_left(sandbox, left.session)
                return Exit.OK

    if not listing:
        require_terminal()
    return run_in_sandbox(main)


def _list(shells: list[ShellInfo], as_json: bool) -> int:
    if as_json:
        print_json([asdict(shell) for shell in shells])
        return Exit.OK
    rows = [
        (
            shell.session,
            shell.pid,
            f"{shell.columns}x{shell.rows}",
            shell.attached,
            show_age(shell.created),
            "running" if shell.alive else "ended",
            " ".join(shell.argv),
        )
        for shell in shells
    ]
    print_table(("SESSION", "PID", "SIZE", "ATTACHED", "AGE", "STATE", "COMMAND"), rows)
    return Exit.OK

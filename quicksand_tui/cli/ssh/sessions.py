"""Sessions of a client: commands, terminals and SFTP, which run in the guest, and the near end of
their channels, read and written at the pace of the other side."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

import asyncssh
from quicksand.base.errors import QuicksandError
from quicksand.guest.agent.wire import Stream
from quicksand.guest.execution import Command, ExitStatus
from quicksand.guest.shell import Shell
from quicksand.guest.users import Login
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.guests.executing import choose_term
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.model.text import clean

QUEUE_MAX = 128 * 1024
"""Bytes that wait to be read before the channel is paused. The channel itself then holds as much as
its window allows."""

LOOK_S = 1.0
"""Seconds between looks whether a channel that is not read from has been closed."""

KEYS_S = 0.02
"""Seconds between looks whether an exchange of keys has ended; there is one each hour or GiB."""

_FLOW = "quicksand_flow"


class Tasks:
    """Runs coroutines beside each other. None of them may raise."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self.is_ending = False
        """Whether the connection ends: long work is not begun any more."""

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Runs a coroutine, and returns its task."""
        task = asyncio.create_task(work, name=f"quicksand-ssh-{name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def end(self, patience: float) -> None:
        """Waits so many seconds for all of them, then cancels those that are left."""
        self.is_ending = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while self._running and (left := deadline - loop.time()) > 0:  # they may start others
            await asyncio.wait(self._running, timeout=left)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)


class Flow:
    """Whether a connection takes more bytes. A channel has a window of its own, which the client
    chooses: with a huge one all output would wait here, in the transport's buffer."""

    def __init__(self, connection: asyncssh.SSHServerConnection) -> None:
        self._connection = connection
        self._is_over = False
        self._is_open = asyncio.Event()
        self._is_open.set()
        # The transport tells its protocol, and that of asyncssh does nothing with it.
        connection.pause_writing = self._is_open.clear  # type: ignore[method-assign]
        connection.resume_writing = self._is_open.set  # type: ignore[method-assign]
        connection.set_extra_info(**{_FLOW: self})

    async def wait(self) -> None:
        """Waits until the connection takes more, or is over."""
        await self._is_open.wait()
        # While keys are exchanged asyncssh keeps all output, without a bound; and a client can
        # begin that and never go on.
        while not (self._is_over or self._connection._kex_complete):
            await asyncio.sleep(KEYS_S)
            await self._is_open.wait()

    def end(self) -> None:
        """Wakes all that wait: the transport is gone."""
        self._is_over = True
        self._is_open.set()


class Pipe:
    """The methods of a session that asyncssh calls, as coroutines. A session is a class of
    asyncssh's, too."""

    def __init__(self) -> None:
        self._chan: Any = None
        self._queue: list[bytes] = []
        self._queued = 0
        self._paused = False
        self._at_end = False
        self._has_ended = False
        self._flow: Flow | None = None
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.lost = asyncio.Event()
        """Set once the channel is closed, by either side."""
        self.when_lost: Callable[[], None] = lambda: None

    # Called by asyncssh.

    def connection_made(self, chan: Any) -> None:
        self._chan = chan
        self._flow = chan.get_extra_info(_FLOW)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._queue.append(data)
        self._queued += len(data)
        if self._queued > QUEUE_MAX and not self._paused:
            self._paused = True
            self._chan.pause_reading()
        self._changed.set()

    def eof_received(self) -> bool:
        self._at_end = True
        self._changed.set()
        return True  # this side may still send

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._changed.set()
        self._writable.set()
        self.when_lost()

    # Called by the server of the channel.

    async def read(self) -> bytes:
        """Returns bytes of the client; b"" once it sends nothing more, or the channel is closed."""
        while not self._queue:
            if self._at_end or self.lost.is_set():
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = b"".join(self._queue)  # the fewer pieces, the less work for the guest's agent
        self._queue.clear()
        self._queued = 0
        if self._paused:
            self._paused = False
            self._chan.resume_reading()
        return data

    async def write(self, data: bytes, datatype: int | None = None) -> bool:
        """Sends to the client; waits while it takes nothing. Returns whether the channel is
        open."""
        await self._writable.wait()
        if self._flow is not None:
            await self._flow.wait()
        if self.lost.is_set() or self._chan.is_closing():
            return False
        self._chan.write(data, datatype)
        return True

    def write_eof(self) -> None:
        """Tells the client that nothing more comes."""
        if not self._chan.is_closing():
            self._has_ended = True
            self._chan.write_eof()

    async def until_lost(self, work: Coroutine[Any, Any, None]) -> bool:
        """Does work until it is done or the channel is closed, which cancels it. Returns whether it
        is done. Raises the work's errors."""
        working = asyncio.create_task(work, name="quicksand-ssh-work")
        losing = asyncio.create_task(self._wait_lost(), name="quicksand-ssh-lost")
        try:
            await asyncio.wait((working, losing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, losing):
                task.cancel()
            await asyncio.wait((working, losing))
        if working.cancelled():
            return False
        working.result()
        return True

    async def _wait_lost(self) -> None:
        """Waits until the channel is closed. While it is paused, asyncssh tells of a close only
        after all earlier data, which may never be read; so the close is looked for."""
        while not self.lost.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self.lost.wait()
            # After an end of this side's own, every channel looks as if it were closing.
            if self._paused and not self._has_ended and self._chan.is_closing():
                self._chan.close()  # drops the waiting data, and then the channel is lost


SIGNALS: Final[Mapping[int, str]] = {
    **{1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 6: "ABRT", 8: "FPE", 9: "KILL"},
    **{10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM"},
}
"""Signals that SSH has names for (RFC 4254, section 6.10), by their numbers on Linux."""

ENVIRONMENT = ("LANG", "COLORTERM", "GIT_PROTOCOL")
"""Variables that a client may set, besides LC_*: none that could make a program load something."""

_LOCALE = re.compile(r"LC_[A-Z]+")

SSH_VARIABLES = {
    "SSH_CLIENT": "127.0.0.1 0 22",
    "SSH_CONNECTION": "127.0.0.1 0 127.0.0.1 22",
}
"""Programs tell by these that they run in a session of SSH (ssh(1)). There are no addresses."""

VARIABLE_MAX = 4096
"""The most bytes of a variable that is taken."""

VARIABLES_MAX = 64

SIDE_MAX = 1000
"""The most characters of a terminal's width and height."""

FAILED = 255
"""The exit code of ssh when the connection, not the command, has failed (ssh(1))."""

HANG_UP_S = 30.0
"""Seconds that the agent may take to hang a command up: one that is not told would live on."""


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest, and the user who has logged in."""

    sandbox: Sandbox
    user: str | None
    """The user; None for the image's own."""
    login: Login


@dataclass(frozen=True, slots=True)
class Terminal:
    """The terminal that a client has asked for."""

    kind: str
    columns: int
    rows: int


class GuestSession(Pipe, asyncssh.SSHServerSession[bytes]):
    """One session: a command, a shell or SFTP."""

    def __init__(self, guest: Guest, tasks: Tasks) -> None:
        super().__init__()
        self._guest = guest
        self._tasks = tasks
        self._terminal: Terminal | None = None
        self._command: str | None = None
        self._is_sftp = False
        self._running: Command | Shell | None = None
        self._resizing: asyncio.Task[None] | None = None

    # Called by asyncssh.

    def pty_requested(
        self,
        term_type: str,
        term_size: tuple[int, int, int, int],
        term_modes: Mapping[int, int],
    ) -> bool:
        self._terminal = Terminal(term_type[:VARIABLE_MAX], *_size(*term_size[:2]))
        return True

    def shell_requested(self) -> bool:
        return True

    def exec_requested(self, command: str) -> bool:
        self._command = command
        return "\0" not in command

    def subsystem_requested(self, subsystem: str) -> bool:
        self._is_sftp = subsystem == "sftp"
        return self._is_sftp

    def session_started(self) -> None:
        self._tasks.start(self._serve(), "session")

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        if self._terminal is not None:
            self._terminal = Terminal(self._terminal.kind, *_size(width, height))
            self._resize()

    def signal_received(self, signal: str) -> None:
        if self._running is not None and signal in SIGNALS.values():
            self._tasks.start(_send_signal(self._running, signal), "signal")

    def break_received(self, msec: int) -> bool:
        return False

    # Serving it

    async def _serve(self) -> None:
        try:
            status = await self._serve_it()
        except QuicksandError as error:
            message = f"{clean(text_of(error))}\r\n".encode()
            await self.write(message, asyncssh.EXTENDED_DATA_STDERR)
            self._chan.exit(FAILED)
            return
        if status is None:  # the client is gone
            self._chan.close()
        elif not self._chan.is_closing():
            if status.signal is not None and status.signal in SIGNALS:
                self._chan.exit_with_signal(SIGNALS[status.signal])
            else:
                self._chan.exit(status.exit_code)

    async def _serve_it(self) -> ExitStatus | None:
        if self._terminal is not None and not self._is_sftp:
            return await self._serve_terminal(self._terminal)
        return await self._serve_command()

    async def _serve_command(self) -> ExitStatus | None:
        """Runs a command, the user's shell on the client's input, or SFTP. Returns its end; None if
        the client went away first."""
        sandbox, user, login = self._guest.sandbox, self._guest.user, self._guest.login
        if self._is_sftp:
            command = await sandbox.open_sftp(user)
        else:
            asked = [] if self._command is None else ["-c", self._command]
            command = await sandbox.spawn(
                [login.shell, *asked],
                cwd=login.home,
                user=user,
                env=self._environment(),
                stdin=True,
                detach=True,  # its programs in the background live on, as with sshd
            )
        self._running = command

        async def show() -> None:
            async for stream, data in command.output():
                datatype = asyncssh.EXTENDED_DATA_STDERR if stream is Stream.STDERR else None
                if not await self.write(data, datatype):
                    return

        try:
            await self.until_lost(self._relay(command, show()))
        finally:
            if command.status is None:
                self._tasks.start(hang_up(sandbox, command, self._tasks), "hang-up")
        return command.status

    async def _serve_terminal(self, terminal: Terminal) -> ExitStatus | None:
        """Runs a login shell or a command in a terminal. Returns its end; None if the client went
        away first, which hangs the terminal up."""
        login, env = self._guest.login, self._environment()
        if terminal.kind:
            env["TERM"] = await choose_term(self._guest.sandbox, terminal.kind)
        shell = await self._guest.sandbox.shell(
            None if self._command is None else [login.shell, "-c", self._command],
            columns=terminal.columns,
            rows=terminal.rows,
            cwd=login.home,
            user=self._guest.user,
            env=env,
            name="ssh",
        )
        self._running = shell
        if self._terminal != terminal:  # the size has changed meanwhile
            self._resize()

        async def show() -> None:
            async for data in shell.output():
                if not await self.write(data):
                    return

        try:
            await self.until_lost(self._relay(shell, show()))
        finally:
            if shell.status is None:
                self._tasks.start(_close(shell), "close")
        return shell.status

    async def _relay(self, running: Command | Shell, show: Coroutine[Any, Any, None]) -> None:
        """Passes the client's input on while the output is shown."""
        feeding = asyncio.create_task(self._feed(running), name="quicksand-ssh-input")
        try:
            await show
        finally:
            feeding.cancel()
            await asyncio.wait((feeding,))

    async def _feed(self, running: Command | Shell) -> None:
        with contextlib.suppress(QuicksandError):  # the reader of the output gets the same error
            while data := await self.read():
                await running.write(data)
            if isinstance(running, Command):
                running.close_stdin()

    def _resize(self) -> None:
        """Gives the guest's terminal the client's size, the last one if several come at a time."""
        if isinstance(self._running, Shell) and (self._resizing is None or self._resizing.done()):
            self._resizing = self._tasks.start(self._do_resize(self._running), "resize")

    async def _do_resize(self, shell: Shell) -> None:
        done: Terminal | None = None
        with contextlib.suppress(QuicksandError):  # it has just ended
            while (wanted := self._terminal) is not None and wanted != done:
                await shell.resize(wanted.columns, wanted.rows)
                done = wanted

    def _environment(self) -> dict[str, str]:
        sent = list(self._chan.get_environment().items())[:VARIABLES_MAX]
        found = {
            name: value
            for name, value in sent
            if (name in ENVIRONMENT or _LOCALE.fullmatch(name)) and len(value) <= VARIABLE_MAX
        }
        return {name: value for name, value in found.items() if "\0" not in value} | SSH_VARIABLES


def _size(columns: int, rows: int) -> tuple[int, int]:
    """Returns a size that a terminal can have: clients without one say 0."""
    return min(columns or 80, SIDE_MAX), min(rows or 24, SIDE_MAX)


async def _send_signal(running: Command | Shell, name: str) -> None:
    with contextlib.suppress(QuicksandError):  # it has just ended
        await running.signal(name)


async def _close(shell: Shell) -> None:
    with contextlib.suppress(QuicksandError, TimeoutError):
        async with asyncio.timeout(HANG_UP_S):
            await shell.close()


async def hang_up(sandbox: Sandbox, command: Command, tasks: Tasks) -> None:
    """Tells a command that its client is gone: SIGHUP for itself, and not for the programs that it
    has started. While the connection lasts, its output is dropped, since it would wait for a
    reader."""
    with contextlib.suppress(QuicksandError, TimeoutError):
        async with asyncio.timeout(HANG_UP_S):
            if not command.has_ended:  # otherwise its pid may be another process's
                command.close_stdin()
                await sandbox.request("kill", {"pid": command.pid, "signal": "HUP"})
        if not tasks.is_ending:
            await command.wait()

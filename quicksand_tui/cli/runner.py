"""Runs asynchronous commands: opens their sandbox, handles signals, finds why one is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from quicksand.base.errors import (
    AgentUnreachableError,
    ConfigError,
    MachineError,
    QuicksandError,
    RevertedError,
    StateError,
)
from quicksand.base.faults import note_unhandled
from quicksand.base.paths import paths
from quicksand.display.sought import no_display
from quicksand.records.layout import runtime_dir
from quicksand.records.paused import refuse_paused
from quicksand.records.registry import Registry
from quicksand.sandbox import Sandbox
from quicksand.things.status import ENDED, Status

from quicksand_tui.cli.output import BY_SIGNAL, Exit, complain, explain_os_error, say
from quicksand_tui.model.remedy_words import FAULT, hint_of, text_of, worded
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.base.errors import RemoteError
    from quicksand.hosted.remote_host import RemoteHost
    from quicksand.records.sandboxes import Entry
    from quicksand.remote.connection import Way


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AGAIN_S = 2.0
"""Seconds within which a second Ctrl-C ends the command."""

END_S = 10.0
"""Seconds that a guest's command has to end after SIGTERM or SIGHUP, as with `docker stop`."""


Reach = Callable[[], AbstractAsyncContextManager["RemoteHost | None"]]
"""Yields the machine on which a command does its work; None is this one."""


@contextlib.asynccontextmanager
async def _here() -> AsyncIterator[None]:
    yield


_reach: ContextVar[Reach] = ContextVar("reach", default=_here)


@contextlib.contextmanager
def working_on(reach: Reach) -> Iterator[None]:
    """Has the commands of the context that can do so (`chosen_host`) work on another machine."""
    token = _reach.set(reach)
    try:
        yield
    finally:
        _reach.reset(token)


@contextlib.asynccontextmanager
async def chosen_host() -> AsyncIterator[RemoteHost | None]:
    """Yields the machine on which the present command does its work; None is this one."""
    async with _reach.get()() as host:
        yield host


class CannotStart(Exception):  # noqa: N818 - reads as a fact
    """Raised when a command of the guest cannot be started; ``code`` is the exit code for that."""

    def __init__(self, cause: QuicksandError, code: Exit) -> None:
        super().__init__(text_of(cause))
        self.hint = hint_of(cause)
        self.code = code


class Signals:
    """Makes SIGINT, SIGTERM and SIGHUP cancel the main task, unless `all_to` handles them or
    `passed_on` gives them to a command."""

    def __init__(self, task: asyncio.Task[int]) -> None:
        self._task = task
        self._on_any: Callable[[signal.Signals], None] | None = None
        self.received: signal.Signals | None = None
        """The signal that ended the main task."""

    def end(self, number: signal.Signals) -> None:
        """Cancels the main task as if the signal had arrived."""
        self.received = self.received or number
        self._task.cancel()

    @contextlib.contextmanager
    def passed_on(self, send: Callable[[str], None]) -> Iterator[None]:
        """During the context, a command gets the signals by ``send``, which takes their names. The
        main task is ended by a Ctrl-C if it comes twice within AGAIN_S, by another signal if it
        comes twice or END_S later."""
        loop = asyncio.get_running_loop()
        last: dict[signal.Signals, float] = {}
        waiting: list[asyncio.TimerHandle] = []

        def pass_on(number: signal.Signals) -> None:
            since = loop.time() - last.get(number, -math.inf)
            if since < (AGAIN_S if number is signal.SIGINT else math.inf):
                self.end(number)
                return
            last[number] = loop.time()
            send(number.name.removeprefix("SIG"))
            if number is not signal.SIGINT:
                waiting.append(loop.call_later(END_S, self.end, number))

        try:
            with self._all_to(pass_on):
                yield
        finally:
            for timer in waiting:
                timer.cancel()

    @contextlib.contextmanager
    def all_to(self, handler: Callable[[], None]) -> Iterator[None]:
        """During the context, each of the signals calls ``handler`` and does nothing else."""
        with self._all_to(lambda _: handler()):
            yield

    @contextlib.contextmanager
    def _all_to(self, handler: Callable[[signal.Signals], None]) -> Iterator[None]:
        before, self._on_any = self._on_any, handler
        try:
            yield
        finally:
            self._on_any = before

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handles the signals during the context, except those that are ignored for us (nohup)."""
        loop = asyncio.get_running_loop()
        mine = [n for n in ENDING if signal.getsignal(n) is not signal.SIG_IGN]
        for number in mine:
            loop.add_signal_handler(number, self._received, number)
        try:
            yield
        finally:
            for number in mine:
                loop.remove_signal_handler(number)

    def _received(self, number: signal.Signals) -> None:
        if self._on_any is not None:
            self._on_any(number)
        else:
            self.end(number)


def run_async(main: Callable[[Signals], Awaitable[int]]) -> int:
    """Runs ``main`` to its end and returns its exit code. A signal cancels ``main``; the code is
    then 128 plus the signal's number. Raises what ``main`` raises."""
    return asyncio.run(_watch(main))


class _Teller(logging.Handler):
    """Tells the engine's warnings while a command goes on."""

    def emit(self, record: logging.LogRecord) -> None:
        # In a terminal that is raw, a line does not begin at the left by itself.
        say(f"{clean(worded(record.msg))}\r" if sys.stderr.isatty() else clean(worded(record.msg)))


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    logger, teller = logging.getLogger("quicksand"), _Teller(logging.WARNING)
    logger.addHandler(teller)
    try:
        yield
    finally:
        logger.removeHandler(teller)


def _unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if hint := note_unhandled(context):
        complain(FAULT, hint=hint)


async def _watch(main: Callable[[Signals], Awaitable[int]]) -> int:
    task = asyncio.current_task()
    assert task is not None
    signals = Signals(task)
    asyncio.get_running_loop().set_exception_handler(_unhandled)
    with signals.installed(), _telling():
        try:
            return await main(signals)
        except (asyncio.CancelledError, QuicksandError):
            if signals.received is None:
                raise
            return BY_SIGNAL + signals.received


def run_in_sandbox(main: Callable[[Signals], Awaitable[int]]) -> int:
    """Does the same as `run_async` for commands that return the exit code of a command in the
    guest: failures of the sandbox itself are reported and have their own exit code. Raises
    ConfigError, which is a fault of the command line, and BrokenPipeError."""
    try:
        return run_async(main)
    except CannotStart as error:
        complain(error)
        return error.code
    except ConfigError:
        raise
    except BrokenPipeError:
        raise
    except OSError as error:  # our own stdin or stdout failed: a full disk
        complain(explain_os_error(error))
        return Exit.SANDBOX_FAILED
    except QuicksandError as error:
        complain(error)
        return Exit.SANDBOX_FAILED


END_WAIT_S = 2.0
"""Seconds to wait for a machine's processes to end; its connection breaks a moment earlier."""

END_POLL_S = 0.02
FAR_POLL_S = 0.2


def _find(name: str, *, with_display: bool) -> Entry:
    """Finds a sandbox. Raises SandboxNotFoundError; NoDisplayError if it must have a display and
    has none: an error that it does not run would be half of the truth."""
    entry = Registry(paths()).find(name)
    if with_display and entry.record is not None and not entry.record.config.enable_display:
        raise no_display(entry.name)
    return entry


@contextlib.asynccontextmanager
async def reached(way: Way | None, name: str) -> AsyncIterator[Sandbox]:
    """Yields a running sandbox of another machine, to which ssh has connected then; None is this
    machine. Raises QuicksandError."""
    reach = _here if way is None else partial(reached_host, way, asks=_has_terminal())
    with working_on(reach):
        async with attached(name) as sandbox:
            yield sandbox


@contextlib.asynccontextmanager
async def reached_host(
    destination: Way, *, asks: bool, on_away: Callable[[RemoteError], None] = lambda _: None
) -> AsyncIterator[RemoteHost]:
    """Yields another machine, to which ssh has connected then. ``asks``: ssh may ask for a
    passphrase. ``on_away`` gets the reason when it is connected anew. Raises RemoteError,
    HostError."""
    from quicksand.hosted.remote_host import RemoteHost  # noqa: PLC0415
    from quicksand.remote.connection import SharedConnections  # noqa: PLC0415

    sharing = SharedConnections.find(destination, asks=asks)
    sharing.on_away = on_away
    with sharing.use():
        await sharing.link()
        yield RemoteHost.by(sharing)
    await sharing.ended()


def _has_terminal() -> bool:
    """Returns whether ssh can ask for a passphrase: it does so on the terminal of this process,
    which a ProxyCommand has although all its streams may be pipes."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def attach_here(name: str, *, with_display: bool = False) -> Sandbox:
    """Attaches to the running sandbox ``name`` of this machine. Raises as `attached`."""
    entry = _find(name, with_display=with_display)
    refuse_paused(entry.name, runtime_dir(paths(), entry.id).current())
    return Sandbox.attach(entry.id)


@contextlib.asynccontextmanager
async def attached(name: str, *, with_display: bool = False) -> AsyncIterator[Sandbox]:
    """Yields the running sandbox ``name`` of the present command's machine, and closes it at the
    end.

    Raises SandboxNotFoundError; StateError for a sandbox that is paused or does not run, and, if it
    must have a display, NoDisplayError. Of another machine, its first call raises them.
    """
    async with chosen_host() as host:
        if host is None:
            sandbox = attach_here(name, with_display=with_display)
        else:
            sandbox = Sandbox.attach(name, host=host)
        try:
            if host is not None and with_display:
                await sandbox.look()
                _require_display(sandbox)
                await sandbox.ping()  # refuses a paused one
            yield sandbox
        finally:
            sandbox.close()


@contextlib.asynccontextmanager
async def opened(name: str, *, hint: str, with_display: bool = False) -> AsyncIterator[Sandbox]:
    """Yields the sandbox ``name`` of the present command's machine, running or paused, and closes
    it at the end.

    Raises SandboxNotFoundError; StateError with ``hint`` for a sandbox that does not run; and, if
    it must have a display, NoDisplayError.
    """
    async with chosen_host() as host:
        if host is None:
            entry = _find(name, with_display=with_display)
            sandbox, is_live = Sandbox.open(entry.id), entry.is_live
        else:
            sandbox, is_live = Sandbox.open(name, host=host), False  # until it is looked at
        try:
            if host is not None:
                await sandbox.look()
                if with_display:
                    _require_display(sandbox)
                is_live = sandbox.is_running
            if not is_live:
                raise StateError(f"the sandbox {sandbox.name!r} is not running", hint=hint)
            yield sandbox
        finally:
            sandbox.close()


def _require_display(sandbox: Sandbox) -> None:
    if not sandbox.config.enable_display:
        raise no_display(sandbox.name)


async def why_gone(sandbox: Sandbox, error: AgentUnreachableError) -> QuicksandError:
    """Returns the error to report when a connection broke: the end of the machine, or ``error`` if
    it still runs."""
    if isinstance(error, RevertedError):
        return RevertedError(str(error), hint="what ran there since then is undone")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + END_WAIT_S
    async with chosen_host() as host:
        while True:
            gone = _ended_here(sandbox) if host is None else await _ended_there(host, sandbox)
            if gone is not None or loop.time() > deadline:
                return gone or error
            await asyncio.sleep(END_POLL_S if host is None else FAR_POLL_S)


def _ended_here(sandbox: Sandbox) -> QuicksandError | None:
    """Returns the error for a sandbox that has ended; None while it lives."""
    entry = Registry(paths()).inspect(sandbox.id)
    if entry is None:
        return _is_gone(sandbox.name)
    reason = f": {entry.error}" if entry.status is Status.CRASHED else ""
    return None if entry.is_live else _has_ended(entry.name, entry.status, reason)


async def _ended_there(host: RemoteHost, sandbox: Sandbox) -> QuicksandError | None:
    """Returns the error for a sandbox of another machine that has ended, or for a machine that is
    away; None while it lives."""
    try:
        host.sharing().present()
        found = {one.id: one for one in await host.list()}.get(sandbox.id)
    except QuicksandError as away:
        return away
    if found is None:
        return _is_gone(sandbox.name)
    status = next((one for one in ENDED if one.value == found.status), None)
    return None if status is None else _has_ended(found.name, status)


def _is_gone(name: str) -> MachineError:
    return MachineError(f"the sandbox {name!r} was stopped and removed")


def _has_ended(name: str, status: Status, reason: str = "") -> MachineError:
    if status is not Status.CRASHED:
        return MachineError(f"the sandbox {name!r} was stopped")
    return MachineError(
        f"the sandbox {name!r} crashed{reason}",
        hint=f"`quicksand-tui logs {name}` shows its console",
    )

"""Running asynchronous commands, and what signals do to them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator

from quicksand.errors import ConfigError, QuicksandError

from quicksand_tui.cli.exits import BY_SIGNAL, Exit
from quicksand_tui.cli.output import complain, explain_os_error

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CannotStart(Exception):  # noqa: N818 - reads as a fact
    """The command in the guest was not started. ``code`` is the exit code that says why."""

    def __init__(self, cause: QuicksandError, code: Exit) -> None:
        super().__init__(str(cause))
        self.hint = cause.hint
        self.code = code


class Signals:
    """SIGINT, SIGTERM and SIGHUP cancel the main task, unless SIGINT is taken over."""

    def __init__(self, task: asyncio.Task[int]) -> None:
        self._task = task
        self._on_interrupt: Callable[[], None] | None = None
        self.received: signal.Signals | None = None
        """The signal that ended the main task."""

    def end(self, number: signal.Signals) -> None:
        """Cancel the main task on behalf of a signal."""
        self.received = self.received or number
        self._task.cancel()

    @contextlib.contextmanager
    def interrupts_to(self, handler: Callable[[], None]) -> Iterator[None]:
        """Meanwhile SIGINT calls ``handler`` and nothing else."""
        before, self._on_interrupt = self._on_interrupt, handler
        try:
            yield
        finally:
            self._on_interrupt = before

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals meanwhile, except those that our parent had us ignore (nohup)."""
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
        if number is signal.SIGINT and self._on_interrupt is not None:
            self._on_interrupt()
        else:
            self.end(number)


def run_async(main: Callable[[Signals], Awaitable[int]]) -> int:
    """Run ``main`` to its end; a signal cancels it and gives 128 + its number."""
    return asyncio.run(_watch(main))


async def _watch(main: Callable[[Signals], Awaitable[int]]) -> int:
    task = asyncio.current_task()
    assert task is not None
    signals = Signals(task)
    with signals.installed():
        try:
            return await main(signals)
        except (asyncio.CancelledError, QuicksandError):
            if signals.received is None:
                raise
            return BY_SIGNAL + signals.received


def run_in_sandbox(main: Callable[[Signals], Awaitable[int]]) -> int:
    """As `run_async`, for what passes on a command's exit code: failures of the sandbox itself get
    a code of their own. Values that make no sense are the command line's fault as everywhere."""
    try:
        return run_async(main)
    except CannotStart as error:
        complain(error)
        return error.code
    except ConfigError:
        raise
    except BrokenPipeError:
        raise
    except OSError as error:  # our own stdin or stdout: a full disk
        complain(explain_os_error(error))
        return Exit.SANDBOX_FAILED
    except QuicksandError as error:
        complain(error)
        return Exit.SANDBOX_FAILED

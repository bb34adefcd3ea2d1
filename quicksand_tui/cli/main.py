"""Runs `quicksand-tui`: takes its arguments, returns an exit code."""

from __future__ import annotations

import codecs
import errno
import io
import os
import signal
import sys
import warnings
from collections.abc import Sequence

from quicksand_tui.cli.host_choice import find_host, has_terminal, open_app
from quicksand_tui.cli.output import (
    COMPLETE_VARIABLE,
    Exit,
    abandon_stdout,
    complain,
    complain_of_fault,
    explain_os_error,
)
from quicksand_tui.model.text import similar
from quicksand_tui.opening.asyncio_alone import import_asyncio

SIMILAR = "quicksand-similar"
"""The name of the error handler of the standard streams (codecs.register_error)."""


def run(argv: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. Errors of the engine and of the system are
    reported on stderr; those of the program itself are in its log, and stderr names that."""
    _open_standard_streams()
    _make_writable()
    # The engine warns for the sake of scripts; the commands and the app say the same in their own
    # way.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"quicksand_tui\.")
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except OSError as error:
        # Python flushes stdout again when it exits, and that would fail again.
        abandon_stdout()
        if error.errno == errno.EPIPE:
            return Exit.READER_GONE
        complain(explain_os_error(error))
        return Exit.FAILURE
    except Exception as error:  # noqa: BLE001 - a fault of ours
        complain_of_fault(error)
        return Exit.FAILURE
    finally:
        _settle_stderr()


def _settle_stderr() -> None:
    """Leaves nothing for Python to write to stderr when it exits: where that fails, as on a
    terminal that has gone, the exit code would be 120, whatever ours is."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _open_standard_streams() -> None:
    """Opens /dev/null for each standard stream that is closed. Otherwise the next file or socket
    would get its number, and output would go there."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _make_writable() -> None:
    """Lets stdout and stderr take every text: characters that their encoding lacks are written as
    similar ones or escaped, instead of ending the command with UnicodeEncodeError."""
    codecs.register_error(SIMILAR, _write_similar)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors != "surrogateescape":
            stream.reconfigure(errors=SIMILAR)


def _write_similar(error: UnicodeError) -> tuple[str, int]:
    """Handles an error of encoding: returns similar characters."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return similar(error.object[error.start : error.end]), error.end


def _end_by_interrupt() -> None:
    """Has SIGINT end the program until the command handles it: the program has nothing to clean up
    yet, and Python loses a KeyboardInterrupt that comes within a callback of its imports."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else ignored (nohup)
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _without_group(argv: Sequence[str]) -> int | None:
    """Carries out a line for another machine, or one that need not be read as others are; returns
    the exit code, and None for any other line."""
    if (chosen := find_host(argv, os.environ)) is not None:
        import_asyncio()
        from quicksand_tui.cli.hosts.there import run_there  # noqa: PLC0415

        return run_there(chosen)
    if argv[:1] in (["exec"], ["run"]):
        _end_by_interrupt()
    if argv[:1] in (["exec"], ["run"], ["serve"]):
        import_asyncio()
    if [*argv[:2]] == ["serve", "--line"] and len(argv) == 3:
        from quicksand.remote.far_program import carry_line_out  # noqa: PLC0415

        return carry_line_out(argv[2], run)
    if argv[:1] == ["exec"]:
        from quicksand_tui.cli.guests.executing import execute_plainly  # noqa: PLC0415

        return execute_plainly(argv)
    return None


def _dispatch(argv: Sequence[str]) -> int:
    completes = bool(os.environ.get(COMPLETE_VARIABLE))
    try:
        if not argv and not completes and has_terminal():
            # The app starts faster without importing the reader of command lines.
            return open_app()
        if not completes and (code := _without_group(argv)) is not None:
            return code
        from quicksand_tui.cli import click_commands  # noqa: PLC0415

        return click_commands.complete() if completes else click_commands.invoke(argv)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else Exit.FAILURE
    except Exception as error:
        from quicksand.base.errors import ConfigError, QuicksandError  # noqa: PLC0415

        if not isinstance(error, QuicksandError):
            raise
        complain(error)
        return Exit.USAGE if isinstance(error, ConfigError) else Exit.FAILURE

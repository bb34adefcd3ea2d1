"""`quicksand-tui`: from its arguments to an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from quicksand_tui.cli.exits import Exit
from quicksand_tui.cli.opening import has_terminal, open_app
from quicksand_tui.cli.output import COMPLETE_VARIABLE, abandon_stdout, complain, explain_os_error


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    _open_standard_streams()
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except OSError as error:
        # What is left in its buffer would fail again when Python ends.
        abandon_stdout()
        if error.errno == errno.EPIPE:
            return Exit.READER_GONE
        complain(explain_os_error(error))
        return Exit.FAILURE


def _open_standard_streams() -> None:
    """Put /dev/null where a standard stream is closed: else the next file or socket that is opened
    would take its place, and output would go into that."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _dispatch(argv: Sequence[str]) -> int:
    completes = bool(os.environ.get(COMPLETE_VARIABLE))
    try:
        if not argv and not completes and has_terminal():
            # The app starts without what reads command lines.
            return open_app()
        from quicksand_tui.cli import group

        return group.complete() if completes else group.invoke(argv)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else Exit.FAILURE
    except Exception as error:
        from quicksand.errors import ConfigError, QuicksandError

        if not isinstance(error, QuicksandError):
            raise
        complain(error)
        return Exit.USAGE if isinstance(error, ConfigError) else Exit.FAILURE

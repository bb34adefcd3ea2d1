"""Faults of the program itself: exceptions that nobody has raised on purpose, such as a NameError.

Their words help only who mends the program, so no user reads them: they go to the engine's log with
their traceback, and the user reads one sentence, and where that log is.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from quicksand.base.effort import LINE_MAX, LOG_MAX, append, describe, note
from quicksand.base.error_text import printable
from quicksand.base.errors import PathError, QuicksandError
from quicksand.base.paths import paths

MARK = "a fault of ours: "
"""Begins the text of a fault in the log, after the time and the process's id."""

MESSAGE_MAX = 300
"""The most characters that are noted of a fault's message."""

FRAMES_MAX = 20
"""The most calls that are noted of one exception, the innermost."""

CAUSES_MAX = 4
"""The most exceptions that are noted of one fault: itself, and those that led to it."""

SIZE_MAX = LOG_MAX // 4
"""The most bytes that are noted of one fault."""


def is_fault(error: BaseException) -> bool:
    """Whether an unhandled exception is a fault of the program. Errors of the engine and the host
    are none, and neither is the end of a task or of the program."""
    return isinstance(error, Exception) and not isinstance(error, QuicksandError | OSError)


def note_fault(error: BaseException) -> str:
    """Write an exception with its traceback to the engine's log. Returns a hint for the user, which
    names the log. Raises nothing."""
    if (log := _find_log()) is None:
        return "please report it"
    text = "".join(f"{line[:LINE_MAX]}\n" for line in _lines(error))
    append(log, text.encode("utf-8", "replace")[:SIZE_MAX])
    return f"please report it, with the last lines of {log}"


def note_unhandled(context: Mapping[str, Any]) -> str:
    """Write what asyncio tells the exception handler of a loop to the engine's log. Returns the
    hint of `note_fault`; "" for what is no fault."""
    error = context.get("exception")
    if isinstance(error, BaseException) and is_fault(error):
        return note_fault(error)
    if (log := _find_log()) is not None:
        about = f": {describe(error)}" if isinstance(error, BaseException) else ""
        note(log, f"{context.get('message')}{about}")
    return ""


@contextlib.contextmanager
def noting_faults() -> Iterator[None]:
    """Notes a fault in the block, and raises it on: for programs in the background, whose stderr
    nobody reads."""
    try:
        yield
    except Exception as error:
        if is_fault(error):
            note_fault(error)
        raise


def _find_log() -> Path | None:
    """Return the engine's log; None if there is no place for one."""
    try:
        log = paths().engine_log
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (PathError, OSError):
        return None
    return log


def _lines(error: BaseException) -> Iterator[str]:
    """Yield the lines for the log. They are written by hand, since `traceback` takes 3 ms to
    import, shows lines of sources that may have changed since, and knows no bounds."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    lead = f"{now} [{os.getpid()}] {MARK}"
    cause: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if cause is None:
            return
        yield lead + printable(describe(cause)[:MESSAGE_MAX])
        yield from _calls(cause)
        lead = "  because of " if cause.__cause__ is not None else "  while handling "
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _calls(error: BaseException) -> list[str]:
    trace, calls = error.__traceback__, []
    while trace is not None:
        code = trace.tb_frame.f_code
        calls.append(f'    File "{code.co_filename}", line {trace.tb_lineno}, in {code.co_name}')
        trace = trace.tb_next
    return calls[-FRAMES_MAX:]

"""Errors of the engine as failures that the app shows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from quicksand_tui.door import lazy_door
from quicksand_tui.model.jobs import Failure, OperationError
from quicksand_tui.model.remedy_words import FAULT, hint_of, text_of
from quicksand_tui.model.text import error_text, sanitise, sanitise_lines

LOG_LINES = 40
"""The most lines of a log that a failure shows."""


@contextlib.contextmanager
def reading(title: str) -> Iterator[None]:
    """Turns an error of the engine into OperationError; an error of the host stays OSError."""
    try:
        yield
    except lazy_door.QuicksandError as error:
        raise OperationError(describe_failure(title, error)) from error


def describe_failure(title: str, error: BaseException) -> Failure:
    """Returns message, hint and end of the log of an error of the engine, and the host's words for
    its own errors. Any other exception is a fault of ours: its text is for us, and goes to the log
    that the hint names."""
    if isinstance(error, lazy_door.QuicksandError):
        log = str(getattr(error, "log", ""))
        # str(error) includes the log.
        message = str(error.args[0]) if log else text_of(error) or type(error).__name__
        return Failure(
            title=sanitise(title),
            message=sanitise(message),
            hint=sanitise(hint_of(error)),
            log=_last_lines(log),
        )
    if isinstance(error, OSError) and error.strerror:
        return Failure(title=sanitise(title), message=error_text(error))
    return describe_fault(title, error)


def describe_fault(title: str, error: BaseException) -> Failure:
    """Writes a fault of ours to the log, and returns what the user reads."""
    hint = sanitise(lazy_door.note_fault(error))
    return Failure(title=sanitise(title), message=FAULT, hint=hint)


def _last_lines(log: str) -> tuple[str, ...]:
    lines = [line.rstrip() for line in sanitise_lines(log.strip("\n"), width=400)]
    return tuple(lines[-LOG_LINES:]) if any(lines) else ()

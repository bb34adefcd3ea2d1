"""Errors of the engine as failures that the app shows."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

from quicksand_tui.door import on_demand
from quicksand_tui.model.jobs import Failure, OperationError
from quicksand_tui.model.remedies import hint_of, text_of
from quicksand_tui.model.text import sanitise, sanitise_lines

LOG_LINES = 40
"""How many lines of a log a failure shows."""


@contextlib.contextmanager
def reading(title: str) -> Iterator[None]:
    """Turns an error of the engine into OperationError; one of the host stays OSError."""
    try:
        yield
    except on_demand.QuicksandError as error:
        raise OperationError(describe_failure(title, error)) from error


def describe_failure(title: str, error: BaseException) -> Failure:
    """Returns message, hint and end of the log of an error of the engine; of any other exception,
    its type and the traceback, as a fault of the app."""
    if isinstance(error, on_demand.QuicksandError):
        log = str(getattr(error, "log", ""))
        # str(error) includes the log.
        message = str(error.args[0]) if log else text_of(error) or type(error).__name__
        return Failure(
            title=sanitise(title),
            message=sanitise(message),
            hint=sanitise(hint_of(error)),
            log=_last_lines(log),
        )
    return Failure(
        title=sanitise(title),
        message=sanitise(f"{type(error).__name__}: {error}"),
        hint="this is a bug in quicksand-tui; please report it",
        log=_last_lines("".join(traceback.format_exception(error))),
    )


def _last_lines(log: str) -> tuple[str, ...]:
    lines = [line.rstrip() for line in sanitise_lines(log.strip("\n"), width=400)]
    return tuple(lines[-LOG_LINES:]) if any(lines) else ()

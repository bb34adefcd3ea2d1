"""From an exception to what is shown."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from quicksand_tui.text import sanitise, sanitise_lines

LOG_LINES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, for people."""

    title: str
    message: str
    hint: str = ""
    log: tuple[str, ...] = ()
    """The last lines of what QEMU or the guest said."""


class UnsuccessfulError(Exception):
    """Raised by an operation that got to its end, but not to what it was for. Its message is what
    there is to tell: nobody is interrupted with it."""


class OperationError(Exception):
    """Raised by a `Service`. Carries what to show."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def describe_failure(title: str, error: BaseException) -> Failure:
    """Message, hint and log tail of an error of the engine; of any other, its kind and where."""
    from quicksand.errors import QuicksandError

    if isinstance(error, QuicksandError):
        # Not str(error): that has the log within.
        message = str(error.args[0]) if error.args else type(error).__name__
        log = str(getattr(error, "log", ""))
        return Failure(
            title=sanitise(title),
            message=sanitise(message),
            hint=sanitise(error.hint),
            log=_last_lines(log),
        )
    where = traceback.format_exception(error)
    return Failure(
        title=sanitise(title),
        message=sanitise(f"{type(error).__name__}: {error}"),
        hint="this is a fault of quicksand-tui; a report of it is welcome",
        log=_last_lines("".join(where)),
    )


def _last_lines(log: str) -> tuple[str, ...]:
    lines = [line.rstrip() for line in sanitise_lines(log.strip("\n"), width=400)]
    return tuple(lines[-LOG_LINES:]) if any(lines) else ()

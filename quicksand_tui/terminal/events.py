"""What a guest's program told the terminal that is no picture: a bounded number at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NOTIFICATIONS_MAX: Final = 8
"""Between two calls of `Terminal.take_events`; of all other kinds only the last one is kept."""


@dataclass(frozen=True, slots=True)
class TitleChanged:
    """OSC 0 and 2, fit to be shown."""

    title: str


@dataclass(frozen=True, slots=True)
class Bell:
    """BEL, however often it rang."""


@dataclass(frozen=True, slots=True)
class CwdChanged:
    """OSC 7: the shell's directory in the guest. Absolute, without control characters; but a
    claim, as everything that a guest says."""

    path: str


@dataclass(frozen=True, slots=True)
class ClipboardWrite:
    """OSC 52: a program wants this text on the clipboard."""

    text: str


@dataclass(frozen=True, slots=True)
class Notification:
    """OSC 9 and 777, fit to be shown. ``title`` may be empty."""

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class CommandFinished:
    """OSC 133;D: a command of the shell ended, with this status if it is known."""

    status: int | None


@dataclass(frozen=True, slots=True)
class PaletteChanged:
    """OSC 4, 10, 11, 12, 104, 110, 111, 112: colours mean something else now."""


Event = (
    TitleChanged
    | Bell
    | CwdChanged
    | ClipboardWrite
    | Notification
    | CommandFinished
    | PaletteChanged
)


class Outbox:
    """Events that wait to be taken."""

    def __init__(self) -> None:
        self._events: dict[tuple[type[Event], int], Event] = {}
        self._notifications = 0

    def put(self, event: Event) -> None:
        """Keep the event. It replaces one of its kind, but for notifications: those are kept up to
        `NOTIFICATIONS_MAX`, and the rest is dropped."""
        number = 0
        if isinstance(event, Notification):
            if self._notifications >= NOTIFICATIONS_MAX:
                return
            self._notifications += 1
            number = self._notifications
        key = (type(event), number)
        self._events.pop(key, None)
        self._events[key] = event

    def take(self) -> tuple[Event, ...]:
        """All of them, the last one last."""
        events = tuple(self._events.values())
        self._events.clear()
        self._notifications = 0
        return events

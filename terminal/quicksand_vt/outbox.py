"""Two bounded queues: events that a program causes, and answers to its queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

NOTIFICATIONS_MAX: Final = 8
"""How many are kept until `Terminal.take_events`; of other kinds, only the last one is kept."""


@dataclass(frozen=True, slots=True)
class TitleChanged:
    """OSC 0 or 2 set the title, which is sanitised."""

    title: str


@dataclass(frozen=True, slots=True)
class Bell:
    """BEL rang, once or more."""


@dataclass(frozen=True, slots=True)
class CwdChanged:
    """OSC 7 reported the shell's directory. The path is absolute and free of control characters,
    but only a claim of the program."""

    path: str


@dataclass(frozen=True, slots=True)
class ClipboardWrite:
    """OSC 52 asked to put this text on the clipboard."""

    text: str


@dataclass(frozen=True, slots=True)
class Notification:
    """OSC 9 or 777 sent a notification. Both texts are sanitised; ``title`` may be empty."""

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class CommandFinished:
    """OSC 133;D reported the end of a shell's command, with its exit status if known."""

    status: int | None


@dataclass(frozen=True, slots=True)
class PaletteChanged:
    """OSC 4, 5, 10, 11, 12, 104, 105, 110, 111 or 112 changed colours."""


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
    """The queue of events."""

    def __init__(self) -> None:
        self._events: dict[tuple[type[Event], int], Event] = {}
        self._notifications = 0

    def put(self, event: Event) -> None:
        """Queues an event, which replaces an earlier one of its kind. Only notifications add up, to
        `NOTIFICATIONS_MAX`; further ones are dropped."""
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
        """Removes and returns all events, the latest last."""
        events = tuple(self._events.values())
        self._events.clear()
        self._notifications = 0
        return events


BURST_MAX: Final = 4096
"""How many bytes of answers the queue holds. A program that queries everything at its start gets
less than 1 KiB."""

RATE: Final = 16 * 1024
"""Bytes per second beyond the burst."""


class Allowance:
    """How much may be done: ``burst`` at once, and ``rate`` per second of the clock."""

    def __init__(self, burst: int, rate: int, clock: Callable[[], float]) -> None:
        self._burst, self._rate, self._clock = burst, rate, clock
        self._room = float(burst)
        self._asked = clock()

    def take(self, amount: int) -> bool:
        """Takes so much; returns False and takes nothing if there is less."""
        now = self._clock()
        more = max(0.0, now - self._asked) * self._rate
        self._room = min(self._burst, self._room + more)
        self._asked = now
        if amount > self._room:
            return False
        self._room -= amount
        return True


class Replies:
    """The queue of answers. An answer over the limits is dropped whole: the program would read half
    of one as keys."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.muted = False
        """Answers are dropped."""
        self._queue = bytearray()
        self._room = Allowance(BURST_MAX, RATE, clock)

    def send(self, text: str) -> None:
        """Queues an answer in ASCII, unless it is muted or over the limits."""
        if self.muted or len(self._queue) + len(text) > BURST_MAX:
            return
        if self._room.take(len(text)):
            self._queue += text.encode("ascii")

    def csi(self, text: str) -> None:
        """Queues a control sequence."""
        self.send(f"\x1b[{text}")

    def dcs(self, text: str) -> None:
        """Queues a device control string."""
        self.send(f"\x1bP{text}\x1b\\")

    def take(self) -> bytes:
        """Removes and returns the queued answers."""
        taken = bytes(self._queue)
        self._queue.clear()
        return taken

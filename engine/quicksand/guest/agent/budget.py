"""Limits how much of a guest's output one session holds until it is read.

Every byte is reserved before it can arrive: output through windows, which the agent must not
exceed, and events, which have no credit, through a share of their own. So a hostile agent cannot
fill this process's memory, and an unread channel does not hold up any other.
"""

from __future__ import annotations

from quicksand.base.errors import AgentProtocolError, StateError

MIB = 1024 * 1024

CHANNEL_MAX = 4 * MIB
"""Bytes that one channel may hold unread: a window for each stream, and its events."""

SESSION_MAX = 32 * MIB
"""Bytes that all channels of one session may hold unread."""

EVENTS_MAX = 2 * MIB
"""Bytes of SESSION_MAX that are for events."""

CHANNEL_EVENTS_MAX = 256 * 1024
"""Bytes of unread events of one channel; the agent sends a few, of some hundred bytes each."""

EVENT_OVERHEAD = 128
"""Bytes that an event takes in memory in addition to its text."""

WINDOWS = ((8 * MIB, 1 * MIB), (12 * MIB, 256 * 1024), (SESSION_MAX - EVENTS_MAX, 64 * 1024))
"""(Bytes reserved at most, window of a new stream): the first few streams get large windows, many
at once get the smallest that the protocol allows. 156 commands fit."""


class Budget:
    """Counts the unread bytes that one session holds or has granted."""

    def __init__(self) -> None:
        self.reserved = 0
        """Bytes of all windows."""
        self.events = 0
        """Bytes of unread events."""

    def reserve(self, streams: int) -> int:
        """Return the window, in bytes, for each of a new channel's ``streams``; the caller must
        `release` them. Raises StateError if too many are open."""
        for most, window in WINDOWS:
            if self.reserved + streams * window <= most:
                self.reserved += streams * window
                return window
        raise StateError(
            "too many commands, terminals and files of this sandbox are open at once",
            hint="end some, or read them to their end, before more are opened",
        )

    def release(self, count: int) -> None:
        """Give back ``count`` reserved bytes."""
        self.reserved -= count

    def take_event(self, size: int) -> None:
        """Count an event of ``size`` bytes. Raises AgentProtocolError if there is no room."""
        if self.events + size > EVENTS_MAX:
            raise AgentProtocolError("the agent floods the session with events")
        self.events += size

    def drop_events(self, size: int) -> None:
        """Count ``size`` bytes of events as read or dropped."""
        self.events -= size

"""Tells deliberate keys from text that was meant for something else: a shell that has lost the
focus, another window, or a paste without brackets.

Letters of a text follow each other faster than deliberate keys. The first letter of a text looks
like a key, so actions that matter wait a moment until it is certain. A text that begins with a key
that opens a line, such as `:`, is meant for that line.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from textual.events import Key


GAP_S = 0.2
"""Seconds; keys that follow each other faster belong together, as at 60 words a minute."""

LETTERS = 3
"""How many different letters that belong together are text."""

ANSWER_AFTER_S = 0.3
"""Seconds before which a question takes no answer, since nobody can have read it."""

MOVES = frozenset({"j", "k", "space"})
"""Keys that move and mark in lists; users press them as fast as they type text."""


@dataclass(slots=True, eq=False)
class Burst:
    """Keys that belong together."""

    letters: int = 0
    told: bool = False
    """The user was told that the keys were ignored as text."""
    opened: set[str] = field(default_factory=set)
    """The keys in it with which a line began: its first key, or one behind the end of such a
    line."""
    in_line: bool = False
    """Such a line has not ended."""
    line_ended: bool = False
    """Its last key ended such a line."""

    @property
    def is_text(self) -> bool:
        return self.letters >= LETTERS


class Clock(Protocol):
    """Tells the time, and when a key was pressed, in seconds on one scale."""

    def now(self) -> float: ...

    def of(self, key: Key) -> float: ...


class UsualClock:
    def now(self) -> float:
        return time.monotonic()

    def of(self, key: Key) -> float:
        # When the key was read; the app may handle it much later.
        return key.time


class Hands:
    """Follows the timing of keys."""

    def __init__(
        self, later: Callable[[float, Callable[[], None]], object], clock: Clock | None = None
    ) -> None:
        """``later`` calls a function after some seconds."""
        self._later = later
        self._clock = clock or UsualClock()
        self._last = float("-inf")
        self._last_key = ""
        self._chain = 0
        """Counts the pauses between keys."""
        self.line_keys: frozenset[str] = frozenset()
        """Keys that open a line for text."""
        self.burst = Burst()
        """The burst that the last key belongs to."""

    def note(self, key: Key) -> None:
        """Notes any key, since it is not known yet whether a field takes it."""
        self._step(self._clock.of(key))
        if key.key == self._last_key:
            self._chain += 1  # a held or repeated key is deliberate
        if not (key.is_printable or key.key == "enter"):
            self.burst = Burst()  # not part of a text
        burst = self.burst
        if key.key in self.line_keys and (burst.letters == 0 or burst.line_ended):
            burst.opened.add(key.key)
            burst.in_line = True
        burst.line_ended = burst.in_line and key.key == "enter"
        burst.in_line = burst.in_line and not burst.line_ended
        if key.is_printable and key.key != self._last_key and key.key not in MOVES:
            burst.letters += 1
        self._last_key = key.key

    def meant(self) -> None:
        """Notes a deliberate act other than a key: the mouse, or a whole command."""
        self.burst = Burst()

    def note_typed(self, count: int) -> None:
        """Notes bytes typed into a shell, which may end in the middle of a text."""
        self._step(self._clock.now())
        self.burst.letters += count
        self._last_key = ""

    def _step(self, when: float) -> None:
        if when - self._last > GAP_S:
            self._chain += 1
            self.burst = Burst()
            self._last_key = ""
        self._last = when

    def carefully(self, act: Callable[[], None], refuse: Callable[[Burst], None]) -> None:
        """Calls ``act`` if the last key was not part of a text, else ``refuse``. For a letter, this
        is decided after `GAP_S`; for any other key at once."""
        burst = self.burst
        if burst.letters == 0:
            act()
            return

        def decide() -> None:
            if burst.letters == 1:
                act()
            else:
                refuse(burst)

        self._later(GAP_S, decide)

    def question(self) -> Callable[[Key], bool]:
        """Returns a test for a question that is asked now: whether a key is no answer to it,
        because it came too early or belongs to the text whose letter asked it."""
        asked, chain = self._clock.now(), self._chain

        def is_none(key: Key) -> bool:
            return self._chain == chain or self._clock.of(key) - asked < ANSWER_AFTER_S

        return is_none

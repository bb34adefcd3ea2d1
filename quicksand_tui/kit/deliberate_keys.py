"""Tells deliberate keys from text that was meant for something else: a shell that has lost the
focus, another window, or a paste without brackets.

Letters of a text follow each other faster than deliberate keys. The first letter of a text looks
like a key, so actions that matter wait a moment until it is certain. A text that begins with a key
that opens a line, such as `:`, is meant for that line.

A busy app handles a key long after it was read, when later keys are known already. So each key is
judged by the keys read before it or together with it (`Press`): whatever the host does meanwhile,
the same keys do the same.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from quicksand.things.frozen import frozen

if TYPE_CHECKING:
    from textual.events import Key


GAP_S = 0.2
"""Seconds; keys that follow each other faster belong together, as at 60 words a minute."""

READ_S = 0.01
"""Seconds within which keys count as read together, faster than any fingers: those of a paste
without brackets, and of a line that a script sends."""

LETTERS = 3
"""The number of different letters that, belonging together, are text."""

ANSWER_AFTER_S = 0.3
"""Seconds before which a question takes no answer, since nobody can have read it."""

ENTERS = frozenset({"enter", "ctrl+j"})
"""Textual's names of the ends of a line: the Enter key, and the line feed of texts."""

MOVES = frozenset({"j", "k", "space"})
"""Keys that move and mark in lists; users press them as fast as they type text."""


@dataclass(slots=True, eq=False)
class Burst:
    """Keys that belong together."""

    when: list[float] = field(default_factory=list)
    """The time when each of its letters was read, in seconds on the clock's scale."""
    told: bool = False
    """The user was told that the keys were ignored as text."""
    opened: set[str] = field(default_factory=set)
    """Its keys with which a line began: the first key, or one behind the end of such a line."""
    in_line: bool = False
    """Such a line has not ended."""
    line_ended: bool = False
    """Its last key ended such a line."""
    enter: bool = False
    """It has an Enter behind a letter. An Enter before all letters may open the line for them."""
    has_more_lines: bool = False
    """Letters follow an Enter in it."""

    @property
    def letters(self) -> int:
        return len(self.when)

    @property
    def is_text(self) -> bool:
        return self.letters >= LETTERS


@frozen(kw_only=False)
class Press:
    """One key, with the keys that were read before it."""

    burst: Burst
    when: float
    letters: int
    """The number of letters of its burst that were read up to it, itself included."""
    is_letter: bool

    @property
    def is_text(self) -> bool:
        """Whether it belongs to a text, by the keys read before it or together with it."""
        return bisect_right(self.burst.when, self.when + READ_S) >= LETTERS

    @property
    def is_first(self) -> bool:
        """Whether its burst begins with it."""
        return self.letters == (1 if self.is_letter else 0)


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
        self._noted: WeakKeyDictionary[Key, Press] = WeakKeyDictionary()
        self.press = Press(self.burst, self._last, 0, is_letter=False)
        """The key that is being handled, or else the last one that was read."""

    def note(self, key: Key) -> None:
        """Notes any key when it is read, since it is not known yet whether a field takes it."""
        when = self._clock.of(key)
        self._step(when)
        if key.key == self._last_key:
            self._chain += 1  # a held or repeated key is deliberate
        if not (key.is_printable or key.key in ENTERS):
            self.burst = Burst()  # not part of a text
        burst = self.burst
        if key.key in self.line_keys and (burst.letters == 0 or burst.line_ended):
            burst.opened.add(key.key)
            burst.in_line = True
        burst.line_ended = burst.in_line and key.key in ENTERS
        burst.in_line = burst.in_line and not burst.line_ended
        is_letter = key.is_printable and key.key != self._last_key and key.key not in MOVES
        if is_letter:
            burst.when.append(when)
            burst.has_more_lines = burst.has_more_lines or burst.enter
        burst.enter = burst.enter or (key.key in ENTERS and burst.letters > 0)
        self._last_key = key.key
        self.press = self._noted[key] = Press(burst, when, burst.letters, is_letter)

    def handle(self, key: Key) -> None:
        """Notes that a key is handled now, which may be long after it was read."""
        self.press = self._noted.get(key, self.press)

    def meant(self) -> None:
        """Notes a deliberate act other than a key: the mouse, or a whole command."""
        self.burst = Burst()
        self.press = Press(self.burst, self._last, 0, is_letter=False)

    def note_typed(self, count: int) -> None:
        """Notes bytes typed into a shell, which may end in the middle of a text."""
        when = self._clock.now()
        self._step(when)
        self.burst.when += [when] * min(count, LETTERS)
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
        burst = self.press.burst
        if self.press.letters == 0:
            act()
            return

        def decide() -> None:
            if burst.letters == 1:
                act()
            else:
                refuse(burst)

        self._later(GAP_S, decide)

    def question(self) -> Callable[[Key], bool]:
        """Returns a test for a question that is asked now: whether a key is no answer, because it
        came too early or belongs to the text whose letter asked the question."""
        asked, chain = self._clock.now(), self._chain

        def is_none(key: Key) -> bool:
            return self._chain == chain or self._clock.of(key) - asked < ANSWER_AFTER_S

        return is_none

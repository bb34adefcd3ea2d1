"""The speed of the line to the terminal, and whether the line is still busy.

Textual queues its drawings, thirty frames of them. A slow line then shows what was true seconds
ago, and the answer to a key comes after all of that. So a frame is only drawn when little is on its
way: changes meanwhile are drawn once, in their last state.

Bytes that the system has taken have not yet reached a terminal beyond a network: buffers of
megabytes lie between, and a pseudo-terminal has one, too. So over SSH, and on a line that had to be
waited for, the terminal is asked a question behind a frame, and its answer tells that all before it
has arrived.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

QUEUE_S: Final = 0.05
"""The most seconds of the line's time that may be on their way when the next frame is drawn; with a
frame that itself takes 0.1 s, no key waits for more than 0.2 s."""

ASKED_MAX: Final = 4
"""Questions to the far end that may be open."""
LOST_S: Final = 3.0
"""Seconds after which an answer counts as lost."""
FASTEST: Final = 1e9
"""Bytes per second; no line is taken for faster."""
AT_LEAST_FAR: Final = 2048
"""Bytes that may be on their way to the far end of any line."""

AT_LEAST: Final = 512
"""Bytes that may be on their way on any line."""

AT_FIRST: Final = 16 * 1024
"""Bytes that may be on their way while nothing is known of the line: about a whole screen."""

BLOCKED_S: Final = 0.002
"""A write that takes longer had to wait for the line."""

FORGOTTEN_S: Final = 2.0
"""Seconds without waiting after which the line counts as fast again."""

WEIGHT: Final = 0.3
"""The weight of the newest measurement."""


class Line:
    """Counts the bytes on their way, and measures. Used by the thread that draws and by the thread
    that writes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._waiting: Callable[[], object] | None = None
        self._on_way = 0
        self._bytes_per_s: float | None = None
        self._blocked = clock()
        """The time when a write last had to wait."""
        self._unmeasured = 0
        """Bytes since then that did not have to wait."""
        self._put = 0
        """All bytes so far."""
        self._arrived = 0
        """The number of them that are known to have reached the far end."""
        self._asked: deque[tuple[int, float]] = deque()
        """The open questions to the far end: the bytes before each, and its time."""
        self._round_trip_s = math.inf
        """The shortest time until an answer."""
        self._far_bytes_per_s: float | None = None

    @property
    def on_way(self) -> int:
        """Bytes that are queued and not yet taken by the line."""
        return self._on_way

    @property
    def bytes_per_s(self) -> float | None:
        """The line's speed; None if writes never had to wait for it, or not for long."""
        return self._bytes_per_s

    @property
    def speed(self) -> float | None:
        """The speed in bytes per second, to the far end if known; None if no write ever had to
        wait."""
        with self._lock:
            known = [one for one in (self._bytes_per_s, self._far_bytes_per_s) if one is not None]
            return min(known, default=None)

    @property
    def is_busy(self) -> bool:
        """Whether the next frame should wait."""
        with self._lock:
            return self._on_way > self._room() or self._far_is_busy()

    def _far_is_busy(self) -> bool:
        asked = self._asked
        if not asked or self._clock() - asked[0][1] > LOST_S:
            return False
        speed, room = self._far_bytes_per_s, float(AT_FIRST)
        if speed is not None:
            room = max(AT_LEAST_FAR, speed * (self._round_trip_s + QUEUE_S))
        return self._put - self._arrived > room

    def _room(self) -> float:
        speed = self._bytes_per_s
        return AT_FIRST if speed is None else max(AT_LEAST, speed * QUEUE_S)

    def put(self, count: int) -> None:
        """Notes that bytes are queued."""
        with self._lock:
            self._on_way += count
            self._put += count

    @property
    def may_ask(self) -> bool:
        """Whether another question to the far end makes sense."""
        with self._lock:
            if self._asked and self._clock() - self._asked[0][1] > LOST_S:
                self.forget_questions()
            return len(self._asked) < ASKED_MAX

    def ask(self) -> None:
        """Notes that a question is queued; `answer` tells when its answer is there."""
        with self._lock:
            self._asked.append((self._put, self._clock()))

    def restart(self) -> None:
        """Begins anew with nothing on its way: bytes queued when another program got the terminal
        are gone, and the time that it had the terminal tells nothing of the line."""
        with self._lock:
            self._on_way = self._unmeasured = 0
            self._bytes_per_s = None
            self._blocked = self._clock()
            self._waiting = None
            self.forget_questions()

    def forget_questions(self) -> None:
        """Forgets the open questions."""
        with self._lock:
            self._asked.clear()
            self._arrived = self._put

    def answer(self) -> None:
        """Notes the answer to the oldest open question."""
        with self._lock:
            if not self._asked:
                return
            before, when = self._asked.popleft()
            took = max(1e-4, self._clock() - when)
            ahead, self._arrived = before - self._arrived, before
            self._round_trip_s = min(self._round_trip_s, took)
            late, speed = took - self._round_trip_s, self._far_bytes_per_s
            if late > max(0.02, self._round_trip_s / 2):
                # The question had to wait until the bytes ahead of it had gone.
                sample = ahead / late
                self._far_bytes_per_s = (
                    sample if speed is None else speed + WEIGHT * (sample - speed)
                )
            elif speed is not None:
                self._far_bytes_per_s = min(speed * 1.5, FASTEST)
            call = self._freed()
        if call is not None:
            call()

    def _freed(self) -> Callable[[], object] | None:
        """Returns the call that waits, if it need not wait any more."""
        if self._waiting is None or self.is_busy:
            return None
        call, self._waiting = self._waiting, None
        return call

    def wrote(self, count: int, seconds: float) -> None:
        """Notes that the line has taken so many bytes in so many seconds."""
        with self._lock:
            self._on_way = max(0, self._on_way - count)
            self._measure(count, seconds)
            call = self._freed()
        if call is not None:
            call()

    def _measure(self, count: int, seconds: float) -> None:
        now = self._clock()
        if seconds <= BLOCKED_S:
            self._unmeasured += count
            if now - self._blocked > FORGOTTEN_S:
                self._bytes_per_s = None
            return
        # Bytes that fitted into the system's buffer came together with those that had to wait.
        sample = (count + self._unmeasured) / max(seconds, now - self._blocked)
        alone = count / seconds
        sample = min(alone, sample) if now - self._blocked < FORGOTTEN_S else alone
        old = self._bytes_per_s
        self._bytes_per_s = sample if old is None else old + WEIGHT * (sample - old)
        self._blocked, self._unmeasured = now, 0

    def when_free(self, call: Callable[[], object]) -> None:
        """Calls ``call`` once, on the thread that writes, when the next frame need not wait; at
        once if it need not now. A newer call replaces an older one."""
        with self._lock:
            if self.is_busy:
                self._waiting = call
                return
        call()

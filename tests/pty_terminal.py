"""A terminal for tests: a program on a pseudo terminal, and answers to what it asks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from quicksand_vt import Terminal as Emulator

from tests.conftest import wait_for

QUIT_AGAIN_S = 0.5
QUESTION_MAX = 4096
"""Bytes of the longest question of `answers`."""
METERED, METERED_S = 256, 0.05
"""Bytes of one read from a slow line, and how much of its time may be made up for."""
ON_ITS_TERMINAL = 'exec <>"$0" >&0 2>&0; exec "$@"'
"""A shell that leads a session gets the first terminal that it opens as its own."""

WHOLE = {
    rb"\x1b\[\?2026\$p": b"\x1b[?2026;2$y",
    rb"\x1b\[\?2048\$p": b"\x1b[?2048;0$y",
    rb"\x1b\[\?u": b"\x1b[?0u",
    rb"\x1b_Gi=31[^\x1b]*\x1b\\": b"\x1b_Gi=31;OK\x1b\\",
    rb"\x1b\[16t": b"\x1b[6;20;10t",
    rb"\x1b\[>0?q": b"\x1bP>|kitty(0.40.0)\x1b\\",
    rb"\x1b\]11;\?(?:\x07|\x1b\\)": b"\x1b]11;rgb:ffff/fefe/f0f0\x1b\\",
    rb"\x1b\[c": b"\x1b[?62;4;22c",
}
"""What a terminal that can everything answers, by question (xterm's ctlseqs, kitty's protocols)."""


class PtyTerminal:
    """A program, what it has written, and its screen. Use it with ``with``."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        columns: int = 80,
        rows: int = 24,
        answers: Mapping[bytes, bytes] = {},
        delay_s: float = 0.0,
        env: Mapping[str, str] = {},
        bytes_per_s: int = 0,
        is_far: bool = False,
    ) -> None:
        """With ``bytes_per_s`` what the program writes is shown no faster than that; with
        ``is_far`` it is read at once and waits here, as in the buffers of a network."""
        self._bytes_per_s = bytes_per_s
        self._far = bytearray() if is_far else None
        self._metered = time.monotonic()
        """Until when the line is taken by what was read."""
        self._answers = [(re.compile(question), answer) for question, answer in answers.items()]
        self._delay_s = delay_s
        self._due: deque[tuple[float, bytes]] = deque()
        self._lock = threading.Lock()
        self._answered_to = 0
        self._screen = Emulator(columns, rows, scrollback=0)
        self.output = bytearray()
        """All bytes that the program has written."""
        self.times: list[tuple[float, int]] = []
        """When how many bytes were there (seconds of `time.monotonic`)."""
        self.master, slave = os.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = self.modes
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", ON_ITS_TERMINAL, os.ttyname(slave), *argv],
            start_new_session=True,
            env={**clean_environment(), "TERM": "xterm-256color", "COLORTERM": "truecolor", **env},
        )
        self._slave = slave  # kept open: what is written last can still be read
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="pty-terminal")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        self._ended.set()
        self._thread.join()
        os.close(self._slave)
        self.hang_up()

    def hang_up(self) -> None:
        """Take the terminal away."""
        if self.master >= 0:
            self._ended.set()
            self._thread.join()
            os.close(self.master)
            self.master = -1

    @property
    def modes(self) -> list[Any]:
        """The terminal's modes, as termios has them."""
        return termios.tcgetattr(self.master)

    def restore_modes(self) -> None:
        """Have its modes as they were at first, as a shell does when a program has stopped."""
        termios.tcsetattr(self.master, termios.TCSANOW, self.before)

    @property
    def text(self) -> str:
        """What the screen shows."""
        with self._lock:
            lines = range(self._screen.screen_line, self._screen.end_line)
            return "\n".join("".join(run.text for run in self._screen.line(line)) for line in lines)

    @contextlib.contextmanager
    def emulated(self) -> Iterator[Emulator]:
        """The screen, which stands still meanwhile."""
        with self._lock:
            yield self._screen

    @property
    def answered(self) -> bool:
        """Whether all that was asked by now has its answer."""
        return self._answered_to > 0 and not self._due

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size; the program is told."""
        with self._lock:
            self._screen.resize(columns, rows)
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        os.kill(self.process.pid, number)

    def sees(self, *words: str, timeout: float = 60.0) -> None:
        """Wait until the screen shows all ``words``."""
        try:
            wait_for(
                lambda: all(word in self.text for word in words), what=f"{words}", timeout=timeout
            )
        except AssertionError:
            raise AssertionError(f"no {words} on this screen:\n{self.text}") from None

    def rests(self, seconds: float = 1.0) -> None:
        """Wait until nothing was written for a while."""

        rested, last, seen = 0.0, time.monotonic(), self.times[-1][0]

        def is_at_rest() -> bool:
            nonlocal rested, last, seen
            now, latest = time.monotonic(), self.times[-1][0]
            # While this process stands still, nothing is read either.
            rested = rested + min(now - last, 0.1) if latest == seen else 0.0
            last, seen = now, latest
            return rested > seconds

        wait_for(is_at_rest, what="a terminal at rest")

    def quits(self) -> int:
        """Press q until the program has ended; its status. One that follows another key at once is
        taken for a letter of a text."""
        pressed = float("-inf")

        def is_over() -> bool:
            nonlocal pressed
            over = self.process.poll() is not None
            if not over and time.monotonic() - pressed > QUIT_AGAIN_S:
                pressed = time.monotonic()
                self.type(b"q")
            return over

        wait_for(is_over, what="the end")
        return self.ends()

    def ends(self, timeout: float = 60.0) -> int:
        """Wait until the program has ended and all is read; return its status."""
        status = self.process.wait(timeout)
        with contextlib.suppress(OSError):  # the terminal is gone
            while self._read():
                pass
        return status

    def _serve(self) -> None:
        while not self._ended.is_set():
            wait = 0.02
            if self._due:
                wait = max(0.0, min(wait, self._due[0][0] - time.monotonic()))
            ahead = self._metered - time.monotonic() if self._bytes_per_s else 0.0
            reads = ahead <= 0 or self._far is not None
            if ahead > 0:
                wait = min(wait, ahead)
            if not reads:
                self._ended.wait(wait)
            elif select.select([self.master], [], [], wait)[0]:
                try:
                    self._read()
                except OSError:
                    return
            if self._far and time.monotonic() >= self._metered:
                with self._lock:
                    data = bytes(self._far[:METERED])
                    del self._far[:METERED]
                    self._meter(data)
                    self._take(data)
            while self._due and self._due[0][0] <= time.monotonic():
                with contextlib.suppress(OSError):
                    os.write(self.master, self._due.popleft()[1])

    def _read(self) -> bool:
        """Read some of the output; False if there is none. Raises OSError."""
        with self._lock:
            if not select.select([self.master], [], [], 0)[0]:
                return False
            far = self._far
            data = os.read(self.master, METERED if self._bytes_per_s and far is None else 65536)
            if far is not None:
                far += data
                return True
            self._meter(data)
            self._take(data)
            return True

    def _meter(self, data: bytes) -> None:
        if self._bytes_per_s:
            began = max(self._metered, time.monotonic() - METERED_S)
            self._metered = began + len(data) / self._bytes_per_s

    def _take(self, data: bytes) -> None:
        now = time.monotonic()
        self.output += data
        self.times.append((now, len(self.output)))
        self._screen.feed(data)
        # Of a long output only what may hold the end of a question.
        begin = max(self._answered_to, len(self.output) - len(data) - QUESTION_MAX)
        unseen = bytes(self.output[begin:])
        found = [
            (match.start(), match.end(), answer)
            for question, answer in self._answers
            for match in question.finditer(unseen)
        ]
        for _, end, answer in sorted(found):
            self._due.append((now + self._delay_s, answer))
            self._answered_to = max(self._answered_to, len(self.output) - len(unseen) + end)


def clean_environment() -> dict[str, str]:
    """The test's own, without what tells of the terminal that the tests run in."""
    gone = ("SSH_", "TMUX", "STY", "TERM", "COLORFGBG", "NO_COLOR", "TEXTUAL", "ZELLIJ")
    return {k: v for k, v in os.environ.items() if not k.startswith(gone)}

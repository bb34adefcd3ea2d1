"""Output of a guest: repeated, waiting to be parsed, and its last lines."""

from __future__ import annotations

from collections import deque

from quicksand_vt import Terminal

from quicksand_tui.model.text import sanitise
from quicksand_tui.panes.content import Said

SLICE = 4 * 1024
"""Bytes parsed at once, which takes 1 ms; for the worst hostile input about 100 ms (measured)."""


STRING_END = b"\x1b\\"


def after_string(data: bytes) -> bytes:
    """Returns a guest's repeated output without the half of a picture at its beginning.

    A repetition may begin anywhere, also within a string such as a picture. If the first escape
    sequence in it ends a string, all up to there is left out."""
    at = data.find(b"\x1b")
    return data[at + len(STRING_END) :] if at >= 0 and data.startswith(STRING_END, at) else data


class ReplayStart:
    """Applies `after_string` to a guest's repeated output, piece by piece."""

    def __init__(self) -> None:
        self._held = b""
        self._is_over = False

    def cut(self, data: bytes, said: Said) -> bytes:
        """Returns the part of the next piece that is to be parsed."""
        if self._is_over:
            return data
        data, self._held = self._held + data, b""
        if said is not Said.BEFORE:
            self._is_over = True
        elif b"\x1b" in data[:-1]:
            self._is_over = True
            return after_string(data)
        else:
            self._held, data = data, b""
        return data


class Backlog:
    """Keeps output in its order, until the frame clock has time for it."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[bytes, Said]] = deque()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, data: bytes, said: Said) -> None:
        self._pieces.append((data, said))

    def take(self) -> tuple[bytes, Said]:
        """Removes the next slice; returns it, and how it was said."""
        data, said = self._pieces.popleft()
        if len(data) > SLICE:
            self._pieces.appendleft((data[SLICE:], said))
        return data[:SLICE], said

    def drop(self) -> int:
        """Drops all output; returns the number of its bytes."""
        dropped = sum(len(data) for data, _ in self._pieces)
        self._pieces.clear()
        return dropped


def last_lines(terminal: Terminal, count: int) -> tuple[str, ...]:
    """Returns the last lines of a terminal's screen, without the blank ones at its end."""
    lines: list[str] = []
    for number in reversed(range(terminal.screen_line, terminal.end_line)):
        text = sanitise(terminal.text(number), limit=terminal.columns)
        if text or lines:
            lines.append(text)
        if len(lines) == count:
            break
    return tuple(reversed(lines))


def lines_of_output(output: bytes, columns: int, rows: int, count: int) -> tuple[str, ...]:
    """Returns the last lines that a terminal showed after this output, which may begin within a
    line or a sequence."""
    terminal = Terminal(columns, rows, scrollback=0)
    terminal.feed(output)
    return last_lines(terminal, count)

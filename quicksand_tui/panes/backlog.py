"""Output of a guest that waits to be parsed."""

from __future__ import annotations

from collections import deque

from quicksand_tui.panes.content import Said

SLICE = 4 * 1024
"""Bytes parsed at once, which takes 1 ms; for the worst hostile input about 100 ms (measured)."""


STRING_END = b"\x1b\\"


def after_string(data: bytes) -> bytes:
    """Returns output, which may begin anywhere, without the rest of a string (a picture) that it
    begins in: there is one if the first sequence is the end of one."""
    at = data.find(b"\x1b")
    return data[at + len(STRING_END) :] if at >= 0 and data.startswith(STRING_END, at) else data


class ReplayStart:
    """Does `after_string` for what a guest repeats, piece by piece."""

    def __init__(self) -> None:
        self._held = b""
        self._is_over = False

    def cut(self, data: bytes, said: Said) -> bytes:
        """Returns what is to be parsed of the next piece."""
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
        """Removes and returns the next slice, and how it was said."""
        data, said = self._pieces.popleft()
        if len(data) > SLICE:
            self._pieces.appendleft((data[SLICE:], said))
        return data[:SLICE], said

    def drop(self) -> int:
        """Drops everything; returns how many bytes that was."""
        dropped = sum(len(data) for data, _ in self._pieces)
        self._pieces.clear()
        return dropped

"""Connections to one guest for its processes. The unread bytes of a connection are bounded, so it
carries some 150 processes, and would have no room for readers of files beside them."""

from __future__ import annotations

from collections.abc import Callable

from quicksand import Sandbox

EACH_MAX = 100
"""Processes over one connection."""


class Line:
    """A connection, and the number of its processes."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.carried = 0


class Lines:
    """The connections. The first one carries all other requests, too; further ones are made when
    they are needed, and closed when they carry nothing."""

    def __init__(self, first: Sandbox, connect: Callable[[], Sandbox]) -> None:
        self._connect = connect
        self._lines = [Line(first)]

    def take(self) -> Line:
        """Returns a line with room; `give_back` when the process has ended. Raises
        QuicksandError."""
        for line in self._lines:
            if line.carried < EACH_MAX:
                break
        else:
            line = Line(self._connect())
            self._lines.append(line)
        line.carried += 1
        return line

    def give_back(self, line: Line) -> None:
        line.carried -= 1
        if not line.carried and line in self._lines[1:]:
            self._lines.remove(line)
            line.sandbox.close()

    def close(self) -> None:
        """Closes all but the first."""
        for line in self._lines[1:]:
            line.sandbox.close()
        del self._lines[1:]

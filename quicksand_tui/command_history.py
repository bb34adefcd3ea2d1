"""The lines that were typed behind the colon, kept from run to run."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from quicksand_tui.command_text import LENGTH_MAX

if TYPE_CHECKING:
    from quicksand_tui.state_files import StateFile

LINES_MAX = 200


class CommandHistory:
    """The lines, the latest last. Reads and writes block for a small file; one that cannot be used
    is as good as none."""

    def __init__(self, file: StateFile) -> None:
        self._file = file

    def read(self) -> list[str]:
        lines = self._file.read().get("lines")
        if not isinstance(lines, list):
            return []
        return [line for line in lines if isinstance(line, str) and _is_fit(line)][-LINES_MAX:]

    def add(self, line: str) -> None:
        """Put a line at the end; it is there only once. Of two apps that do so in the same instant
        one may lose its line, never the file."""
        line = line.strip()
        if not _is_fit(line):
            return
        lines = [*(old for old in self.read() if old != line), line][-LINES_MAX:]
        with contextlib.suppress(OSError):
            self._file.write({"lines": lines})


def _is_fit(line: str) -> bool:
    return 0 < len(line) <= LENGTH_MAX and line.isprintable()

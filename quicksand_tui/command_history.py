"""The lines that were typed behind the colon, kept from run to run."""

from __future__ import annotations

import contextlib
from pathlib import Path

from quicksand_tui.command_text import LENGTH_MAX

LINES_MAX = 200
SCHEMA_VERSION = 1


class CommandHistory:
    """The lines, the latest last. Reads and writes block for a small file; one that cannot be used
    is as good as none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[str]:
        from quicksand.host.files import read_json

        try:
            found = read_json(self._path)
        except (OSError, ValueError):
            return []
        lines = found.get("lines")
        if found.get("schema_version") != SCHEMA_VERSION or not isinstance(lines, list):
            return []
        return [line for line in lines if isinstance(line, str) and _is_fit(line)][-LINES_MAX:]

    def add(self, line: str) -> None:
        """Put a line at the end; it is there only once. Of two apps that do so in the same instant
        one may lose its line, never the file."""
        from quicksand.errors import QuicksandError
        from quicksand.host.files import write_json
        from quicksand.host.paths import make_private_dir

        line = line.strip()
        if not _is_fit(line):
            return
        lines = [*(old for old in self.read() if old != line), line][-LINES_MAX:]
        with contextlib.suppress(OSError, QuicksandError):
            make_private_dir(self._path.parent)
            record = {"schema_version": SCHEMA_VERSION, "lines": lines}
            write_json(self._path, record, durable=False)


def _is_fit(line: str) -> bool:
    return 0 < len(line) <= LENGTH_MAX and line.isprintable()

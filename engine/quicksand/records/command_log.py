"""The log of the commands that ended in a sandbox, whoever ran them: for watchers in another
process. It lies in the runtime directory, so it ends with the sandbox's run."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from quicksand.base.effort import append
from quicksand.base.regular import open_file

COMMAND_MAX = 500
"""Characters of a command that are kept."""

READ_MAX = 256 * 1024
"""The most bytes of a log that are read at once: more than its two files have."""


class CommandEnd(NamedTuple):
    """The end of a command."""

    time: float
    """Unix time of the host."""
    command: str
    """The command as a shell would take it; its first `COMMAND_MAX` characters."""
    exit_code: int
    seconds: float
    """Seconds by the guest's clock."""
    timed_out: bool


def note_command(
    log: Path, command: str | Sequence[str], *, exit_code: int, seconds: float, timed_out: bool
) -> None:
    """Add the end of a command. Nothing is raised: a command has not failed because its end could
    not be noted."""
    # shlex.join would cost its import at each `exec`; readers need no exact quotes.
    text = command if isinstance(command, str) else " ".join(command)
    end = CommandEnd(time.time(), text[:COMMAND_MAX], exit_code, seconds, timed_out)
    append(log, json.dumps(end, ensure_ascii=True).encode() + b"\n")


class CommandLogReader:
    """Reads a log further, from the end of the last reading."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._file = 0
        """The inode of the last file read."""
        self._position = 0

    def read_new(self) -> list[CommandEnd]:
        """Return the commands that have ended since the last call; the first time, all that are
        kept. Unreadable ones are left out. Blocks for I/O."""
        older = self._log.with_name(f"{self._log.name}.1")
        found: list[CommandEnd] = []
        for path in (older, self._log):
            with contextlib.suppress(OSError), open_file(path) as file:
                about = os.fstat(file.fileno())
                is_known = about.st_ino == self._file and about.st_size >= self._position
                if path == older and self._file and not is_known:
                    continue  # it was read completely when it was the newer one
                start = self._position if is_known else 0
                file.seek(start)
                data = file.read(READ_MAX)
                whole = data[: data.rfind(b"\n") + 1]  # the last line may be half written
                found += filter(None, map(_parsed, whole.splitlines()))
                self._file, self._position = about.st_ino, start + len(whole)
        return found


def _parsed(line: bytes) -> CommandEnd | None:
    try:
        when, command, exit_code, seconds, timed_out = json.loads(line)
        return CommandEnd(
            float(when), str(command), int(exit_code), float(seconds), timed_out is True
        )
    except (ValueError, TypeError):
        return None

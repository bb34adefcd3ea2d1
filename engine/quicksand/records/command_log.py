"""The log of the commands that ended in a sandbox, whoever ran them: for who watches from another
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
"""Bytes that are read of a log at once: more than its two files have."""


class CommandEnd(NamedTuple):
    """How a command ended."""

    time: float
    """Unix time of the host."""
    command: str
    """As a shell would take it; its first `COMMAND_MAX` characters."""
    exit_code: int
    seconds: float
    """By the guest's clock."""
    timed_out: bool


def note_command(
    log: Path, command: str | Sequence[str], *, exit_code: int, seconds: float, timed_out: bool
) -> None:
    """Add the end of a command. Nothing is raised: a command has not failed because its end could
    not be noted."""
    # shlex.join would cost its import at each `exec`; who reads needs no exact quotes.
    text = command if isinstance(command, str) else " ".join(command)
    end = CommandEnd(time.time(), text[:COMMAND_MAX], exit_code, seconds, timed_out)
    append(log, json.dumps(end, ensure_ascii=True).encode() + b"\n")


class CommandLogReader:
    """Reads a log on, from where it was read before."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._file = 0
        """The inode of the file that was read last."""
        self._position = 0

    def read_new(self) -> list[CommandEnd]:
        """The commands that have ended since the last call; the first time, all that are kept.
        What cannot be read is left out. Blocks for I/O."""
        older = self._log.with_name(f"{self._log.name}.1")
        found: list[CommandEnd] = []
        for path in (older, self._log):
            with contextlib.suppress(OSError), open_file(path) as file:
                about = os.fstat(file.fileno())
                is_known = about.st_ino == self._file and about.st_size >= self._position
                if path == older and self._file and not is_known:
                    continue  # it was read whole when it was the newer one
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

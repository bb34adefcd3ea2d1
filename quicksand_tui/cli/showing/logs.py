"""`quicksand-tui logs`: the output of a guest to its console, or of its QEMU to stderr."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from quicksand.base.paths import paths
from quicksand.base.regular import open_file
from quicksand.records.registry import Registry

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit
from quicksand_tui.model.text import Plain

POLL_S = 0.2
CHUNK = 64 * 1024


@command_of("logs")
def logs_command(name: str, follow: bool, qemu: bool, lines: int | None, plain: bool) -> int:
    """Show a sandbox's console.

    The last megabyte is kept, even after the sandbox has ended. A terminal gets only text, line
    breaks and tabs. Pipes and files get the bytes as the guest wrote them, with escape sequences
    that a terminal would obey later; --plain leaves those out there as well.
    """
    registry = Registry(paths())
    sandbox = registry.find(name).id
    place = registry.place(sandbox)
    path = place.qemu_log if qemu else place.console_log
    write = _plain_writer() if plain or sys.stdout.isatty() else _raw_writer()

    with contextlib.closing(Log(path)) as log:
        for data in last_lines(log.read_all(), lines):
            write(data)
        while follow:
            # Asking before reading makes sure that the last output before the end is read.
            ended = not registry.is_live(sandbox)
            for data in log.read_new():
                write(data)
            if ended:
                break
            time.sleep(POLL_S)
    return Exit.OK


class Log:
    """A log in two files, the older with ``.1`` behind its name (see the engine's keeper.py)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def read_all(self) -> Iterator[bytes]:
        """Yields the bytes of both files, the older file first."""
        older = self._path.with_name(self._path.name + ".1")
        with contextlib.suppress(FileNotFoundError), open_file(older) as file:
            while data := file.read(CHUNK):
                yield data
        yield from self.read_new()

    def read_new(self) -> Iterator[bytes]:
        """Yields the bytes that were written since the last call."""
        if self._file is None:
            try:
                self._file = open_file(self._path)
            except FileNotFoundError:
                return
        while data := self._file.read(CHUNK):
            yield data
        if self._is_replaced(self._file):
            # The log was rotated: read the rest of the old file, then the new one.
            while data := self._file.read(CHUNK):
                yield data
            self.close()
            yield from self.read_new()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_replaced(self, file: BinaryIO) -> bool:
        try:
            return not os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False  # the log is being rotated, or was removed


def last_lines(pieces: Iterator[bytes], count: int | None) -> Iterator[bytes]:
    """Yields the bytes of the last ``count`` lines; all for None."""
    if count is None:
        yield from pieces
    elif text := b"".join(pieces):
        yield b"".join(text.splitlines(keepends=True)[-count:] if count else [])


def _raw_writer() -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    return write


def _plain_writer() -> Callable[[bytes], None]:
    plain = Plain()

    def write(data: bytes) -> None:
        sys.stdout.write(plain.feed(data))
        sys.stdout.flush()

    return write

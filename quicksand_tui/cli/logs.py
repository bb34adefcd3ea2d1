"""`quicksand-tui logs`: what a guest wrote to its console, or QEMU to its stderr."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import click
from quicksand.host.files import is_locked
from quicksand.host.paths import paths
from quicksand.layout import sandbox_dir
from quicksand.registry import Registry

from quicksand_tui.cli.exits import Exit
from quicksand_tui.cli.options import sandbox_argument
from quicksand_tui.cli.text import Plain

POLL_S = 0.2
CHUNK = 64 * 1024


@click.command("logs")
@sandbox_argument()
@click.option("-f", "--follow", is_flag=True, help="Go on until the sandbox ends.")
@click.option("--qemu", is_flag=True, help="What QEMU said instead of the guest.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="The last N lines.")
def command(name: str, follow: bool, qemu: bool, lines: int | None) -> int:
    """Show a sandbox's console.

    The last megabyte is kept, also after the sandbox ended. On a terminal only text, line breaks
    and tabs are shown; elsewhere the bytes are as the guest wrote them.
    """
    entry = Registry(paths()).find(name)
    place = sandbox_dir(paths(), entry.id)
    path = place.qemu_log if qemu else place.console_log
    write = _plain_writer() if sys.stdout.isatty() else _raw_writer()

    with contextlib.closing(Log(path)) as log:
        for data in last_lines(log.read_all(), lines):
            write(data)
        while follow:
            # Ask before reading: what was written before the end is read after it.
            ended = not is_locked(place.lock)
            for data in log.read_new():
                write(data)
            if ended:
                break
            time.sleep(POLL_S)
    return Exit.OK


class Log:
    """A log of two pieces, the older one with ``.1`` behind its name (see keeper.py)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def read_all(self) -> Iterator[bytes]:
        """Both pieces, in pieces."""
        older = self._path.with_name(self._path.name + ".1")
        with contextlib.suppress(FileNotFoundError), older.open("rb") as file:
            while data := file.read(CHUNK):
                yield data
        yield from self.read_new()

    def read_new(self) -> Iterator[bytes]:
        """What was written since the last call."""
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return
        while data := self._file.read(CHUNK):
            yield data
        if self._is_replaced(self._file):
            # The piece is complete: what came between the last read and its end, then the new one.
            while data := self._file.read(CHUNK):
                yield data
            self.close()
            yield from self.read_new()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_replaced(self, file: BinaryIO) -> bool:
        try:
            return not os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False  # between the two steps of a rotation, or removed


def last_lines(pieces: Iterator[bytes], count: int | None) -> Iterator[bytes]:
    """The last ``count`` lines; all for None."""
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

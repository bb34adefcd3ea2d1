"""Reads a log file that grows and rotates."""

from __future__ import annotations

import codecs
import contextlib
import os
import threading
from pathlib import Path
from typing import BinaryIO

from quicksand.base.regular import open_file

FIRST_MAX = 512 * 1024
"""The most bytes before the end of the log with which the first read begins."""

READ_MAX = 1024 * 1024
"""Bytes of one read; if the log grew by more, the older part is skipped."""

SKIPPED = "\n… output was skipped here …\n"


class FileLog:
    """A `LogSource` of a file. When the file is replaced (rotated to ``NAME.1``, or recreated by
    the next start), the rest of the old one is read first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._closed = False
        self._lock = threading.Lock()
        """Guards the file: a thread may still read when the screen closes the log."""

    def close(self) -> None:
        """Closes the file; later reads return ""."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._file.close()

    def read(self) -> str:
        """Returns the text added since the last read; a missing file counts as empty. Raises
        OSError if the file cannot be read."""
        with self._lock:
            return "" if self._closed else self._read()

    def _read(self) -> str:
        if self._file is None:
            return self._first()
        text = self._drain(self._file)
        if not self._replaced(self._file):
            return text
        try:
            newer = self._open(self._path)
        except OSError:
            if text:
                return text  # the next read fails, or not
            raise
        if newer is not None:
            self._file.close()
            self._file = newer
            text += self._drain(newer)
        return text

    def _first(self) -> str:
        data = b""
        with contextlib.ExitStack() as opened:
            older = self._open(self._path.with_name(self._path.name + ".1"))
            if older is not None:
                opened.callback(older.close)
            file = self._open(self._path)
            if file is None:
                return ""
            opened.callback(file.close)
            size = os.fstat(file.fileno()).st_size
            if older is not None:
                older.seek(max(0, os.fstat(older.fileno()).st_size - max(0, FIRST_MAX - size)))
                data = older.read(FIRST_MAX)
            file.seek(max(0, size - FIRST_MAX))
            data += file.read(FIRST_MAX)
            # Only now, so that a read that fails is begun anew.
            if older is not None:
                older.close()
            opened.pop_all()
            self._file = file
        return self._decoder.decode(data)

    def _drain(self, file: BinaryIO) -> str:
        left = os.fstat(file.fileno()).st_size - file.tell()
        mark = ""
        if left > READ_MAX:
            file.seek(left - READ_MAX, os.SEEK_CUR)
            self._decoder.reset()
            mark = SKIPPED
        return mark + self._decoder.decode(file.read(READ_MAX))

    def _replaced(self, file: BinaryIO) -> bool:
        try:
            now, held = self._path.stat(), os.fstat(file.fileno())
        except OSError:
            return False  # it is looked at again
        return (now.st_dev, now.st_ino) != (held.st_dev, held.st_ino)

    @staticmethod
    def _open(path: Path) -> BinaryIO | None:
        try:
            return open_file(path)
        except FileNotFoundError:
            return None

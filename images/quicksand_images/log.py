"""The log of a build: its stages, and all that the programs say that it runs. The one of the last
build of each image is kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from quicksand.base.effort import best_effort
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import make_private_dir, paths
from quicksand.base.progress import Progress
from quicksand.base.regular import create
from quicksand.disks.images.build_logs import build_log_path

LOG_MAX = 64 * 1024 * 1024
"""Bytes that a log can have; a guest says what it likes."""


class BuildLog:
    """An open log."""

    def __init__(self, path: Path, file: BinaryIO | None, progress: Progress | None) -> None:
        self.path = path
        self._file = file
        self._progress = progress
        self._stage = ""
        self._left = LOG_MAX

    def stage(self, name: str, done: int, total: int) -> None:
        """Note a stage, and report it (a `Progress`)."""
        if name != self._stage:
            self._stage = name
            self.write(f"{time.strftime('%H:%M:%S')} == {name}\n")
        if self._progress is not None:
            self._progress(name, done, total)

    def write(self, text: str) -> None:
        """Note output of a program."""
        if self._file is None:
            return
        data = text.encode("utf-8", "replace")[: max(0, self._left)]
        self._left -= len(data)
        # The build goes on without the rest of its log if the disk is full.
        with suppress(OSError):
            self._file.write(data)
            self._file.flush()

    def line(self, text: str) -> None:
        """Note a line of output."""
        self.write(f"{text}\n")


def log_path(name: str) -> Path:
    """Return the path of the log of the last build of the image ``name``."""
    return build_log_path(paths().cache, name)


@contextmanager
def build_log(name: str, progress: Progress | None) -> Iterator[BuildLog]:
    """Open the log of a build in place of that of the one before; the caller holds the lock of the
    name. An error that leaves the block is noted, and gets the log as its hint if it has none."""
    path = log_path(name)
    with ExitStack() as stack:
        file = None
        # A build needs no log.
        with best_effort("keep the log of a build", paths().engine_log, QuicksandError, OSError):
            make_private_dir(path.parent)
            path.unlink(missing_ok=True)
            file = stack.enter_context(create(path))
        log = BuildLog(path, file, progress)
        try:
            yield log
        except QuicksandError as error:
            log.line(f"== failed: {error}")
            if file is not None and not error.hint:
                error.hint = f"the log of the build is {path}"
            raise
        except BaseException as error:
            log.line(f"== ended by {type(error).__name__}")
            raise
        log.line("== done")

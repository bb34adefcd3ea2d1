"""The log of a build: its stages, and all output of its programs. The log of the last build of each
image is kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from quicksand.base.effort import best_effort
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import make_private_dir, paths
from quicksand.base.progress import Course, Progress, Shares
from quicksand.base.regular import create
from quicksand.disks.images.build_cache import build_log_path

from quicksand_images.shares import TOOLS, TOOLS_UNTIL

LOG_MAX = 64 * 1024 * 1024
"""The most bytes of a log; a guest may write anything."""


class BuildLog:
    """An open log."""

    def __init__(self, path: Path, file: BinaryIO | None, progress: Progress | None) -> None:
        self.path = path
        self._file = file
        self._course = Course(progress)
        self._tell = progress
        self._aside = self._course.part(TOOLS, until=TOOLS_UNTIL)
        self._stage = ""
        self._left = LOG_MAX

    def follow(self, shares: Shares) -> None:
        """Report the stages from now on with one count for all of them, by their ``shares`` of the
        time; each stage's own count is a part of it."""
        self._tell = self._course.part(shares)

    def stage(self, name: str, done: int, total: int) -> None:
        """Note a stage, and report it (a `Progress`)."""
        self._note(name)
        if self._tell is not None:
            self._tell(name, done, total)

    def aside(self, name: str, done: int, total: int) -> None:
        """Note and report a stage of getting the build's tools (a `Progress`). It is counted until
        the build itself begins."""
        self._note(name)
        self._aside(name, done, total)

    def _note(self, name: str) -> None:
        if name != self._stage:
            self._stage = name
            self.write(f"{time.strftime('%H:%M:%S')} == {name}\n")

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
    """Open the log of a build in place of the previous one; the caller holds the lock of the name.
    An error that leaves the block is noted, and gets the log as its hint if it has none."""
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

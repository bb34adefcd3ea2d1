"""Steps that are tried and may fail, and the log of their failures.

Some steps are only worth a try: undoing a failed revert before its error is reported, or asking a
guest to sync first. Their failure must not replace another error, nor end work that succeeds
without them. But anybody who looks for the cause of later trouble wants to know of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from quicksand.base.error_text import printable
from quicksand.base.errors import QuicksandError
from quicksand.base.regular import open_regular

LOG_MAX = 64 * 1024
"""Bytes of a log file. One older file is kept beside it, so a log takes at most twice this."""

LINE_MAX = 1000
"""Characters of a line; longer ones are cut off."""


class best_effort:  # noqa: N801 - read as contextlib.suppress
    """A block that may fail: an error of the engine or of the host in it is noted in ``log``, and
    the program goes on after the block.

    ``what`` completes "could not", as in "resume the guest". ``kinds`` are the errors that may
    happen, QuicksandError and OSError if none are given; all others are raised, and a cancellation
    always. It works in coroutines, too: it writes only a line, to a file that is not synced.
    """

    def __init__(self, what: str, log: Path, *kinds: type[Exception]) -> None:
        self._what = what
        self._log = log
        self._kinds = kinds or (QuicksandError, OSError)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, self._kinds):
            return False
        note(self._log, f"could not {self._what}: {describe(error)}")
        return True


def describe(error: BaseException) -> str:
    """An error's class and message, without the log that it may carry."""
    said = error.args[0] if isinstance(error, QuicksandError) and error.args else error
    return f"{type(error).__name__}: {said}".removesuffix(": ")


def note(log: Path, text: str) -> None:
    """Add a line to a log, with the time and this process's id. Any ``text`` becomes one line
    without control characters. A line that cannot be written, on a full disk for instance or
    because the sandbox is being removed, is dropped: nothing is raised."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    append(log, f"{now} [{os.getpid()}] {printable(text)[:LINE_MAX]}\n".encode("utf-8", "replace"))


def append(log: Path, line: bytes) -> None:
    """Add a line to a log to which several programs write, of which at most two files of `LOG_MAX`
    are kept. A line that cannot be written is dropped: nothing is raised."""
    with contextlib.suppress(OSError):
        if not _write(log, line):
            _write(log, line)


def _write(log: Path, line: bytes) -> bool:
    """Write ``line``, unless the log is full: then it is renamed, which makes room for a new one.
    Returns whether it was written. Raises OSError."""
    descriptor = _open(log)
    try:
        if os.fstat(descriptor).st_size + len(line) > LOG_MAX:
            _retire(log, descriptor)
            return False
        os.write(descriptor, line)  # in one piece: other programs write to it, too
        return True
    finally:
        os.close(descriptor)


def _open(log: Path) -> int:
    return open_regular(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)


def _retire(log: Path, descriptor: int) -> None:
    """Rename a full log, which is open as ``descriptor``, unless another program has done that.
    Raises OSError, also if another one is doing so at this moment."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if log.exists() and os.path.samestat(os.fstat(descriptor), log.stat()):
        log.replace(log.with_name(f"{log.name}.1"))

"""A disk that is full from the n-th write on, once: for code that promises to leave no litter."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from quicksand.snapshots.stepwise import THREAD

AUDITED = {"os.rename", "os.mkdir", "os.link", "os.symlink", "os.truncate"}
CALLS = ("write", "pwrite", "fsync", "fdatasync", "ftruncate", "copy_file_range")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Fault:
    """Counts what needs space on the disk; the n-th such call fails."""

    def __init__(self) -> None:
        self._root = ""
        self._left = 0
        self._errno = 0
        self._thread = 0
        self._is_hooked = False
        self.struck = False

    @contextlib.contextmanager
    def at(self, number: int, root: Path, code: int = errno.ENOSPC) -> Iterator[None]:
        """The call of that number (from 1) fails, of those that concern files in ``root``."""
        self._left, self._errno, self.struck = number, code, False
        self._root, self._thread = str(root), threading.get_ident()
        if not self._is_hooked:
            # It cannot be removed, and costs something at each of thousands of events.
            sys.addaudithook(self.look_at)
            self._is_hooked = True
        try:
            yield
        finally:
            self._root = ""

    def count(self) -> None:
        here = threading.current_thread()
        ours = here.ident == self._thread or here.name.startswith(THREAD)
        if not self._root or not ours:
            return
        self._left -= 1
        if self._left == 0:
            self.struck = True
            raise OSError(self._errno, os.strerror(self._errno))

    def look_at(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._root or (event != "open" and event not in AUDITED):
            return
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & WRITING or "lock" in str(path):
                return
        paths = [str(word) for word in arguments if isinstance(word, str | Path)]
        # What is there already needs no space.
        there = event == "os.mkdir" and Path(paths[0]).exists()
        if not there and any(path.startswith(self._root) for path in paths):
            self.count()


FAULT = Fault()


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    """Import it where it is used."""

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(*arguments: Any, **named: Any) -> Any:
            FAULT.count()
            return call(*arguments, **named)

        return replacement

    for name in CALLS:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    return FAULT

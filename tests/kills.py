"""kill -9 at the first, second, third … file operation of something that is forked for it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

BY_DESCRIPTOR = {"os.remove", "os.rmdir", "ctypes.dlsym"}
"""Events that name no path: within `shutil.rmtree`, and before renameat2."""

OPERATIONS_MAX = 2000


class _Killer:
    """An audit hook cannot be removed, and costs something at each of thousands of events: only
    children have one."""

    def __init__(self, left: int, root: Path) -> None:
        self.left = left
        self.root = str(root)
        sys.addaudithook(self.look_at)

    def look_at(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.left or not (event in BY_DESCRIPTOR or self._concerns(arguments)):
            return
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _concerns(self, arguments: tuple[Any, ...]) -> bool:
        paths = (word for word in arguments if isinstance(word, str | os.PathLike))
        return any(str(os.fspath(path)).startswith(self.root) for path in paths)


def was_killed(number: int, root: Path, attempt: Callable[[], object]) -> bool:
    """Fork a child for ``attempt``, which is killed at its operation ``number`` (from 1) on files
    in ``root``; False if it came to its end before."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            killer = _Killer(number, root)
            attempt()
            killer.left = 0
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f"the child ended with {code}"
    return code != 0


def kill_at_each(
    root: Path, attempt: Callable[[], object], reset: Callable[[], None], look: Callable[[], None]
) -> int:
    """Kill ``attempt`` at each of its operations in turn, with ``reset`` before and ``look`` after
    each; returns how many there are."""
    for number in range(1, OPERATIONS_MAX):
        reset()
        killed = was_killed(number, root, attempt)
        look()
        if not killed:
            return number - 1
    raise AssertionError("it never came to its end")

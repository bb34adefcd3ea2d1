"""Runs helper programs: argument lists only, output kept, no process left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from quicksand.base.errors import HostError
from quicksand.base.files import read_json, write_json
from quicksand.base.paths import make_private_dir, paths
from quicksand.base.threads import to_the_end

TAIL_LINES = 25
"""Lines of a failed program's output that its error shows."""

OUTPUT_LINES_MAX = 200_000
"""The most lines of output that are kept unless fewer are requested; older ones are dropped."""

TERM_GRACE_S = 5.0
"""Seconds that a program may take to clean up after SIGTERM."""

_LINE_MAX = 1024 * 1024
_NOT_FOUND = 127


class ToolError(HostError):
    """A helper program failed. ``output`` is the end of its output; ``exit_code`` is None after a
    timeout and negative after a signal."""

    def __init__(
        self, message: str, *, hint: str = "", output: str = "", exit_code: int | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.output = output
        self.exit_code = exit_code


async def run_tool(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    timeout_s: float | None = None,
    lines_max: int = OUTPUT_LINES_MAX,
) -> str:
    """Run a program to its end; return its stdout and stderr as one text, the last ``lines_max``
    lines of it.

    ``env`` is added to this process's environment, with LC_ALL=C.UTF-8. Its umask is 022, since its
    files may go into an image, which must be the same for every user. After a cancellation or
    ``timeout_s`` seconds the program's whole process group is ended first. Raises ToolError.
    """
    words = [os.fspath(word) for word in argv]
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})},
            cwd=cwd,
            start_new_session=True,
            umask=0o022,
            limit=_LINE_MAX,
        )
    except OSError as error:
        raise ToolError(
            f"{words[0]} cannot be started: {error.strerror}", exit_code=_NOT_FOUND
        ) from error
    lines: deque[str] = deque(maxlen=lines_max)
    try:
        async with asyncio.timeout(timeout_s):
            await _collect(process, lines, on_line)
            code = await process.wait()
    except TimeoutError:
        raise ToolError(
            f"`{shlex.join(words)}` did not end within {timeout_s:g} s", output=_tail(lines)
        ) from None
    finally:
        if process.returncode is None:
            await to_the_end(_end(process))
    if code:
        raise _failure(words, code, _tail(lines))
    return "\n".join(lines)


async def _collect(
    process: asyncio.subprocess.Process, lines: deque[str], on_line: Callable[[str], None] | None
) -> None:
    assert process.stdout is not None
    while True:
        try:
            raw = await process.stdout.readline()
        except ValueError:  # a line longer than the limit is read in pieces
            raw = await process.stdout.read(_LINE_MAX)
        if not raw:
            return
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        lines.append(line)
        if on_line is not None:
            on_line(line)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process group. Raises nothing."""
    for number, grace_s in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, TERM_GRACE_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            # communicate() drains the pipe: a program that is cleaning up must not block on it.
            await asyncio.wait_for(process.communicate(), grace_s)
        except TimeoutError:
            continue
        return


def _failure(words: list[str], code: int, output: str) -> ToolError:
    name = Path(words[0]).name
    if code < 0:
        what = f"{name} was ended by {signal.Signals(-code).name}"
    else:
        what = f"{name} failed with exit code {code}"
    said = f":\n{output}" if output else ""
    return ToolError(
        f"{what} (`{_shorten(shlex.join(words))}`){said}", output=output, exit_code=code
    )


def _shorten(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else text[:limit] + " …"


def _tail(lines: deque[str]) -> str:
    return "\n".join(list(lines)[-TAIL_LINES:]).strip()


KEPT_MAX = 50
"""The latest facts that a file keeps: no host has more QEMUs."""


class Findings:
    """A JSON file in the cache. Losing any of it only costs time."""

    def __init__(self, name: str) -> None:
        self._path = paths().cache / name

    def get(self, key: str) -> Any:
        """Return the value for ``key``, or None if it is unknown."""
        return self._read().get(key)

    def put(self, key: str, value: Any) -> None:
        """Remember ``value``, which must fit into JSON. Raises DiskSpaceError, PathError."""
        known = self._read()  # read again: other processes add facts too
        known.pop(key, None)
        known = dict([*known.items()][-KEPT_MAX + 1 :])
        make_private_dir(self._path.parent)
        write_json(self._path, {**known, key: value}, durable=False)

    def _read(self) -> dict[str, Any]:
        try:
            return read_json(self._path)
        except (OSError, ValueError):
            return {}


def program_key(program: Path) -> str:
    """Return a key for a program that changes with its file; links are resolved. Raises OSError."""
    real = program.resolve()
    found = real.stat()
    return f"{real}:{found.st_size}:{found.st_mtime_ns}"

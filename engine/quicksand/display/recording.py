"""Recording the guest's screen into an animated file, by a process of its own
(`record_worker`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from quicksand_vnc import check_scale, is_number
from quicksand_vnc.animation import AnimationFormat

from quicksand.base import errors
from quicksand.base.error_text import printable
from quicksand.base.errors import ConfigError, DisplayError, PathError, QuicksandError
from quicksand.base.files import map_os_errors
from quicksand.base.remedies import Words
from quicksand.base.threads import to_the_end
from quicksand.display.asked import check_target
from quicksand.display.place import Place, place_text, vnc_errors
from quicksand.display.record_worker import Task, task_json

WORKER = "quicksand.display.record_worker"
FPS_MAX = 30.0
SECONDS = 600.0
"""The greatest length of a recording by default."""
SECONDS_MAX = 24 * 3600.0

POLL_S = 0.1
RETRY_S = 2.0
"""Seconds until another attempt to reach a lost display whose machine still runs."""

END_S = 60.0
"""Seconds to wait for the end of a recording; after that there is no file."""

STDERR_MAX = 4096
HINTS = {
    "seconds": "that is how long it lasts at most; `stop`, or Ctrl-C of `record`, ends it before",
    "fps": "that is how many pictures it has at most in a second; 10 if nothing is said",
}
"""The meanings of the numbers."""

REPLACE = "choose another name, or say that it may be replaced (`--force`, replace=True)"

FindPlace = Callable[[], Place | None]
"""Finds the screen of the QEMU that runs now; None if the sandbox has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recording that is written."""

    path: Path
    """The file. It has another name than requested if another file got that meanwhile."""
    pictures: int
    """The number of pictures that differ from the one before."""
    seconds: float
    size_bytes: int
    width: int
    height: int
    why: str
    """The reason of its end: "stop" if it was told to, "seconds" at its limit, "sandbox" with the
    sandbox, "size" when the file had 2 GiB."""


class Recording:
    """A recording that runs, made by `Sandbox.record`."""

    def __init__(self, process: asyncio.subprocess.Process, find: FindPlace) -> None:
        self._process = process
        self._find = find
        self._place: Place | None = None
        """The place of the screen that is recorded."""
        self._first = asyncio.Event()
        """Set when there is a picture, or none will come."""
        self._finished = asyncio.Event()
        self._said: dict[str, Any] = {}
        """The worker's last word."""
        self._sandbox_ended = False
        self.size = (0, 0)
        """The width and height of the recording in pixels."""
        self.pictures = 0
        """The number of pictures so far."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        path: Path,
        find: FindPlace,
        *,
        seconds: float,
        fps: float,
        scale: float,
        replace: bool,
    ) -> AsyncIterator[Self]:
        """Record from now until the end of the context at most; see `Sandbox.record`."""
        task = _plan(path, seconds=seconds, fps=fps, scale=scale, replace=replace)
        # A session of its own: Ctrl-C in the terminal is for the program that records.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", WORKER, task_json(task)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        recording = cls(process, find)
        following = asyncio.create_task(recording._follow(), name="quicksand-recording")
        try:
            await recording._first.wait()
            if recording.size == (0, 0):
                await following  # raises why
            yield recording
        except BaseException:
            await to_the_end(recording._end(following, Path(task.temporary)))
            raise
        await to_the_end(recording._end(following, Path(task.temporary)))
        recording.result  # noqa: B018 - raises what went wrong

    @property
    def pid(self) -> int:
        """The process that records; SIGTERM ends the recording."""
        return self._process.pid

    def stop(self) -> None:
        """End the recording; `wait` tells when the file is complete."""
        self._order("stop")

    async def wait(self) -> Recorded:
        """Wait until the recording has ended: by `stop`, at its limit, or with the sandbox. A
        cancellation does not end it. Raises as `result`."""
        await self._finished.wait()
        return self.result

    @property
    def result(self) -> Recorded:
        """The finished recording. Raises DiskSpaceError, PathError, DisplayError if there is no
        file, StateError while it runs."""
        said = self._said
        if not self._finished.is_set():
            raise errors.StateError("the recording has not ended")
        if "done" not in said:
            raise _failure(said)
        return Recorded(
            path=Path(said["path"]),
            pictures=said["pictures"],
            seconds=said["seconds"],
            size_bytes=said["size_bytes"],
            width=self.size[0],
            height=self.size[1],
            why="sandbox" if self._sandbox_ended else said["done"],
        )

    def _order(self, words: str) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        if not stdin.is_closing():
            stdin.write(words.encode() + b"\n")

    async def _follow(self) -> None:
        """Pass on the worker's reports until it ends. Raises its failure."""
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None and stderr is not None
        errors_read = asyncio.create_task(_read_end(stderr), name="quicksand-recording-errors")
        try:
            await self._connect()
            while line := await stdout.readline():
                self._said = json.loads(line)
                if "pictures" in self._said:
                    self.pictures = self._said["pictures"]
                if "size" in self._said:
                    width, height = self._said["size"]
                    self.size = (width, height)
                    self._first.set()
                elif "gone" in self._said:
                    await self._connect()
            await self._process.wait()
            if not self._said.keys() & {"done", "failed"}:
                why = await errors_read or f"status {self._process.returncode}"
                message = f"the process that records the screen has ended: {why}"
                self._said = {"failed": DisplayError.__name__, "message": message}
        finally:
            errors_read.cancel()
            await asyncio.wait({errors_read})
            self._finished.set()
            self._first.set()
        if "failed" in self._said:
            raise _failure(self._said)

    async def _connect(self) -> None:
        """Connect the worker to the machine that runs now; after one was lost, to the next one, or
        after a while to the same."""
        loop = asyncio.get_running_loop()
        before, deadline = self._place, loop.time() + RETRY_S
        found = self._find()
        while found is not None and before is not None and self._process.returncode is None:
            is_due = found != before or loop.time() > deadline
            if is_due and found.vnc_socket.exists():
                break
            await asyncio.sleep(POLL_S)
            found = self._find()
        if found is None:
            self._sandbox_ended = True
            self._order("stop")
        else:
            self._place = found
            self._order(f"connect {json.dumps(place_text(found))}")

    async def _end(self, following: asyncio.Task[None], temporary: Path) -> None:
        """End the worker, and remove its remains. Does not raise."""
        self.stop()
        done, _ = await asyncio.wait({following}, timeout=END_S)
        if not done:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.wait({following})
        if self._process.stdin is not None:
            self._process.stdin.close()
        following.exception()  # retrieved: `result` says it
        with contextlib.suppress(OSError):
            temporary.unlink()


async def _read_end(stream: asyncio.StreamReader) -> str:
    """The last line that a stream has."""
    data = b""
    while more := await stream.read(STDERR_MAX):
        data = (data + more)[-STDERR_MAX:]
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return printable(lines[-1]) if lines else ""


def _plan(path: Path, *, seconds: float, fps: float, scale: float, replace: bool) -> Task:
    """Raises ConfigError, PathError."""
    with vnc_errors():
        AnimationFormat.of(path)
        check_scale(scale)
    _check("seconds", seconds, SECONDS_MAX)
    _check("fps", fps, FPS_MAX)
    with map_os_errors(path):
        check_target(path)
    if os.path.lexists(path) and not replace:
        raise PathError(f"the file {path} exists already", hint=REPLACE)
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(4).hex()}")
    return Task(
        path=str(path),
        temporary=str(temporary),
        fps=fps,
        scale=scale,
        seconds=seconds,
        replace=replace,
    )


def _check(name: str, value: float, most: float) -> None:
    if not is_number(value) or not 0 < value <= most:
        raise ConfigError(
            f"{name} must be above 0 and at most {most:g}, not {value!r}", hint=HINTS[name]
        )


def _failure(said: dict[str, Any]) -> QuicksandError:
    """The error that the worker reports."""
    kind = getattr(errors, str(said.get("failed")), DisplayError)
    hint = Words.from_json(said["hint"]) if "hint" in said else ""
    found: QuicksandError = kind(said.get("message", ""), hint=hint)
    return found

"""The process that records a screen, so that packing pictures delays nobody: ``python -m
quicksand.display.record_worker TASK``, where TASK is a `Task` as JSON.

Lines on standard input are orders: ``connect`` and where the screen is (`place`), or ``stop``. When
standard input is closed, the recording ends, too. Lines of JSON on standard output are reports:
``pictures`` and ``size`` after each picture, ``gone`` when a display was lost, at the end ``done``
or ``failed``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from PIL import Image as Pillow
from PIL import features
from quicksand_vnc import Framebuffer
from quicksand_vnc.animation import Animation, AnimationFormat, fit, scaled_size
from quicksand_vnc.client import BRISK_S, CONNECT_TIMEOUT_S

from quicksand.base.errors import DisplayError, HostError, PathError, QuicksandError
from quicksand.base.files import map_os_errors
from quicksand.base.remedies import Words
from quicksand.base.threads import in_thread_to_the_end
from quicksand.display.place import Place, RfbClient, open_screen, parse_place, vnc_errors
from quicksand.display.screendump import true_width
from quicksand.qemu.keeper_parts.bounds import no_core_files

if TYPE_CHECKING:
    from PIL.Image import Image

NICENESS = 5
"""The guest comes first: pictures that cannot be recorded in time are left out."""

BYTES_MAX = 2**31
"""Bytes of a file, after which a recording ends; those of WebP can have 2^32."""

NAMES_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The screen to record, and the file to write."""

    path: str
    temporary: str
    """The path of the file until it is complete: beside ``path``."""
    fps: float
    scale: float
    seconds: float
    replace: bool
    """Whether an existing file at ``path`` is replaced in the end."""


class Recorder:
    """Records one screen into one file."""

    def __init__(self, task: Task, file: BinaryIO) -> None:
        self._task = task
        self._file = file
        self._form = AnimationFormat.of(Path(task.path))
        self._place: Place | None = None
        self._ordered = asyncio.Event()
        self._stopped = asyncio.Event()
        self._animation: Animation | None = None
        self._size = (0, 0)
        self._pictures = 0
        """The number of reported pictures."""
        self._start = 0.0
        """The loop's time at the first picture."""
        self._gone_at: float | None = None
        """The time at which the display was lost, until there is another."""
        self._seen = (0, 0)
        self._width = 0
        """The columns of a frame of that size that are the guest's."""

    def connect(self, place: Place) -> None:
        self._place = place
        self._ordered.set()

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> dict[str, Any]:
        """Record until the end; returns the outcome. The file is then complete. Raises
        DisplayError, PathError, DiskSpaceError."""
        loop = asyncio.get_running_loop()
        recording = asyncio.create_task(self._record(), name="quicksand-record")
        stopped = asyncio.create_task(self._stopped.wait(), name="quicksand-record-stop")
        try:
            await asyncio.wait({recording, stopped}, return_when=asyncio.FIRST_COMPLETED)
            why = recording.result() if recording.done() else "stop"
        finally:
            recording.cancel()
            stopped.cancel()
            await asyncio.wait({recording, stopped})
        if (animation := self._animation) is None:
            raise DisplayError("the recording ended before there was a picture")
        seconds = (loop.time() if self._gone_at is None else self._gone_at) - self._start
        seconds = min(seconds, self._task.seconds)
        with map_os_errors(Path(self._task.path)):
            await in_thread_to_the_end(lambda: animation.finish(seconds))
        return {
            "done": why,
            "pictures": animation.pictures,
            "seconds": seconds,
            "size_bytes": animation.bytes_written,
        }

    async def _record(self) -> str:
        """Record one machine's screen after the other; returns the reason of the end."""
        while True:
            await self._ordered.wait()
            self._ordered.clear()
            assert self._place is not None
            try:
                async with open_screen(self._place) as client:
                    return await self._record_from(client, self._place)
            except DisplayError as error:
                if self._animation is None:
                    raise
                if self._gone_at is None:
                    self._gone_at = asyncio.get_running_loop().time()
                _say({"gone": str(error)})

    async def _record_from(self, client: RfbClient, place: Place) -> str:
        """Record one screen. Raises DisplayError when the display is gone."""
        loop = asyncio.get_running_loop()
        try:
            await asyncio.wait_for(client.next_update(), CONNECT_TIMEOUT_S)
        except TimeoutError:
            raise DisplayError("the display sent no picture") from None
        while True:
            now = loop.time()
            self._gone_at = None
            if self._animation is not None and now - self._start >= self._task.seconds:
                return "seconds"
            if await self._add(client.frame, place, now) > BYTES_MAX:
                return "size"
            interval_s = 1 / self._task.fps
            end = self._start + self._task.seconds
            await asyncio.sleep(min(now + interval_s, end) - loop.time())
            try:
                async with asyncio.timeout_at(end):
                    await client.next_update(brisk_s=min(interval_s, BRISK_S))
            except TimeoutError:
                return "seconds"

    async def _add(self, frame: Framebuffer, place: Place, now: float) -> int:
        """Record a frame; returns the bytes of the file. Raises PathError, DiskSpaceError,
        ConfigError for a first one that is too large."""
        if (frame.width, frame.height) != self._seen:
            self._seen = frame.width, frame.height
            self._width = await true_width(frame, place)
        with map_os_errors(Path(self._task.path)):
            size_bytes, pictures = await in_thread_to_the_end(
                lambda: self._add_blocking(frame, now)
            )
        if pictures != self._pictures:
            self._pictures = pictures
            _say({"size": list(self._size), "pictures": pictures})
        return size_bytes

    def _add_blocking(self, frame: Framebuffer, now: float) -> tuple[int, int]:
        image = _image(frame, self._width)
        if self._animation is None:
            with vnc_errors():
                self._size = scaled_size(image.width, image.height, self._task.scale)
            self._animation = Animation(self._file, self._form, self._size)
            self._start = now
        self._animation.add(fit(image, self._size), now - self._start)
        return self._animation.bytes_written, self._animation.pictures


def _image(frame: Framebuffer, width: int) -> Image:
    size = frame.width, frame.height
    whole = Pillow.frombytes("RGB", size, bytes(frame.pixels), "raw", "RGBX")
    return whole if width == frame.width else whole.crop((0, 0, width, frame.height))


@contextmanager
def _new_file(temporary: Path, path: Path) -> Iterator[BinaryIO]:
    """Open a new file that is removed at the end unless it was moved. Raises PathError,
    DiskSpaceError."""
    with map_os_errors(path):
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    file = os.fdopen(descriptor, "w+b")
    try:
        yield file
    finally:
        with suppress(OSError):  # a full disk that was already reported: a complete file is flushed
            file.close()
        temporary.unlink(missing_ok=True)


def put(temporary: Path, path: Path, *, replace: bool) -> Path:
    """Give a complete file its name, or without ``replace`` the next free one, ``x-2.gif``: it
    would be a pity to lose a recording. Raises PathError, DiskSpaceError."""
    with map_os_errors(path):
        if replace and not (path.is_dir() and not path.is_symlink()):
            return temporary.replace(path)
        for number in range(1, NAMES_MAX):
            free = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
            with suppress(FileExistsError):
                return _put_new(temporary, free)
    raise PathError(f"there are too many files beside {path}")


def _put_new(temporary: Path, path: Path) -> Path:
    """Raises FileExistsError, OSError."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links; another program may just win the race
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        temporary.rename(path)
    return path


def _say(words: dict[str, Any]) -> None:
    # Nobody may listen any more; the recording is completed anyway.
    with suppress(OSError):
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()


async def _take_orders(recorder: Recorder) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    with closing(transport):
        while line := await reader.readline():
            word, _, rest = line.decode().strip().partition(" ")
            if word == "connect":
                recorder.connect(parse_place(json.loads(rest)))
            elif word == "stop":
                break
    recorder.stop()


async def record(task: Task) -> dict[str, Any]:
    """Carry out the task; returns the outcome. Raises a QuicksandError, and then leaves no file."""
    temporary, path = Path(task.temporary), Path(task.path)
    with _new_file(temporary, path) as file:
        recorder = Recorder(task, file)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):  # whether our parent ignores them or not
            loop.add_signal_handler(number, recorder.stop)
        orders = asyncio.create_task(_take_orders(recorder), name="quicksand-record-orders")
        try:
            outcome = await recorder.run()
        finally:
            orders.cancel()
            await asyncio.wait({orders})
        return {**outcome, "path": str(put(temporary, path, replace=task.replace))}


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    os.nice(NICENESS)
    try:
        _require_pillow(AnimationFormat.of(Path(task.path)))
        _say(asyncio.run(record(task)))
    except QuicksandError as error:
        hint = Words(error.advice).to_json()
        _say({"failed": type(error).__name__, "message": str(error), "hint": hint})


def _require_pillow(form: AnimationFormat) -> None:
    """Raises HostError if Pillow cannot write that format."""
    if form is AnimationFormat.WEBP and not features.check("webp"):
        raise HostError("this Pillow cannot write WebP", hint="record a .png or a .gif")


def task_json(task: Task) -> str:
    return json.dumps(asdict(task))


if __name__ == "__main__":
    no_core_files()
    main()

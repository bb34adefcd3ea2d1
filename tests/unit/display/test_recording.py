"""Recordings of a scripted screen, by the real process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageSequence
from quicksand.base.errors import ConfigError, DiskSpaceError, DisplayError, PathError, StateError
from quicksand.display import record_worker
from quicksand.display.record_worker import Recorder, Task, put
from quicksand.display.recording import Recorded, Recording
from quicksand.records.layout import MachineDir
from quicksand_vnc.animation import Animation, AnimationFormat

from tests.unit.vnc.fake_vnc import FakeVnc, filled, resized, serve, update

RED, GREEN, BLUE = b"\xff\0\0\0", b"\0\xff\0\0", b"\0\0\xff\0"


class Screens:
    """The machines of a sandbox, one after the other, each with a screen that does as told."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.machine: MachineDir | None = None
        self.orders: asyncio.Queue[bytes | None] = asyncio.Queue()
        """Updates to be sent; None ends the connection."""

    @contextlib.asynccontextmanager
    async def serve(self, name: str, pixel: bytes, size: tuple[int, int]) -> AsyncIterator[None]:
        async def script(server: FakeVnc) -> None:
            await server.greet(*size)
            server.send(update(filled(0, 0, *size, pixel)))
            while (order := await self.orders.get()) is not None:
                server.send(order)
            server.writer.close()

        (self._root / name).mkdir()
        machine = MachineDir(self._root / name)
        async with serve(machine.vnc_socket, script):
            self.machine = machine
            yield

    def record(
        self, path: Path, *, seconds: float = 60, fps: float = 30, replace: bool = False
    ) -> contextlib.AbstractAsyncContextManager[Recording]:
        return Recording.open(
            path, lambda: self.machine, seconds=seconds, fps=fps, scale=1, replace=replace
        )


@pytest.fixture
def screens(tmp_path: Path) -> Screens:
    (tmp_path / "m").mkdir()
    return Screens(tmp_path / "m")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "x.gif"


def colours(path: Path) -> list[tuple[int, ...]]:
    """The colour in the middle of each picture."""
    with Image.open(path) as image:
        middle = image.width // 2, image.height // 2
        found = [frame.convert("RGB").getpixel(middle) for frame in ImageSequence.Iterator(image)]
    return [pixel for pixel in found if isinstance(pixel, tuple)]


@pytest.mark.parametrize("suffix", ["gif", "png", "webp"])
async def test_what_changes_is_recorded(screens: Screens, target: Path, suffix: str) -> None:
    path = target.with_suffix(f".{suffix}")
    async with screens.serve("one", RED, (64, 40)):
        async with screens.record(path, seconds=3.0) as recording:
            assert recording.size == (64, 40) and not path.exists()
            with pytest.raises(StateError, match="has not ended"):
                recording.result  # noqa: B018
            screens.orders.put_nowait(update(filled(0, 0, 64, 40, GREEN)))
            done = await recording.wait()
        screens.orders.put_nowait(None)
    assert (done.path, done.pictures, done.why) == (path, 2, "seconds")
    assert (done.seconds, done.size_bytes) == (3.0, path.stat().st_size)
    assert colours(path) == [(255, 0, 0), (0, 255, 0)]
    assert list(path.parent.iterdir()) == [path]
    with Image.open(path) as image:
        frames = ImageSequence.Iterator(image)
        # Pillow says a duration once the pixels were read.
        shown = [frame.info["duration"] for frame in frames if frame.load()]
    assert sum(shown) == pytest.approx(3000, abs=10)


async def test_another_mode_and_another_machine(screens: Screens, target: Path) -> None:
    async with screens.serve("one", RED, (64, 40)), screens.record(target) as recording:
        screens.orders.put_nowait(update(resized(160, 40)) + update(filled(0, 0, 160, 40, GREEN)))
        await asyncio.wait_for(seen(recording, 2), 30)
        screens.machine = MachineDir(target.parent.parent / "m" / "two")
        screens.orders.put_nowait(None)
        async with screens.serve("two", BLUE, (64, 40)):
            await asyncio.wait_for(seen(recording, 3), 60)
            screens.orders.put_nowait(None)
    assert recording.result.why == "stop"
    assert colours(target) == [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    with Image.open(target) as image:
        image.seek(1)
        assert image.convert("RGB").getpixel((32, 2)) == (0, 0, 0), "black above what is wide"


async def seen(recording: Recording, pictures: int) -> None:
    while recording.pictures < pictures:
        await asyncio.sleep(0.01)


async def test_it_ends_with_the_sandbox(screens: Screens, target: Path) -> None:
    async with screens.serve("one", RED, (64, 40)), screens.record(target) as recording:
        screens.machine = None
        screens.orders.put_nowait(None)
        done = await asyncio.wait_for(recording.wait(), 30)
    assert (done.why, done.pictures) == ("sandbox", 1)
    assert colours(target) == [(255, 0, 0)]


async def recorded_with(screens: Screens, target: Path, end: Callable[[Recording], None]) -> None:
    """A recording in the midst of which ``end`` happens."""
    async with screens.serve("one", RED, (64, 40)):
        try:
            async with screens.record(target) as recording:
                end(recording)
                await asyncio.wait_for(recording.wait(), 30)
        finally:
            screens.orders.put_nowait(None)


async def test_a_cancellation_leaves_a_whole_file(screens: Screens, target: Path) -> None:
    def cancel(_: Recording) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(recorded_with(screens, target, cancel))
    assert colours(target) == [(255, 0, 0)]
    assert list(target.parent.iterdir()) == [target]


async def test_so_does_an_error_of_the_caller(screens: Screens, target: Path) -> None:
    def fail(_: Recording) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await recorded_with(screens, target, fail)
    assert colours(target) == [(255, 0, 0)]


@contextlib.contextmanager
def ignored(number: signal.Signals) -> Iterator[None]:
    """Processes that begin meanwhile inherit that the signal is ignored, as from a plain sh."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_that_is_told_to_end_completes_it(
    screens: Screens, target: Path, number: signal.Signals
) -> None:
    with ignored(number):
        await recorded_with(screens, target, lambda found: os.kill(found.pid, number))
    assert colours(target) == [(255, 0, 0)]


async def test_it_is_stopped_without_signals(screens: Screens, target: Path) -> None:
    with ignored(signal.SIGTERM), ignored(signal.SIGINT):
        await asyncio.wait_for(recorded_with(screens, target, Recording.stop), 60)
    assert colours(target) == [(255, 0, 0)]


async def test_one_that_is_killed_leaves_nothing(screens: Screens, target: Path) -> None:
    def kill(recording: Recording) -> None:
        os.kill(recording.pid, signal.SIGKILL)

    with pytest.raises(DisplayError, match="has ended: status -9"):
        await recorded_with(screens, target, kill)
    assert list(target.parent.iterdir()) == []


async def test_a_file_that_exists(screens: Screens, target: Path) -> None:
    target.write_bytes(b"old")
    with pytest.raises(PathError, match="exists already") as caught:
        await recorded_with(screens, target, lambda _: None)
    assert "--force" in caught.value.hint
    assert target.read_bytes() == b"old"


async def test_it_is_replaced_when_that_is_wanted(screens: Screens, target: Path) -> None:
    target.write_bytes(b"old")
    async with screens.serve("one", RED, (64, 40)):
        async with screens.record(target, replace=True):
            assert target.read_bytes() == b"old"
        screens.orders.put_nowait(None)
    assert colours(target) == [(255, 0, 0)]


async def test_one_that_came_meanwhile_is_kept_too(screens: Screens, target: Path) -> None:
    async with screens.serve("one", RED, (64, 40)):
        async with screens.record(target) as recording:
            target.write_bytes(b"new")
        screens.orders.put_nowait(None)
    done: Recorded = recording.result
    assert done.path == target.with_name("x-2.gif")
    assert target.read_bytes() == b"new" and colours(done.path) == [(255, 0, 0)]


async def test_what_cannot_be_recorded(screens: Screens, target: Path) -> None:
    async with screens.serve("one", RED, (16, 16)):
        for path, error, why in (
            (target.with_suffix(".jpg"), ConfigError, "no suffix"),
            (target.parent / "none" / "x.gif", PathError, "there is no directory"),
        ):
            with pytest.raises(error, match=why):
                async with screens.record(path):
                    pass
        for fps, seconds in ((31.0, 1.0), (0.0, 1.0), (1.0, 1e6), (1.0, float("nan"))):
            with pytest.raises(ConfigError, match="must be above 0"):
                async with screens.record(target, fps=fps, seconds=seconds):
                    pass
    screens.machine = MachineDir(target.parent)
    with pytest.raises(DisplayError, match="cannot be reached"):
        async with screens.record(target):
            pass
    assert list(target.parent.iterdir()) == []


async def test_a_screen_that_is_too_large(screens: Screens, target: Path) -> None:
    (target.parent.parent / "m" / "one").mkdir()
    screens.machine = MachineDir(target.parent.parent / "m" / "one")
    async with serve(screens.machine.vnc_socket, huge):
        with pytest.raises(DisplayError, match="16384x16384 pixels, too many"):
            async with screens.record(target):
                pass
    assert list(target.parent.iterdir()) == []


async def huge(server: FakeVnc) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        await server.greet(16384, 16384)


async def test_a_full_disk_leaves_nothing(
    screens: Screens, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Animation, "finish", full)
    async with screens.serve("one", RED, (64, 40)):
        assert screens.machine is not None
        task = Task(
            path=str(target),
            temporary=str(target.with_name(".x")),
            fps=30,
            scale=1,
            seconds=0.1,
            replace=False,
        )
        with (
            pytest.raises(DiskSpaceError, match=r"no space left for .*x\.gif"),
            record_worker._new_file(Path(task.temporary), target) as file,
        ):
            recorder = Recorder(task, file)
            recorder.connect(screens.machine)
            await recorder.run()
        screens.orders.put_nowait(None)
    assert list(target.parent.iterdir()) == []


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="needs prlimit(1)")
async def test_a_file_that_may_not_grow(
    screens: Screens, target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on a full disk, in the real process."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec prlimit --fsize=20 {sys.executable} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    async with screens.serve("one", RED, (64, 40)):
        with pytest.raises(PathError, match=r"cannot write .*x\.gif: File too large"):
            async with screens.record(target):
                pass
        screens.orders.put_nowait(None)
    assert list(target.parent.iterdir()) == []


def test_a_name_is_never_taken_from_another_file(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)  # as on a file system without hard links
    for number in ("x.gif", "x-2.gif", "x-3.gif"):
        temporary = target.with_name(".new")
        temporary.write_text(number)
        assert put(temporary, target, replace=False).name == number
    assert target.read_text() == "x.gif"


def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    base = Image.effect_noise((640, 400), 90).convert("RGB")
    with (tmp_path / "x.png").open("w+b") as file:
        animation = Animation(file, AnimationFormat.PNG, base.size)
        before = 0
        for number in range(120):
            base = base.transpose(Image.Transpose.FLIP_LEFT_RIGHT).crop((0, 0, 640, 400))
            base.putpixel((0, 0), (number, 0, 0))
            animation.add(base, number / 10)
            if number == 20:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        animation.finish(12)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 20 * 1024, "100 pictures of 750 KiB are not kept"

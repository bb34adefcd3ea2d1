"""Taking pictures of the guest's screen (QMP screendump)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from quicksand_vnc import Framebuffer, Picture, read_size

from quicksand.base.errors import QuicksandError, StateError
from quicksand.base.threads import in_thread_to_the_end
from quicksand.display.hands import drives
from quicksand.display.place import WIDTH_STEP, Place, RelayedScreen, ask_size, vnc_errors
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import MachineDir

Result = TypeVar("Result")


SCREEN = "virtio-gpu"
"""QEMU's name of the screen's device."""

WIDTH_S = 2.0
"""Seconds to wait for the true width."""


async def take_picture(machine: MachineDir) -> Picture:
    """The screen of the running machine, exactly as the guest has drawn it. Raises StateError,
    MachineError, DisplayError."""
    return await _of_dump(machine, Picture.read_ppm)


async def take_size(machine: MachineDir) -> tuple[int, int]:
    """Return the width and height of that screen in pixels; VNC reports the width as the next
    multiple of 16 (QEMU, ui/vnc.c, vnc_width), and at most 5120x2160. Raises as `take_picture`."""
    return await _of_dump(machine, read_size)


async def is_driven(machine: MachineDir) -> bool:
    """Whether the guest's kernel drives the screen; until then, QEMU shows a picture of its own.
    The answer is True if QEMU cannot be asked. Raises StateError if the machine has ended;
    MachineError."""
    monitor = await Monitor.connect(machine)
    try:
        for device in await monitor.execute("x-query-virtio"):
            if str(device["name"]).startswith(SCREEN):
                return await drives(monitor, str(device["path"]))
    except (StateError, KeyError, TypeError):
        pass  # a QEMU without these commands
    finally:
        await monitor.close()
    return True


async def true_width(frame: Framebuffer, place: Place) -> int:
    """Return how many columns of VNC's ``frame`` are the guest's; all if QEMU cannot be asked."""
    if frame.width % WIDTH_STEP:
        return frame.width
    try:
        async with asyncio.timeout(WIDTH_S):
            width, height = await _size_at(place)
    except (QuicksandError, OSError, TimeoutError):
        return frame.width  # a QEMU that is just ending: then with some empty columns
    fits = height == frame.height and frame.width - WIDTH_STEP < width <= frame.width
    return width if fits else frame.width


async def _size_at(place: Place) -> tuple[int, int]:
    return await (ask_size(place) if isinstance(place, RelayedScreen) else take_size(place))


async def _of_dump(machine: MachineDir, read: Callable[[int], Result]) -> Result:
    """Return the result of ``read`` for the file to which QEMU writes the screen."""
    monitor = await Monitor.connect(machine)
    try:
        with _scratch() as (descriptor, path):
            await _dump(monitor, path)
            with vnc_errors():
                return await in_thread_to_the_end(lambda: read(descriptor))
    finally:
        await monitor.close()


async def _dump(monitor: Monitor, path: Path) -> None:
    """Have QEMU write the screen to the scratch file at ``path``."""
    descriptor = await asyncio.to_thread(os.open, path, os.O_WRONLY)
    try:
        await monitor.execute_with_file(descriptor, "filename", "screendump")
    finally:
        os.close(descriptor)


@contextmanager
def _scratch() -> Iterator[tuple[int, Path]]:
    """Yield a file to which QEMU writes, and its path: in memory and without a name where the
    system can do that, so that nothing of a guest's screen stays on a disk."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("quicksand-screen")
        try:
            # QEMU takes a descriptor only if it is open for writing alone (QEMU, monitor/fds.c).
            yield descriptor, Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="quicksand-screen-") as file:
        yield file.fileno(), Path(file.name)

"""Taking pictures of the guest's screen (QMP screendump)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quicksand.display.picture import Picture
from quicksand.host.threads import in_thread_to_the_end
from quicksand.layout import MachineDir
from quicksand.qemu.qmp import Monitor


async def take_picture(machine: MachineDir) -> Picture:
    """The screen of the running machine, exactly as the guest has drawn it. Raises StateError,
    MachineError."""
    monitor = await Monitor.connect(machine)
    try:
        with _scratch() as (descriptor, path):
            await _dump(monitor, path)
            return await in_thread_to_the_end(lambda: Picture.read_ppm(descriptor))
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
    """A file for QEMU to write to, and its path: in memory and without a name where the system can,
    so that nothing of a guest's screen stays on a disk."""
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

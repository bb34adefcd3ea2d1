"""The small picture of the guest's screen that a checkpoint has beside it.

It is of the moment just before the pause, taken by a QMP connection of its own, so that the pause
does not get longer. A checkpoint without a picture is valid: any failure here is logged
(``quicksand.thumbnails``, level DEBUG) and raises nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.errors import HistoryError, QuicksandError
from quicksand.base.regular import NotAFileError, open_regular
from quicksand.base.threads import in_thread_to_the_end
from quicksand.display.picture import Format, write_picture
from quicksand.display.screendump import take_picture
from quicksand.records.layout import MachineDir, SandboxDir

if TYPE_CHECKING:
    from quicksand.display.picture import Picture

SIDE_MAX = 320
"""Pixels of the longer side."""

BYTES_MAX = 512 * 1024
"""The most bytes of a file. A PNG of SIDE_MAX x SIDE_MAX pixels has at most 301 KiB."""

PATIENCE_S = 1.0
"""Seconds to wait for QEMU's picture; a checkpoint does not wait longer for an extra."""


async def look_at_screen(machine: MachineDir, *, has_display: bool) -> Picture | None:
    """The present screen; None without a display, or if no picture can be had."""
    if not has_display:
        return None
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await take_picture(machine)
    except (QuicksandError, OSError) as error:  # TimeoutError is an OSError
        _note("there is no picture of the screen for a checkpoint", error)
        return None


async def keep_thumbnail(picture: Picture | None, place: SandboxDir, checkpoint: str) -> None:
    """Write a small version of ``picture`` beside the checkpoint with that id, whose directory
    exists."""
    if picture is None:
        return
    try:
        await in_thread_to_the_end(lambda: _write(picture, place.screen(checkpoint)))
    except (QuicksandError, OSError, ValueError, ImportError) as error:
        _note("the picture of a checkpoint was not kept", error)


def read_thumbnail(place: SandboxDir, checkpoint: str) -> bytes | None:
    """The PNG beside the checkpoint with that id; None if it has none. Blocks. Raises HistoryError
    if it is there but cannot be read."""
    path = place.screen(checkpoint)
    try:
        descriptor = open_regular(path, os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except NotAFileError as error:
        raise HistoryError(f"{path} is no picture that quicksand wrote") from error
    except OSError as error:
        raise HistoryError(f"the picture {path} cannot be read: {error.strerror}") from error
    try:
        if os.fstat(descriptor).st_size > BYTES_MAX:
            raise HistoryError(f"{path} is no picture that quicksand wrote")
        return os.read(descriptor, BYTES_MAX)
    except OSError as error:
        raise HistoryError(f"the picture {path} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def shrink(picture: Picture) -> bytes:
    """A PNG of the picture that has at most SIDE_MAX pixels on each side."""
    factor = SIDE_MAX / max(picture.width, picture.height, 1)
    small = picture.scaled(factor) if factor < 1 else picture
    return small.encode(Format.PNG)


def _write(picture: Picture, path: Path) -> None:
    write_picture(path, shrink(picture))


def _note(what: str, error: Exception) -> None:
    why = str(error) or type(error).__name__
    logging.getLogger("quicksand.thumbnails").debug("%s: %s", what, why)

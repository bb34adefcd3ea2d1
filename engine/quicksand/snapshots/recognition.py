"""By what people recognise a checkpoint, kept beside it: a small picture of the guest's screen, and
the last output of a terminal. A checkpoint without them is valid, like all older ones.

Both are of the moment just before the pause. The picture is taken by a QMP connection of its own,
so that the pause does not get longer; any failure is logged (``quicksand.thumbnails``, level DEBUG)
and raises nothing. The output is the program's, unchanged, with the terminal's size.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand_vnc import Format

from quicksand.base.errors import HistoryError, QuicksandError
from quicksand.base.fields import Fields
from quicksand.base.files import read_json, write_json
from quicksand.base.regular import NotAFileError, open_regular
from quicksand.base.threads import in_thread_to_the_end
from quicksand.display.asked import write_picture
from quicksand.display.screendump import take_picture
from quicksand.records.layout import MachineDir, SandboxDir

if TYPE_CHECKING:
    from quicksand_vnc import Picture


OUTPUT_MAX = 16 * 1024
"""The most bytes of output that are kept: enough for a large screen."""
TERMINAL_SIDE_MAX = 1000
"""The most columns or rows of a terminal."""
PROGRAM_MAX = 200
"""The most characters of its program's command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTail:
    """The end of a terminal's output. All of it comes from the guest."""

    program: str
    """The command line of the terminal's foreground program."""
    columns: int
    rows: int
    output: bytes

    def to_json(self) -> dict[str, object]:
        return {
            "program": self.program[:PROGRAM_MAX],
            "columns": self.columns,
            "rows": self.rows,
            "output_b64": base64.b64encode(self.output[-OUTPUT_MAX:]).decode(),
        }

    @classmethod
    def from_json(cls, value: object) -> ShellTail:
        """Parse a stored one. Raises ValueError."""
        found = Fields(value, "bad end of a shell")
        columns, rows = found.whole("columns"), found.whole("rows")
        if not (0 < columns <= TERMINAL_SIDE_MAX and 0 < rows <= TERMINAL_SIDE_MAX):
            raise ValueError("a terminal cannot have that size")
        encoded = found.text("output_b64")
        if len(encoded) > 2 * OUTPUT_MAX:
            raise ValueError("the end of a shell is too long")
        try:
            output = base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ValueError("the end of a shell is not base64") from error
        return cls(
            program=found.text("program")[:PROGRAM_MAX], columns=columns, rows=rows, output=output
        )


def keep_shell(tail: ShellTail, place: SandboxDir, checkpoint: str) -> None:
    """Write it beside the checkpoint with that id. Blocks. Raises HostError."""
    path = _path(place, checkpoint)
    write_json(path, tail.to_json(), read=ShellTail.from_json, durable=False)


def read_shell(place: SandboxDir, checkpoint: str) -> ShellTail | None:
    """Return the tail beside the checkpoint with that id; None if it has none. Blocks. Raises
    HistoryError if it is there but cannot be read."""
    path = _path(place, checkpoint)
    try:
        return ShellTail.from_json(read_json(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HistoryError(f"{path} cannot be read: {error}") from error


def _path(place: SandboxDir, checkpoint: str) -> Path:
    return place.checkpoints / checkpoint / "shell.json"


PICTURE_SIDE = 320
"""Pixels of the longer side."""

BYTES_MAX = 512 * 1024
"""The most bytes of a file. A PNG of PICTURE_SIDE x SIDE_MAX pixels has at most 301 KiB."""

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
    """A PNG of the picture that has at most PICTURE_SIDE pixels on each side."""
    factor = PICTURE_SIDE / max(picture.width, picture.height, 1)
    small = picture.scaled(factor) if factor < 1 else picture
    return small.encode(Format.PNG)


def _write(picture: Picture, path: Path) -> None:
    write_picture(path, shrink(picture))


def _note(what: str, error: Exception) -> None:
    why = str(error) or type(error).__name__
    logging.getLogger("quicksand.thumbnails").debug("%s: %s", what, why)

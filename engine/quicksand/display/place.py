"""The place of a screen: the VNC server of a QEMU here, or a Unix socket of ours that leads to one
on another machine (`quicksand.hosted.relayed_screen`); and the client of either. `quicksand_vnc`
speaks VNC; its errors become the engine's here, and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from quicksand_vnc import AskedError, VncError
from quicksand_vnc.client import VncClient

from quicksand.base.errors import ConfigError, DisplayError
from quicksand.records.layout import MachineDir

WIDTH_STEP = 16
"""The step to which QEMU's VNC server rounds up the width (ui/vnc.h, VNC_DIRTY_PIXELS_PER_BIT). New
versions report the true one when the size has changed, and still take the pointer's place as a part
of the rounded one (ui/vnc.c, pointer_event)."""


@contextlib.contextmanager
def vnc_errors() -> Iterator[None]:
    """Turn the errors of `quicksand_vnc` into ConfigError and DisplayError with the same words."""
    try:
        yield
    except AskedError as error:
        raise ConfigError(str(error), hint=error.hint) from error
    except VncError as error:
        raise DisplayError(str(error), hint=error.hint) from error


class RfbClient(VncClient):
    """A connection to a screen, for viewers (`quicksand_vnc.client` shows how). If QEMU ends (a
    stop, or a revert, after which another QEMU has the same screen), its methods raise
    DisplayError. To go on after a revert, open another client."""

    error = DisplayError
    width_step = WIDTH_STEP

    async def resize(self, width: int, height: int) -> None:
        """Ask the guest to give its screen another size. Returns when QEMU has taken the request;
        whether the guest follows is up to it. Raises ConfigError for a size that there cannot be,
        DisplayError if QEMU refuses."""
        with vnc_errors():
            await super().resize(width, height)


TO_VNC = b"V"
"""The first byte of a connection to a relay's socket that should lead to the VNC server."""

TO_SIZE = b"S"
"""The first byte of one that asks for the screen's width and height (`SIZE`)."""

SIZE = struct.Struct(">II")

RELAYED = "relayed:"
"""The prefix of a relayed screen's text. A screen of this machine is written as its directory."""


@dataclass(frozen=True, slots=True)
class RelayedScreen:
    """A screen of another machine."""

    vnc_socket: Path
    """The relay's socket."""
    turn: int = 0
    """Grows when the other machine has ended a connection: its QEMU is then another one."""


Place = MachineDir | RelayedScreen


def place_text(place: Place) -> str:
    """Return a place as an argument of a process, for `parse_place`."""
    if isinstance(place, RelayedScreen):
        return f"{RELAYED}{place.vnc_socket}"
    return str(place.root)


def parse_place(text: str) -> Place:
    """Parse the result of `place_text`."""
    path = text.removeprefix(RELAYED)
    return MachineDir(Path(text)) if path == text else RelayedScreen(Path(path))


def open_screen(place: Place) -> AbstractAsyncContextManager[RfbClient]:
    """Connect to a screen. Raises DisplayError. From another machine, pixels come compressed."""
    if isinstance(place, RelayedScreen):
        return RfbClient.open(place.vnc_socket, first=TO_VNC, compressed=True)
    return RfbClient.open(place.vnc_socket)


async def ask_size(screen: RelayedScreen) -> tuple[int, int]:
    """The width and height of another machine's screen in pixels. Raises DisplayError if it does
    not tell."""
    try:
        reader, writer = await asyncio.open_unix_connection(screen.vnc_socket)
        with contextlib.closing(writer):
            writer.write(TO_SIZE)
            width, height = SIZE.unpack(await reader.readexactly(SIZE.size))
    except (OSError, EOFError) as error:
        raise DisplayError("the other machine does not tell the size of the screen") from error
    return width, height

"""The place of a screen: the VNC server of a QEMU here, or a Unix socket of ours that leads to one
on another machine (`quicksand.hosted.relayed_screen`)."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.errors import DisplayError
from quicksand.display.rfb import RfbClient
from quicksand.records.layout import MachineDir

if TYPE_CHECKING:
    pass


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
    """Connect to a screen. Raises as `RfbClient.open`. From another machine, pixels come
    compressed."""
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

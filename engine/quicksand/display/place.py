"""The place of a screen: the VNC server of a QEMU here, or a Unix socket of ours that leads to one
on another machine (`quicksand.hosted.relayed_screen`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import string
import struct
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.errors import DisplayError, NoDisplayError, PortInUseError, StateError
from quicksand.base.files import map_os_errors
from quicksand.base.hypervisor import Hypervisor
from quicksand.base.paths import Paths
from quicksand.base.regular import read_word
from quicksand.base.remedies import Remedy, Words
from quicksand.display.rfb import RfbClient
from quicksand.qemu.command import VNC_WITH_PORT
from quicksand.qemu.qemu_hypervisor import Qemu, monitor_of
from quicksand.records.config import VNC_PORT_HINT
from quicksand.records.layout import MachineDir, runtime_dir

if TYPE_CHECKING:
    from quicksand.records.config import SandboxConfig
    from quicksand.records.sandboxes import Entry


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


def no_display(name: str) -> NoDisplayError:
    """The error for a sandbox that has none, whether it runs or not."""
    return NoDisplayError(
        f"the sandbox {name!r} has no display",
        hint=Words(
            "make one that has: enable_display=True, or ",
            Remedy("run_with_display"),
            python="make one that has: enable_display=True",
        ),
    )


def not_running(name: str) -> StateError:
    """The error for a sandbox that shows nothing now."""
    return StateError(
        f"the sandbox {name!r} is not running",
        hint=Words(
            "`start`, or ",
            Remedy("start", name=name),
            ", starts it",
            python="`start` starts it",
        ),
    )


def machine_with_screen(
    places: Paths, name: str, config: SandboxConfig, find: Callable[[], Entry]
) -> MachineDir:
    """The directory of the QEMU that shows the screen of a sandbox now; ``find`` looks for that
    sandbox. Raises NoDisplayError, StateError if it does not run, and what ``find`` raises."""
    if not config.enable_display:
        raise no_display(name)
    entry = find()
    if entry.run is None:
        raise not_running(name)
    return runtime_dir(places, entry.id).current()


PASSWORD_LENGTH = 8
"""VNC uses no more (RFC 6143, 7.2.2)."""

ALPHABET = string.ascii_letters + string.digits


async def serve_at(machine: MachineDir, port: int | None) -> None:
    """Have the QEMU of a sandbox that has just started serve at 127.0.0.1:``port``, with a new
    password; None does nothing. Raises as `listen`."""
    if port is None:
        return
    _make_password(machine)
    qemu = await Qemu.connect(machine)
    try:
        await listen(qemu, machine, port)
    finally:
        await qemu.close()


def _make_password(machine: MachineDir) -> None:
    word = "".join(secrets.choice(ALPHABET) for _ in range(PASSWORD_LENGTH))
    path = machine.vnc_password
    with map_os_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(word)


async def listen(hypervisor: Hypervisor, machine: MachineDir, port: int) -> None:
    """Have QEMU listen at 127.0.0.1:``port`` with the sandbox's password. Raises
    PortInUseError if it cannot, PathError, StateError, MachineError."""
    with map_os_errors(machine.vnc_password):
        word = read_word(machine.vnc_password)
    monitor = monitor_of(hypervisor)
    await monitor.execute("set_password", protocol="vnc", display=VNC_WITH_PORT, password=word)
    address = {"type": "inet", "host": "127.0.0.1", "port": str(port)}
    try:
        await monitor.execute("display-update", type="vnc", addresses=[address])
    except StateError as error:
        raise PortInUseError(
            f"the screen cannot be served at the port {port}: {error}",
            hint=VNC_PORT_HINT,
        ) from error


async def stop_listening(hypervisor: Hypervisor) -> None:
    """Stop listening anywhere. Raises StateError, MachineError."""
    await monitor_of(hypervisor).execute("display-update", type="vnc", addresses=[])

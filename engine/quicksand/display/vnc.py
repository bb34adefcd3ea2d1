"""A port of the host's loopback for VNC viewers, with a password, besides the Unix socket.

QEMU has a second VNC server for it, which waits at a Unix socket and admits nobody until it is
given the password and the port: only one of the two QEMUs of a revert can have the port. The
password is in a file that only this user can read, and stays the same until the sandbox stops.
"""

from __future__ import annotations

import os
import secrets
import string
from typing import TYPE_CHECKING

from quicksand.base.errors import PortInUseError, StateError
from quicksand.base.files import map_os_errors
from quicksand.base.hypervisor import Hypervisor
from quicksand.base.regular import read_word
from quicksand.qemu.command import VNC_WITH_PORT
from quicksand.qemu.qemu_hypervisor import Qemu, monitor_of
from quicksand.records.config import VNC_PORT_HINT
from quicksand.records.layout import MachineDir

if TYPE_CHECKING:
    pass


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

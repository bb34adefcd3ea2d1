"""A guest's first mount, made before anybody waits for it.

The first mount has the guest's kernel assemble the ciphers of SMB 3.1.1, for each of which it
starts a program that looks for a module: half of what a mount takes where the processor is
emulated. They stay, and so a template is made of a guest that has mounted something.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from quicksand.agent.session import Ask
from quicksand.layout import MachineDir
from quicksand.mounts.mount import Mount
from quicksand.mounts.mounting import mount_served, remove_mount
from quicksand.mounts.serving import start_server

GUEST = "/mnt"
"""A directory that every system has, so that none is left behind."""


async def rehearse_mount(machine: MachineDir, empty: Path, ask: Ask) -> None:
    """Mount a directory of the host in a guest, read-only, and take it away again. Nothing of it is
    left in either. Raises MountError, StateError, AgentError, HostError."""
    secret = secrets.token_hex(16)
    share = await start_server(machine, Mount(str(empty), GUEST, readonly=True), secret)
    share = await mount_served(machine, share, secret, ask)
    await remove_mount(machine, share, ask, force=False)

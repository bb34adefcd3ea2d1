"""Directories that QEMU itself serves to a guest by 9p.

The server is a part of QEMU, so the guest needs no network. But each directory needs a device that
QEMU has from its start, and while it is mounted, QEMU has state that no checkpoint can hold. The
devices of a machine, and which of them are mounted, are in a record beside its sockets.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand.base.errors import (
    AgentRefusedError,
    MountError,
    QuicksandError,
    StateError,
)
from quicksand.base.hypervisor import Hypervisor
from quicksand.base.remedies import Remedy, Words
from quicksand.base.tools import Findings, program_key
from quicksand.guest.agent import values
from quicksand.guest.agent.session import Ask
from quicksand.mounts.devices import Device, ninep_of, note, read
from quicksand.mounts.directories import KnownDirectory, find, opened
from quicksand.mounts.mounter import NOBODY, Mounter, look
from quicksand.qemu.command import NINEP_DEVICE, SharedDirectory, ninep_tag
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import MachineDir
from quicksand.records.mount import NINEP, Mount

if TYPE_CHECKING:
    from quicksand.qemu.binaries import QemuBinaries


MOUNT_S = 60.0
"""Seconds for the guest's mount(2), which may first have to load the client."""
UNMOUNT_S = 20.0
PROBE_S = 20.0

OPTIONS = (
    "trans=virtio",
    "version=9p2000.L",
    # Bytes of a message; Linux's default of 128 KiB (8 KiB before 5.15) would need more messages.
    "msize=262144",
    # Only files that programs have mapped are cached in the guest, because these need pages.
    "cache=mmap",
)
"""Options of Linux's client (Documentation/filesystems/9p.rst)."""

USE_CIFS = "leave `9p` out: the default, cifs, needs neither"
_BLOCKED = "VirtFS"
"""In the reason that QEMU gives while a guest has a share mounted (QEMU hw/9pfs/9p.c,
v9fs_attach)."""


def choose(
    mounts: Sequence[Mount],
    check: Callable[[Mount], KnownDirectory],
    binaries: QemuBinaries,
    *,
    may_leave_out: bool,
) -> list[Device]:
    """Return the devices of a machine that is about to start; ``check`` returns the directory of
    each. With ``may_leave_out``, those whose directories are gone are left out. Blocks for I/O.
    Raises MountError if QEMU cannot serve them."""
    found: list[Device] = []
    for mount in ninep_of(mounts):
        try:
            known = check(mount)
            check_shareable(mount)
        except MountError:
            if not may_leave_out:
                raise
        else:
            found.append(Device(mount=mount, known=known))
    if found:
        require_server(binaries)
    return found


def check_shareable(mount: Mount) -> None:
    """Raise MountError if QEMU cannot serve a directory. Blocks for I/O."""
    if mount.readonly or not hasattr(os, "getxattr"):
        return
    try:
        os.getxattr(mount.host, "user.virtfs.mode")
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise MountError(
                f"{mount.host} cannot be mounted by 9p to be written: its file system keeps no "
                f"attributes ({error.strerror}), and owners and modes would be lost",
                hint=f"{USE_CIFS}; or mount it read-only",
            ) from error


def require_there(device: Device) -> None:
    """Raise MountError if a directory is gone, without which QEMU would not start, or is not the
    one that was mounted. Blocks for I/O."""
    try:
        with opened(device.mount, device.known or find(device.mount)):
            return
    except MountError as error:
        raise MountError(
            f"{error}; and this machine has a 9p device for it",
            hint="put the directory back, or stop the sandbox and start it without",
        ) from error


def require_server(binaries: QemuBinaries) -> None:
    """Raise MountError if a QEMU was built without 9p. Blocks the first time."""
    findings = Findings("qemu-9p.json")
    key = program_key(binaries.system)
    has = findings.get(key)
    if not isinstance(has, bool):
        has = _ask_qemu(binaries)
        findings.put(key, has)
    if not has:
        raise MountError(
            f"{binaries.system} was built without 9p (virtfs), which a mount of the sandbox asks "
            "for",
            hint=USE_CIFS,
        )


def _ask_qemu(binaries: QemuBinaries) -> bool:
    try:
        said = subprocess.run(
            [binaries.system, *binaries.firmware_arguments, "-device", f"{NINEP_DEVICE},help"],
            env={**os.environ, **binaries.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MountError(f"{binaries.system} does not say whether it has 9p: {error}") from error
    # QEMU 7.2 ends with 0 for unknown devices, too.
    return b"mount_tag=" in said.stdout


def shared(devices: Sequence[Device]) -> tuple[SharedDirectory, ...]:
    """Return the devices as in QEMU's command line."""
    return tuple(
        SharedDirectory(
            path=device.known.path if device.known else device.mount.host,
            readonly=device.mount.readonly,
        )
        for device in devices
    )


# In the guest


async def mount_all(machine: MachineDir, mounts: Sequence[Mount], ask: Ask) -> None:
    """Have the guest mount directories for which the machine has devices. Raises MountError,
    AgentError, HostError."""
    for mount in mounts:
        devices = read(machine)
        number = next((n for n, device in enumerate(devices) if device.mount == mount), None)
        if number is None:
            raise MountError(f"this machine has no 9p device for {mount.host}")
        params = {
            "type": NINEP,
            "share": ninep_tag(number),
            **values.parameter("target", mount.guest),
            "options": [*OPTIONS],
            "read_only": mount.readonly,
        }
        # First, so that a device that may be mounted is not taken for an unmounted one.
        _mark(machine, mount, mounted=True, mounter=Mounter.me())
        try:
            await ask("mount_share", params, MOUNT_S)
        except AgentRefusedError as error:
            _mark(machine, mount, mounted=False)
            raise _explain(mount, error) from error
        try:
            await look(mount, ask)
        except MountError:
            _mark(machine, mount, mounted=True, mounter=NOBODY)
            raise
        _mark(machine, mount, mounted=True)


def _explain(mount: Mount, error: AgentRefusedError) -> QuicksandError:
    said = f"{mount.host} cannot be mounted at {mount.guest} by 9p: {error}"
    return MountError(said, hint=USE_CIFS if error.code == "unsupported" else "")


async def unmount(machine: MachineDir, mount: Mount, ask: Ask, *, force: bool = False) -> None:
    """Have the guest unmount a directory; its device stays. Raises MountError, AgentError."""
    try:
        params = {**values.parameter("target", mount.guest), "force": force}
        await ask("unmount_share", params, UNMOUNT_S)
    except AgentRefusedError as error:
        if error.code == "busy":
            raise MountError(
                f"{mount.guest} is in use in the guest",
                hint="end the programs that use it",
            ) from error
        if error.code != "not_found":  # the guest may have unmounted it itself
            raise MountError(f"{mount.guest} cannot be unmounted: {error}") from error
    _mark(machine, mount, mounted=False)


def _mark(
    machine: MachineDir, mount: Mount, *, mounted: bool, mounter: Mounter | None = None
) -> None:
    note(
        machine,
        [
            replace(device, mounted=mounted, mounter=mounter) if device.mount == mount else device
            for device in read(machine)
        ],
    )


# Operations that are not possible while it is mounted


async def refuse_mounted(config: SandboxConfig, hypervisor: Hypervisor, name: str) -> None:
    """Raise StateError if the guest has a 9p share mounted: a checkpoint would hold names of files
    that only this QEMU knows. QEMU itself is asked, for root in the guest can mount it, too. QEMU
    then refuses to migrate, but not to write its devices' state. Raises MachineError."""
    if not ninep_of(config.mounts) and not config.extra_qemu_args:
        return
    if any(_BLOCKED in reason for reason in await hypervisor.why_unsavable()):
        raise StateError(
            f"no checkpoint can be taken of {name!r} while a directory is mounted there by 9p: "
            "QEMU cannot save what it has open",
            hint=Words(Remedy("checkpoint_without_9p", name=name), " unmounts it for that moment"),
        )

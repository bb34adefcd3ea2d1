"""The record of a machine's 9p devices: each serves a directory of the host, mounted or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from quicksand.base.errors import (
    ConfigError,
)
from quicksand.base.files import read_json, write_json
from quicksand.mounts.directories import KnownDirectory
from quicksand.mounts.mounter import Mounter
from quicksand.records.layout import MachineDir
from quicksand.records.mount import NINEP, Mount, decode_mount

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A 9p device of a machine."""

    mount: Mount
    mounted: bool = False
    """Whether we have had the guest mount it, or are doing so."""
    mounter: Mounter | None = None
    """The process that is having the guest mount it; None once the guest was seen to have it
    mounted."""
    known: KnownDirectory | None = None
    """The directory itself; None in records of older versions."""


def ninep_of(mounts: Sequence[Mount]) -> list[Mount]:
    """Return those of the mounts that QEMU serves."""
    return [mount for mount in mounts if mount.type == NINEP]


def note(machine: MachineDir, devices: Sequence[Device]) -> None:
    """Write the record of a machine's devices. Raises HostError."""
    write_json(machine.ninep, {"devices": [asdict(device) for device in devices]}, durable=False)


def read(machine: MachineDir) -> list[Device]:
    """The devices of a machine; none without a record. Blocks for I/O."""
    try:
        values: list[Any] = read_json(machine.ninep)["devices"]
        return [
            Device(
                mount=decode_mount(value["mount"]),
                mounted=value["mounted"] is True,
                known=KnownDirectory.from_json(value["known"]) if value.get("known") else None,
                mounter=Mounter.from_json(value["mounter"]) if value.get("mounter") else None,
            )
            for value in values
        ]
    except (OSError, ValueError, KeyError, TypeError, ConfigError):
        return []


def mounted(machine: MachineDir) -> list[Mount]:
    """The directories that a machine's guest has mounted by 9p. Blocks for I/O."""
    return [device.mount for device in read(machine) if device.mounted]

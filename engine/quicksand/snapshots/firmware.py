"""The firmware of a PC, which its guest runs when it reboots.

QEMU keeps it in a block of memory beside the guest's RAM and expects a migration to bring it: a
QEMU that waits for incoming state drops its own copy (QEMU, hw/core/loader.c, rom_reset). The tier
"pages" loads only the devices' state that way, so it keeps the firmware with the checkpoint.
Checkpoints with the same firmware share one file.
"""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

from quicksand.base.errors import MachineError
from quicksand.base.hypervisor import Hypervisor
from quicksand.records.nodes import File
from quicksand.snapshots.guest_ram import PAGE, GuestRam
from quicksand.snapshots.pages import CHUNK, MappedFile, write_file

PC = "x86_64"
"""The only architecture concerned: a `virt` machine's kernel is in the guest's RAM, and QEMU loads
it there again."""

END = 1 << 32
"""The guest address at which the firmware of a PC ends (QEMU, x86_bios_rom_init)."""

SIZE_MAX = 16 * 1024 * 1024


async def find_firmware(hypervisor: Hypervisor, pid: int, arch: str) -> GuestRam | None:
    """The firmware's place in QEMU's memory; None if no firmware must be kept. Raises
    MachineError."""
    if arch != PC:
        return None
    return await _locate(hypervisor, pid, await hypervisor.firmware_size())


async def _locate(hypervisor: Hypervisor, pid: int, size: int) -> GuestRam:
    if not 0 < size <= SIZE_MAX or size % PAGE:
        raise MachineError(f"QEMU says that the machine's firmware has {size} bytes")
    return GuestRam(pid, await hypervisor.host_address(END - size), size)


def read_firmware(where: GuestRam) -> bytearray:
    """Copy the firmware from QEMU's memory. A guest cannot change it. Raises MachineError."""
    data = bytearray(where.size)
    where.read([(0, where.size // PAGE)], memoryview(data))
    return data


def keep_firmware(data: bytearray, memory: Path) -> File:
    """Write the firmware to a file in the directory ``memory``, unless it is there. Raises
    HostError."""
    path = memory / f"{hashlib.sha256(data).hexdigest()[:24]}.rom"
    if not path.exists():
        return write_file(path, iter([memoryview(data)]))
    crcs = [zlib.crc32(data[at : at + CHUNK]) for at in range(0, len(data), CHUNK)]
    return File(name=path.name, size=len(data), crcs=tuple(crcs))


async def put_firmware(hypervisor: Hypervisor, pid: int, memory: Path, file: File) -> None:
    """Copy the firmware into the memory of a QEMU that waits for incoming state. Raises
    HistoryError naming a damaged file, MachineError."""
    where = await _locate(hypervisor, pid, file.size)
    with MappedFile(memory / file.name, file) as mapped:
        where.write([(0, file.size // PAGE)], mapped.data)

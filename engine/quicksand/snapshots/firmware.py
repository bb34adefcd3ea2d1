"""The firmware of a machine, which a reboot of its guest runs.

QEMU keeps it in a block of memory beside the guest's RAM, and counts on a migration to bring it: a
QEMU that waits for a state drops its own copy (hw/core/loader.c, rom_reset). A device state without
memory brings none. So it is kept with the checkpoint, once for all checkpoints that have the same.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from pathlib import Path

from quicksand.errors import MachineError
from quicksand.qemu.qmp import Monitor
from quicksand.snapshots.guest_ram import PAGE, GuestRam, host_address
from quicksand.snapshots.pages import CHUNK, MappedFile, write_file
from quicksand.snapshots.records import File

PC = "x86_64"
"""On `virt` machines the kernel lies in the guest's RAM, and QEMU puts it there again."""

END = 1 << 32
"""Where the firmware of a PC ends."""

SIZE_MAX = 16 * 1024 * 1024

_BLOCK = re.compile(r"^\s*pc\.bios\s+\d+ [KMG]iB\s+0x[0-9a-f]+\s+0x([0-9a-f]+)", re.MULTILINE)


async def find_firmware(monitor: Monitor, pid: int, arch: str) -> GuestRam | None:
    """Where the firmware lies in QEMU's memory; None if the machine has none of its own. Raises
    MachineError."""
    if arch != PC:
        return None
    said = await monitor.execute("human-monitor-command", **{"command-line": "info ramblock"})
    found = _BLOCK.search(str(said))
    if found is None:
        raise MachineError("QEMU does not tell how large the machine's firmware is")
    return await _locate(monitor, pid, int(found[1], 16))


async def _locate(monitor: Monitor, pid: int, size: int) -> GuestRam:
    if not 0 < size <= SIZE_MAX or size % PAGE:
        raise MachineError(f"QEMU says that the machine's firmware has {size} bytes")
    return GuestRam(pid, await host_address(monitor, END - size), size)


def keep_firmware(where: GuestRam, memory: Path) -> File:
    """Have the firmware as a file in the directory ``memory``. Raises MachineError, HostError."""
    data = bytearray(where.size)
    where.read([(0, where.size // PAGE)], memoryview(data))
    path = memory / f"{hashlib.sha256(data).hexdigest()[:24]}.rom"
    if not path.exists():
        return write_file(path, iter([memoryview(data)]))
    crcs = [zlib.crc32(data[at : at + CHUNK]) for at in range(0, len(data), CHUNK)]
    return File(name=path.name, size=len(data), crcs=tuple(crcs))


async def put_firmware(monitor: Monitor, pid: int, memory: Path, file: File) -> None:
    """Put the firmware where a QEMU that waits for a state expects it. Raises HistoryError naming a
    damaged file, MachineError."""
    where = await _locate(monitor, pid, file.size)
    with MappedFile(memory / file.name, file) as mapped:
        where.write([(0, file.size // PAGE)], mapped.data)

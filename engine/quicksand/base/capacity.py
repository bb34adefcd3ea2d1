"""Free space of the host's file systems, checked before it is needed."""

from __future__ import annotations

import os
from pathlib import Path

from quicksand.base.error_text import mib_text, size_text
from quicksand.base.errors import DiskSpaceError, MemoryBudgetError

DISK_RESERVE = 64 * 1024 * 1024
"""Bytes that must be free at a start: a guest that at once finds the host full is of no use."""


def check_space(root: Path, need: int = 0) -> None:
    """Raise DiskSpaceError if ``need`` bytes would make the file system of ``root`` as good as
    full."""
    found = os.statvfs(root)
    if found.f_bavail * found.f_frsize < need + DISK_RESERVE:
        raise DiskSpaceError(f"{root} has less than {mib_text(need + DISK_RESERVE)} of free space")


OVERHEAD = 96 * 1024 * 1024
"""Bytes that QEMU needs in addition to the guest's RAM: 60 to 90 MiB under TCG, less under KVM
(measured)."""

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Return the bytes available without swapping, within the limits of this process's cgroups."""
    limits = [_host_available(), *_cgroup_available()]
    return max(0, min(limits))


def check_memory(wanted: int) -> None:
    """Raise MemoryBudgetError if a guest of ``wanted`` bytes does not fit now."""
    available = available_memory()
    if wanted + OVERHEAD > available:
        raise MemoryBudgetError(
            f"the sandbox wants {size_text(wanted)} of memory (and QEMU {size_text(OVERHEAD)}), "
            f"but this host has {size_text(available)} available",
            hint="ask for less with memory= or --memory, or stop another sandbox",
        )


def physical_memory() -> int:
    """Return the bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _host_available() -> int:
    try:
        for line in (PROC / "meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass  # macOS: take the physical memory instead
    return physical_memory()


def _cgroup_available() -> list[int]:
    """Return the bytes that each cgroup of this process has left (Linux cgroup-v2.rst)."""
    found = []
    try:
        own = os.fsdecode((PROC / "self" / "cgroup").read_bytes()).strip().rpartition("::")[2]
    except FileNotFoundError:
        return []
    group = CGROUPS / own.lstrip("/")
    while group != CGROUPS.parent:
        try:
            limit = (group / "memory.max").read_text(encoding="ascii").strip()
            if limit != "max":
                used = int((group / "memory.current").read_text(encoding="ascii"))
                found.append(int(limit) - used + _reclaimable(group))
        except (OSError, ValueError):
            pass  # no limit: the root group, or cgroup v1
        group = group.parent
    return found


def _reclaimable(group: Path) -> int:
    """Return the bytes of file cache that the kernel drops when the group needs memory."""
    for line in (group / "memory.stat").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            return int(value)
    return 0

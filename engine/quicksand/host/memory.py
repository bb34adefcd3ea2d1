"""How much memory a new sandbox may have."""

from __future__ import annotations

import os
from pathlib import Path

from quicksand.errors import MemoryBudgetError

OVERHEAD = 96 * 1024 * 1024
"""Bytes that QEMU needs beside the guest's RAM: measured 60 to 90 MiB under TCG, less under KVM."""

GIB = 1024 * 1024 * 1024

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes that can be had without swapping: the host's, or less if a control group says so."""
    limits = [_host_available(), *_cgroup_available()]
    return max(0, min(limits))


def check_memory(wanted: int) -> None:
    """Raise MemoryBudgetError when a guest of ``wanted`` bytes cannot fit now."""
    available = available_memory()
    if wanted + OVERHEAD > available:
        raise MemoryBudgetError(
            f"the sandbox wants {_show(wanted)} of memory (and QEMU {_show(OVERHEAD)}), "
            f"but this host has {_show(available)} available",
            hint="ask for less with memory= or --memory, or stop another sandbox",
        )


def _host_available() -> int:
    try:
        for line in (PROC / "meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass  # macOS: the physical memory has to do
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup_available() -> list[int]:
    """What the control groups of this process leave, v2 (kernel doc, cgroup-v2.rst)."""
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
            pass  # no limit here: the root, or cgroup v1
        group = group.parent
    return found


def _reclaimable(group: Path) -> int:
    """Bytes of a control group's use that are file cache the kernel drops when it needs memory."""
    for line in (group / "memory.stat").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            return int(value)
    return 0


def _show(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size // (1024 * 1024)} MiB"

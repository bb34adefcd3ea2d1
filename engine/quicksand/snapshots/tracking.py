"""The choice among the kernel's ways to track written memory.

There are three levels, the best first:

- "write-protect": it lists the pages written since they were protected (userfault.py), and can do
  so while the guest runs.
- "soft-dirty": it tells which pages were written since the soft-dirty bits of the process were
  cleared (Linux, Documentation/admin-guide/mm/soft-dirty.rst), but the guest must be paused for it.
- "anonymous": it only tells which pages were written since QEMU started.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from typing import Protocol

from quicksand.base.errors import MachineError
from quicksand.base.settings import TRACKING
from quicksand.snapshots import userfault
from quicksand.snapshots.guest_ram import PAGE, GuestRam, Runs
from quicksand.snapshots.proving import find_refusal

VARIABLE = TRACKING.variable
"""Environment variable: the best level to use, for tests and troubleshooting."""

LEVELS = WRITE_PROTECT, SOFT_DIRTY, ANONYMOUS = TRACKING.choices

NO_SOFT_DIRTY = "the kernel has no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)"


class Tracker(Protocol):
    """Lists the pages written since a moment that it sets. Raises MachineError."""

    def clear(self) -> None:
        """Let only later writes count."""

    def take(self) -> Runs:
        """List the written pages, and let only later writes count. If the tracker `needs_stop`,
        a write meanwhile would be lost."""

    def look(self) -> Runs:
        """List the written pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A way of tracking the memory of a machine."""

    name: str
    why: str = ""
    """The reason why no better level is used; "" for the best."""
    tracker: Tracker | None = None
    """None for ANONYMOUS."""

    @property
    def needs_stop(self) -> bool:
        """Whether the VM must be paused while written pages are taken."""
        return self.name == SOFT_DIRTY


@dataclass(frozen=True, slots=True)
class SoftDirtyPages:
    """The soft-dirty bits of guest memory. They can only be cleared for a whole process."""

    ram: GuestRam

    def clear(self) -> None:
        self.ram.clear_soft_dirty()

    def take(self) -> Runs:
        found = self.ram.soft_dirty()
        self.ram.clear_soft_dirty()
        return found

    def look(self) -> Runs:
        return self.ram.soft_dirty()


def start_tracking(ram: GuestRam) -> Level:
    """Have the kernel track writes to a QEMU's memory in the best way that works; it may do so
    already. Any process that may read that memory can call this. Raises ConfigError."""
    best = TRACKING.read()
    why = f"{VARIABLE} is {best}"
    if best == WRITE_PROTECT:
        try:
            return Level(name=WRITE_PROTECT, tracker=userfault.track(ram))
        except OSError as error:
            why = _said(error.strerror or str(error))
    return _without(why, ram if best != ANONYMOUS else None)


def find_level() -> Level:
    """The level of new machines on this host; it has no tracker. Starts a process to find out.
    Raises ConfigError."""
    best = TRACKING.read()
    why = f"{VARIABLE} is {best}"
    if best == WRITE_PROTECT:
        why = _try_write_protection()
        if not why:
            return Level(name=WRITE_PROTECT)
    ram = GuestRam(os.getpid(), 0, 0) if best != ANONYMOUS else None
    found = _without(why, ram)
    return Level(name=found.name, why=found.why)


def _without(why: str, ram: GuestRam | None) -> Level:
    """The best level other than WRITE_PROTECT; without ``ram`` also other than SOFT_DIRTY."""
    if ram is None:
        return Level(name=ANONYMOUS, why=why)
    if tracks_soft_dirty():
        return Level(name=SOFT_DIRTY, why=why, tracker=SoftDirtyPages(ram))
    return Level(name=ANONYMOUS, why=f"{why}, and {NO_SOFT_DIRTY}")


def _try_write_protection() -> str:
    """The reason why write protection is not possible; "" if it is. A filter of system calls may
    kill the process that tries it, so under a filter only another process tries."""
    if not userfault.is_filtered():
        try:
            userfault.prove()
        except OSError as error:
            return _said(error.strerror or str(error))
    refusal = find_refusal()
    return _said(refusal) if refusal else ""


def _said(why: str) -> str:
    return f"written pages cannot be tracked: {why}"


def tracks_soft_dirty() -> bool:
    """Whether this kernel has soft-dirty bits; tries it out."""
    with mmap.mmap(-1, 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        first = ctypes.c_char.from_buffer(memory)
        ram = GuestRam(os.getpid(), ctypes.addressof(first), 2 * PAGE)
        del first
        memory[0] = memory[PAGE] = 1
        try:
            # New memory counts as written.
            if ram.soft_dirty() != [(0, 2)]:
                return False
            ram.clear_soft_dirty()
            if ram.soft_dirty():
                return False
            memory[PAGE] = 2
            return ram.soft_dirty() == [(1, 1)]
        except MachineError:
            return False

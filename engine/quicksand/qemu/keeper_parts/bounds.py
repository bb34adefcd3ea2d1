"""Bounds of a QEMU on the host: the limits with which it is executed, and how much memory it may
have (memory_watch.py watches that).

A guest moves more than its own memory. Root in one can have QEMU's network (libslirp) keep a
connection to a mount's address for ever, or hold fragments and segments that never become whole. So
the process itself is bounded.
"""

import os
import resource
from collections.abc import Sequence

MIB = 1024 * 1024
PAGE = 4096

OWN = 256 * MIB
"""Bytes for QEMU itself: devices, block layer, monitors, the buffers of its network and disk. 25 to
90 MiB were measured; the guest can cause the rest."""
SCREEN = 256 * MIB
"""The same for a machine with a screen: the guest's pictures (command.py, GPU_MEMORY_MAX), and
those that the VNC servers keep of them."""
TB_SIZE = 1024 * MIB
"""TCG's buffer for translated code, if its arguments do not set one (QEMU, tcg/region.c)."""
TLB_SHARE, TLB_MAX = 8, 768 * MIB
"""The bound of TCG's tables of addresses, for each processor: this share of the guest's memory (64
bytes for each of its pages, twice as many as are in use, in three modes of the processor), and with
its largest tables so many bytes (QEMU, accel/tcg/cputlb.c, CPU_TLB_DYN_MAX_BITS)."""

STACK = 8 * MIB
"""Bytes of address space that each thread gets (the soft limit of RLIMIT_STACK: glibc)."""
THREADS = 64 + 8
"""Threads besides those of the processors: the workers of the disks (QEMU, util/thread-pool.c), and
QEMU's own."""
COROUTINES = 256 * 9 * MIB
"""Bytes of address space of coroutines' stacks, 1 MiB each, for each processor: each has a queue of
256 requests to the disk (QEMU, hw/block/virtio-blk.c), and each request up to eight parts
(block/qcow2.h, QCOW2_MAX_WORKERS). Hardly any of it is ever used."""
RESERVE = 512 * MIB
"""Bytes between the bound at which the guest is paused and the kernel's limit, or a quarter of the
bound if that is less. QEMU can grow by so much between two looks."""

FILES = 2048
"""The most descriptors: each connection and each port of the guest to the full network is one, and
QEMU has 130 of its own. (Newer QEMUs raise their soft limit to the hard one.)"""
CONNECTION = 288 * 1024
"""Bytes for a connection of the full network, with its buffers in both directions (libslirp,
TCP_SNDSPACE and TCP_RCVSPACE)."""
FULL_NETWORK = '"restrict": false'
"""A part of QEMU's arguments that only the full network has (command.py)."""


class Bound:
    """The memory that one QEMU may have."""

    def __init__(self, watched: int, kernel: int) -> None:
        self.watched = watched
        """Bytes of its own memory, in RAM or in swap, beyond which its guest is paused."""
        self.kernel = kernel
        """Bytes of private writable address space beyond which the kernel gives it no more, and it
        ends (RLIMIT_DATA, getrlimit(2)). Mapped memory that was never written counts, too, so this
        bound is much larger."""

    @property
    def mapped(self) -> int:
        """Bytes of private writable address space beyond which the guest is paused."""
        return max(self.kernel - RESERVE, self.kernel - self.kernel // 4)

    def within(self, limit: int) -> "Bound":
        """The bound of a process that has this limit of the kernel's (RLIMIT_DATA)."""
        is_lower = limit != resource.RLIM_INFINITY and limit < self.kernel
        return Bound(self.watched, limit) if is_lower else self

    def raised(self, size: int) -> "Bound":
        """The bound with ``size`` bytes more."""
        return Bound(self.watched + size, self.kernel + size)


def bound_of(argv: Sequence[str]) -> Bound | None:
    """Return the bound of a QEMU with these arguments; None if they do not tell its guest's memory.
    If an argument is given twice, the larger value counts."""
    ram = max(map(_bytes, _values(argv, "-m")), default=0)
    if not ram:
        return None
    cpus = max(map(_count, _values(argv, "-smp")), default=1)
    watched = ram + OWN + sum(_emulation(value, ram, cpus) for value in _values(argv, "-accel"))
    if any("virtio-gpu" in word for word in argv):
        watched += SCREEN
    if any(FULL_NETWORK in word for word in argv):
        watched += FILES * CONNECTION
    mapped = (THREADS + cpus) * STACK + cpus * COROUTINES
    # QEMU maps these files, and copies them into its own memory.
    files = [*_values(argv, "-kernel"), *_values(argv, "-initrd")]
    mapped += sum(2 * _size(path) for path in files)
    return Bound(watched, watched + mapped + RESERVE)


def set_limits(argv: Sequence[str]) -> None:
    """Limit this process, which is about to become a QEMU with these arguments."""
    no_core_files()
    lower(resource.RLIMIT_STACK, STACK)
    lower(resource.RLIMIT_NOFILE, FILES, hard=FILES)
    bound = bound_of(argv)
    if bound is not None:
        # Only the soft limit: it is raised for a guest that may go on, and raising a hard one needs
        # privileges.
        lower(resource.RLIMIT_DATA, bound.kernel)


def no_core_files() -> None:
    """Keep the memory of this process, and of those that it becomes or starts, out of core files:
    there may be secrets in it. With a limit of 1 no core file is written, nor piped to a program,
    which still happens with a limit of 0 (Linux, fs/coredump.c)."""
    lower(resource.RLIMIT_CORE, 1, hard=1)


def lower(which: int, soft: int, hard: int = resource.RLIM_INFINITY) -> None:
    """Set a limit of this process, within its present hard limit."""
    present = resource.getrlimit(which)[1]
    if present != resource.RLIM_INFINITY:
        hard = present if hard == resource.RLIM_INFINITY else min(hard, present)
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    try:
        resource.setrlimit(which, (soft, hard))
    except (OSError, ValueError):
        return  # a system without such a limit; no start is worth failing for it


def _values(argv: Sequence[str], option: str) -> list[str]:
    return [argv[number + 1] for number, word in enumerate(argv[:-1]) if word == option]


def _bytes(value: str) -> int:
    """Return the bytes of a value of -m, such as "512M" or "size=2G,slots=0"; 0 if it has none."""
    word = value.split(",", maxsplit=1)[0].removeprefix("size=")
    unit = word[-1:].upper()
    try:
        number = int(word.rstrip("bBkKmMgGtT"))
    except ValueError:
        return 0
    return number * {"B": 1, "K": 1024, "G": 1024 * MIB, "T": MIB * MIB}.get(unit, MIB)


def _count(value: str) -> int:
    """Return the processors of a value of -smp, such as "2" or "cpus=2,sockets=1"."""
    word = value.split(",", maxsplit=1)[0].removeprefix("cpus=")
    return max(1, int(word)) if word.isdigit() else 1


def _emulation(accel: str, ram: int, cpus: int) -> int:
    """Return the bytes that TCG itself needs; 0 for other values of -accel."""
    kind, *words = accel.split(",")
    if kind != "tcg":
        return 0
    sizes = [word.removeprefix("tb-size=") for word in words if word.startswith("tb-size=")]
    translated = int(sizes[-1]) * MIB if sizes and sizes[-1].isdigit() else TB_SIZE
    return translated + cpus * min(ram // TLB_SHARE, TLB_MAX)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0

"""Bounds of a QEMU on the host: the limits with which it is executed, and how much memory it may
have (memory_watch.py watches that).

A guest moves more than its own memory. Root in one can have QEMU's network (libslirp) keep a
connection to a mount's address for ever, or hold fragments and segments that never become whole. So
the process itself is bounded.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Sequence

from .full_disk import SpaceWatch
from .keeper_files import remove_file

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

    def within(self, limit: int) -> Bound:
        """The bound of a process that has this limit of the kernel's (RLIMIT_DATA)."""
        is_lower = limit != resource.RLIM_INFINITY and limit < self.kernel
        return Bound(self.watched, limit) if is_lower else self

    def raised(self, size: int) -> Bound:
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


RATE = 512 * MIB
"""Bytes a second by which a QEMU may grow: the next look is due when it could be at its bound. A
guest that opened connections as fast as it could made it grow by 400 MiB."""

SOONEST_S, LATEST_S = 0.2, 5.0
"""The least and the most seconds to the next look."""

ROOM = 2 * RESERVE
"""Bytes of address space that a QEMU gets beyond its present size when its guest is paused: it
grows no further, and a checkpoint or a save must not fail because of the bound."""

MORE = 256 * MIB
"""Further bytes for a guest that is resumed."""


class MemoryWatch:
    """Pauses the guest of a QEMU that grows beyond its bound. Linux only.

    Until the guest is resumed the file ``oversized`` exists in the machine's directory, for clients
    to see: whether QEMU has taken too much memory or reserved too much address space, how many
    bytes, and how many it may have.
    """

    def __init__(self, pid: int, bound: Bound | None, space: SpaceWatch, machine_dir: str) -> None:
        self.pid = pid
        self.bound = bound
        self.space = space
        self.mark = os.path.join(machine_dir, "oversized")
        self.is_holding = False
        """Whether it has paused the guest, and nobody has resumed it."""
        self.look_at: float | None = None
        """The monotonic time of the next look; None for no look."""
        if bound is not None and sys.platform.startswith("linux"):
            self.look_at = time.monotonic()
            space.on_run_state = self.hear

    @classmethod
    def of_adopted(cls, pid: int, space: SpaceWatch, machine_dir: str) -> MemoryWatch:
        """Return the watch for another keeper's QEMU, which may have been given more."""
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            bound = bound_of(os.fsdecode(file.read()).split("\0"))
        if bound is not None:
            limit = data_limit(pid) or 0
            if limit != resource.RLIM_INFINITY:
                bound = bound.raised(max(0, limit - bound.kernel))
        watch = cls(pid, bound, space, machine_dir)
        if os.path.exists(watch.mark):
            # It may have been resumed while nobody watched, and so was given nothing more.
            watch.is_holding = True
            space.send("stop")
        return watch

    def look(self) -> None:
        """Look, if that is due."""
        if self.bound is None or self.look_at is None or time.monotonic() < self.look_at:
            return
        found = memory_of(self.pid)
        limit = data_limit(self.pid)
        if found is None or limit is None:
            self.look_at = None  # it has ended
            return
        taken, mapped = found
        bound = self.bound.within(limit)
        rest = min(bound.watched - taken, bound.mapped - mapped)
        if rest < 0:
            # Clients that use it meanwhile cause further stacks and threads.
            if limit != resource.RLIM_INFINITY and limit < mapped + ROOM:
                raise_data_limit(self.pid, mapped + ROOM)
            if taken > bound.watched:
                self.hold(f"taken {taken} {bound.watched}")
            else:
                self.hold(f"reserved {mapped} {bound.mapped}")
            rest = RATE  # a QEMU that has not obeyed yet is told again
        self.look_at = time.monotonic() + min(LATEST_S, max(SOONEST_S, rest / RATE))

    def hold(self, why: str) -> None:
        """Pause the guest."""
        if not self.is_holding:
            self.is_holding = True
            try:
                with open(self.mark + ".new", "w", encoding="ascii") as file:
                    file.write(why)
                os.replace(self.mark + ".new", self.mark)
            except OSError:
                pass  # no space for the mark; the guest is paused anyway
        self.space.send("stop")

    def hear(self, runs: bool) -> None:
        """Note that the guest was paused, or resumed, by the keeper or a client."""
        if not runs:
            self.look_at = None
            return
        if self.is_holding:
            self.is_holding = False
            self.allow_more()
            remove_file(self.mark)
        self.look_at = time.monotonic() + SOONEST_S

    def allow_more(self) -> None:
        """Allow QEMU MORE bytes than it has, or may have."""
        assert self.bound is not None
        found = memory_of(self.pid)
        limit = data_limit(self.pid)
        if found is None or limit is None:
            return
        taken, mapped = found
        bound = self.bound.within(limit)
        more = max(0, taken - bound.watched, mapped - bound.mapped) + MORE
        self.bound = self.bound.raised(more)
        if limit != resource.RLIM_INFINITY:
            raise_data_limit(self.pid, limit + more)


def data_limit(pid: int) -> int | None:
    """The soft limit of a process's private writable address space; None if it has ended."""
    try:
        return resource.prlimit(pid, resource.RLIMIT_DATA)[0]
    except OSError:
        return None


def raise_data_limit(pid: int, size: int) -> None:
    """Set that limit, as far as the hard one allows; it is no error if the process has ended."""
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        size = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.prlimit(pid, resource.RLIMIT_DATA, (size, hard))
    except OSError:
        return


def memory_of(pid: int) -> tuple[int, int] | None:
    """(bytes of its own memory, in RAM or swap; bytes of its private writable address space) of a
    process (proc_pid_status(5)); None if it has ended."""
    sizes = {"RssAnon": 0, "VmSwap": 0, "VmData": 0}
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in sizes:
                    sizes[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    if not sizes["VmData"]:
        return None  # a zombie
    return sizes["RssAnon"] + sizes["VmSwap"], sizes["VmData"]

"""Guests whose QEMU has taken too much of the host's memory (bounds.py): each is paused, and
nothing is lost. A client that resumes one gives it some more."""

import os
import resource
import sys
import time

from .bounds import MIB, RESERVE, Bound, bound_of
from .full_disk import SpaceWatch
from .keeper_files import remove_file

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
    def of_adopted(cls, pid: int, space: SpaceWatch, machine_dir: str) -> "MemoryWatch":
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

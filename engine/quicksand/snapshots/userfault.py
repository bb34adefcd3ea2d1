"""Finds the written pages of a process, by write protection that the kernel itself removes at the
first write (Linux 6.7).

A userfaultfd of the process registers its memory for asynchronous write protection
(UFFD_FEATURE_WP_ASYNC; Linux, Documentation/admin-guide/mm/userfaultfd.rst). The ioctl PAGEMAP_SCAN
on /proc/PID/pagemap then lists the written pages and protects them again in one walk, page by page
under the lock of the page's table (admin-guide/mm/pagemap.rst): a page written after it was listed
is listed again by the next scan. No process needs to stop for this.

The keeper gives each QEMU a userfaultfd (qemu/keeper_parts/launch.py), which stays open in it.
Any process that may read QEMU's memory can use it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

from quicksand.base import injection
from quicksand.base.borrowing import borrow
from quicksand.base.errors import MachineError
from quicksand.qemu.keeper_parts.launch import FLAGS, USERFAULTFD
from quicksand.snapshots.guest_ram import PAGE, GuestRam, Runs, join_runs

LINK = "anon_inode:[userfaultfd]"

REGIONS = 4096
"""The most regions that one scan can report; for more, another scan is needed."""

# linux/userfaultfd.h: struct uffdio_api, struct uffdio_register.
_API, _REGISTER = 0xC018AA3F, 0xC020AA00
_API_VERSION = 0xAA
_WP_ASYNC, _WP_UNPOPULATED = 1 << 15, 1 << 13
_MODE_WP = 2

# linux/fs.h: struct pm_scan_arg, struct page_region.
_PAGEMAP_SCAN = 0xC0606610
_SCAN = struct.Struct("<12Q")
_REGION = struct.Struct("<3Q")
_PROTECT, _REQUIRE_REGISTERED = 1, 2
_WRITTEN, _PRESENT, _SWAPPED = 2, 8, 16


STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class WrittenPages:
    """Registered guest memory of a QEMU, and its written pages. Raises MachineError."""

    ram: GuestRam

    def clear(self) -> None:
        """Let only later writes count."""
        self._scan(_PROTECT | _REQUIRE_REGISTERED)

    def take(self) -> Runs:
        """List the written pages, and let only later writes count."""
        return self._written(self._scan(_PROTECT | _REQUIRE_REGISTERED))

    def look(self) -> Runs:
        """List the written pages."""
        return self._written(self._scan(0))

    def _scan(self, flags: int) -> Runs:
        """Return pages that were written, and pages of the mapped file that were read for the first
        time. The kernel could leave out the latter, but then looks at the description of every
        present page, which takes 8 ms for 1 GiB in the pause.

        Pages without any content must not match: protecting those would put a marker in each, which
        costs page tables and looks like swapped memory.
        """
        ram = self.ram
        start, end = ram.address, ram.address + ram.size
        vector = ctypes.create_string_buffer(REGIONS * _REGION.size)
        place = ctypes.addressof(vector)
        found: Runs = []
        try:
            with Path(f"/proc/{ram.pid}/pagemap").open("rb", buffering=0) as file:
                while start < end:
                    request = bytearray(_SCAN.size)
                    fields = (_SCAN.size, flags, start, end, 0, place, REGIONS, 0)
                    _SCAN.pack_into(request, 0, *fields, 0, _WRITTEN, _PRESENT | _SWAPPED, _WRITTEN)
                    count = fcntl.ioctl(file, _PAGEMAP_SCAN, request)
                    for first, last, _ in _REGION.iter_unpack(vector.raw[: count * _REGION.size]):
                        found.append(((first - ram.address) // PAGE, (last - first) // PAGE))
                        start = last
                    # Not `walk_end`: from 512 regions on it can be the end of an earlier part
                    # (Linux 6.18, fs/proc/task_mmu.c, do_pagemap_scan).
                    if count < REGIONS:
                        break
        except OSError as error:
            raise MachineError(f"the written pages of QEMU are not known: {error}") from error
        return found

    def _written(self, runs: Runs) -> Runs:
        """Return the pages of ``runs`` outside the mapped file; the others were only read."""
        return join_runs(self.ram.written_of(runs))


def track(ram: GuestRam) -> WrittenPages:
    """Have the kernel track writes to a QEMU's guest memory, if it does not do so yet; earlier
    writes count as well. Raises OSError with a reason."""
    descriptor = fetch(ram.pid)
    try:
        # A filter that allows the keeper to make one may kill this process for it.
        if not is_filtered():
            prove()
        _register(descriptor, ram)
    finally:
        os.close(descriptor)  # QEMU keeps its own
    return WrittenPages(ram)


def fetch(pid: int) -> int:
    """A descriptor for the userfaultfd of a QEMU, which is made if there is none. Raises OSError
    with a reason."""
    number = _find(pid)
    if number is None:
        number = _make_in(pid)
    pidfd = os.pidfd_open(pid)
    try:
        return borrow(pidfd, number)
    finally:
        os.close(pidfd)


def prove() -> None:
    """Prove with memory of this process that the kernel reports exactly the written pages. Raises
    OSError with a reason."""
    if not injection.is_possible():
        raise OSError(errno.ENOSYS, "it is for Linux on x86_64")
    descriptor = _syscall(USERFAULTFD, FLAGS)
    try:
        with mmap.mmap(-1, 8 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            first = ctypes.c_char.from_buffer(memory)
            ram = GuestRam(os.getpid(), ctypes.addressof(first), 8 * PAGE)
            del first
            memory[0] = memory[PAGE] = memory[5 * PAGE] = 1
            _register(descriptor, ram)
            written = WrittenPages(ram)
            found = [written.take(), written.look()]
            memory[PAGE] = memory[7 * PAGE] = 2
            found += [written.look(), written.take(), written.take()]
    except MachineError as error:
        raise OSError(errno.ENOSYS, str(error)) from error
    finally:
        os.close(descriptor)
    later = [(1, 1), (7, 1)]
    if found != [[(0, 2), (5, 1)], [], later, later, []]:
        raise OSError(errno.ENOSYS, "the kernel reports other pages than those written")


def is_filtered() -> bool:
    """Whether this process is under a filter of system calls (seccomp(2)), which may kill it."""
    try:
        words = STATUS.read_bytes().split()
    except OSError:
        return False
    return b"Seccomp:" in words and words[words.index(b"Seccomp:") + 1] != b"0"


def _register(descriptor: int, ram: GuestRam) -> None:
    """Register memory for asynchronous write protection; it is no error if it is already."""
    request = bytearray(struct.pack("<3Q", _API_VERSION, _WP_ASYNC | _WP_UNPOPULATED, 0))
    # The kernel reports this once for each descriptor, and refuses later.
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, _API, request)
    request = bytearray(struct.pack("<4Q", ram.address, ram.size, _MODE_WP, 0))
    try:
        fcntl.ioctl(descriptor, _REGISTER, request)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise OSError(error.errno, "it takes Linux 6.7") from error
        raise


def _find(pid: int) -> int | None:
    """The number of the process's userfaultfd."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if str(path.readlink()) == LINK:
                return int(path.name)
    return None


def _make_in(pid: int) -> int:
    """Let a running QEMU make a userfaultfd, if it was started without one (by an older version,
    say). Raises OSError."""
    if not injection.is_possible():
        raise OSError(errno.ENOSYS, "it is for Linux on x86_64")
    if is_filtered():
        why = "at its start a filter of system calls may refuse that, or ptrace"
        raise OSError(errno.EPERM, f"QEMU has no userfaultfd ({why})")
    results: list[int | OSError] = []

    def work() -> None:
        try:
            results.append(injection.call_in_running(pid, USERFAULTFD, FLAGS))
        except OSError as error:
            results.append(error)

    thread = threading.Thread(target=work, name="quicksand-userfaultfd")
    thread.start()
    thread.join()
    (result,) = results
    if isinstance(result, OSError):
        raise OSError(result.errno, f"QEMU has no userfaultfd, and ptrace: {result.strerror}")
    if result < 0:
        raise OSError(-result, f"userfaultfd: {os.strerror(-result)}")
    return result


def _syscall(number: int, *arguments: int) -> int:
    result = int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"userfaultfd: {os.strerror(code)}")
    return result

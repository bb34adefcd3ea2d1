"""Reading and writing a guest's memory from outside of QEMU. Linux only.

QEMU maps a memory image privately (`memory-backend-file`, share=off): a page that the guest has
written is anonymous memory of QEMU, every other page is still the file's. /proc/PID/pagemap tells
them apart (Linux, Documentation/admin-guide/mm/pagemap.rst), and process_vm_readv(2) and
process_vm_writev(2) copy pages without stopping QEMU.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import heapq
import itertools
import mmap
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quicksand.base.errors import MachineError
from quicksand.base.hypervisor import Hypervisor

PAGE = mmap.PAGESIZE

ENTRY = 8
"""Bytes of a pagemap entry."""

PART = 128 * 1024
"""Pages of which the page map is read at once: 1 MiB of it."""

NEAR = 256
"""The most unwanted pages whose entries are read, too: less work than another call."""

IOV_MAX = 1024
"""Pieces that one call of process_vm_readv(2) accepts (Linux, UIO_MAXIOV)."""

CALL_MAX = 256 * 1024 * 1024
"""The most bytes that one call copies: the thread can be interrupted between two calls."""

RAM_START = {"x86_64": 0, "aarch64": 0x40000000}
"""Guest address of the memory's first byte (QEMU, hw/i386/pc.c and hw/arm/virt.c)."""

_WRITTEN = re.compile(rb"[\x40-\x5f\x80-\x9f\xc0-\xdf]+")
"""Matches the top bytes of pagemap entries of written pages: present or swapped (bits 63, 62) and
not of a file (bit 61)."""

_IS_WRITTEN = bytes(bool(byte & 0xC0) and not byte & 0x20 for byte in range(256))
"""The same test as a table for `bytes.translate`: 1 for the top bytes of written pages."""

_IS_SOFT_DIRTY = bytes(byte >> 7 for byte in range(256))
"""A table for the second-highest bytes: 1 if the soft-dirty bit (55) is set."""

Runs = list[tuple[int, int]]
"""Runs of consecutive pages: (first page, number of pages), ascending, never adjacent."""


def _pieces(places: Iterable[tuple[int, int]]) -> bytes:
    """An array of struct iovec, for addresses and numbers of pages."""
    fields = [field for address, pages in places for field in (address, pages * PAGE)]
    return struct.pack(f"{len(fields)}N", *fields)


def count_pages(runs: Iterable[tuple[int, int]]) -> int:
    return sum(pages for _, pages in runs)


def join_runs(runs: Iterable[tuple[int, int]]) -> Runs:
    """Return the same pages in as few runs as possible; ``runs`` are ascending."""
    found: Runs = []
    for first, count in runs:
        if found and sum(found[-1]) == first:
            found[-1] = (found[-1][0], found[-1][1] + count)
        else:
            found.append((first, count))
    return found


def unite_runs(*sets: Runs) -> Runs:
    """The pages that are in any of ``sets``."""
    found: Runs = []
    for first, count in heapq.merge(*sets):
        if found and sum(found[-1]) >= first:
            start = found[-1][0]
            found[-1] = (start, max(sum(found[-1]), first + count) - start)
        else:
            found.append((first, count))
    return found


def without_runs(runs: Runs, other: Runs) -> Runs:
    """The pages of ``runs`` that are not in ``other``."""
    found: Runs = []
    rest = iter(other)
    first, count = next(rest, (0, 0))
    for start, size in runs:
        at, end = start, start + size
        while count and at < end:
            if first + count <= at:
                first, count = next(rest, (0, 0))
            elif first >= end:
                break
            else:
                if first > at:
                    found.append((at, first - at))
                at = first + count
        if at < end:
            found.append((at, end - at))
    return found


def split_runs(runs: Runs, pages: Callable[[], int]) -> Iterator[Runs]:
    """Split ``runs`` into parts of as many pages as ``pages`` returns at the beginning of each; the
    last one may have fewer."""
    part: Runs = []
    room = pages()
    for first, count in runs:
        done = 0
        while done < count:
            taken = min(count - done, room)
            part.append((first + done, taken))
            done, room = done + taken, room - taken
            if not room:
                yield part
                part, room = [], pages()
    if part:
        yield part


@dataclass(frozen=True, slots=True)
class GuestRam:
    """The place of the guest's memory in QEMU's address space."""

    pid: int
    address: int
    size: int
    """Bytes, a multiple of PAGE."""

    @classmethod
    def find(cls, pid: int, image: Path, size: int) -> GuestRam:
        """Find where QEMU maps the file ``image`` of ``size`` bytes, in /proc/PID/maps. Raises
        MachineError if QEMU is gone or does not map it as one piece."""
        try:
            wanted = image.stat()
            lines = Path(f"/proc/{pid}/maps").read_bytes().decode("utf-8", "replace")
        except OSError as error:
            raise MachineError(f"the memory of QEMU cannot be found: {error}") from error
        device = f"{os.major(wanted.st_dev):02x}:{os.minor(wanted.st_dev):02x}"
        start = end = None
        # The kernel escapes only the line feed in names; `splitlines` would split at others too.
        for line in lines.split("\n")[:-1]:
            addresses, _, offset, found, inode, *name = line.split(maxsplit=5)
            if int(inode) != wanted.st_ino:
                continue
            # Btrfs reports one device here and another one in stat(2).
            if found != device and name != [os.path.realpath(image)]:
                continue
            first, last = (int(number, 16) for number in addresses.split("-"))
            if start is None and int(offset, 16) == 0:
                start = first
            elif first != end:
                break
            end = last
        if start is None or end is None or end - start != size:
            raise MachineError(f"QEMU does not map {image} as the guest's memory")
        return cls(pid, start, size)

    @classmethod
    async def locate(
        cls, hypervisor: Hypervisor, pid: int, image: Path | None, size: int, arch: str
    ) -> GuestRam:
        """Find the memory of a machine that maps ``image``, or None after a cold start, when its
        memory is anonymous. Raises MachineError."""
        if image is not None:
            return await asyncio.to_thread(cls.find, pid, image, size)
        return cls(pid, await hypervisor.host_address(RAM_START[arch]), size)

    def written(self) -> Runs:
        """Pages written since QEMU started. Raises MachineError."""
        return join_runs(self.written_of(self._parts()))

    def written_of(self, runs: Runs) -> Runs:
        """Return the pages of ``runs`` written since QEMU started. Raises MachineError."""
        spans, wanted = _spans(runs)
        found: Runs = []
        for (first, entries), mask in zip(self._pagemap(spans), wanted, strict=True):
            tops = entries[7::8]
            if mask is not None:
                # An entry of zeros does not belong to a written page.
                tops = _and(tops, mask)
            found += [(first + m.start(), m.end() - m.start()) for m in _WRITTEN.finditer(tops)]
        return found

    def soft_dirty(self) -> Runs:
        """Pages written since `clear_soft_dirty`; meaningless in a kernel without
        CONFIG_MEM_SOFT_DIRTY. Raises MachineError."""
        found: Runs = []
        for first, entries in self._pagemap(self._parts()):
            written = entries[7::8].translate(_IS_WRITTEN)
            both = _and(written, entries[6::8].translate(_IS_SOFT_DIRTY))
            found += [(first + m.start(), len(m[0])) for m in re.finditer(rb"\x01+", both)]
        return join_runs(found)

    def clear_soft_dirty(self) -> None:
        """Clear all soft-dirty bits of QEMU (/proc/PID/clear_refs, proc(5)). Raises
        MachineError."""
        try:
            Path(f"/proc/{self.pid}/clear_refs").write_text("4", encoding="ascii")
        except OSError as error:
            raise MachineError(f"soft-dirty bits cannot be cleared: {error}") from error

    def _parts(self) -> Runs:
        """All pages, in parts whose page maps are small."""
        pages = self.size // PAGE
        return [(first, min(PART, pages - first)) for first in range(0, pages, PART)]

    def _pagemap(self, runs: Runs) -> Iterator[tuple[int, bytes]]:
        """Yield the first page and the page map's entries of each of ``runs``."""
        start = self.address // PAGE
        try:
            with Path(f"/proc/{self.pid}/pagemap").open("rb", buffering=0) as file:
                for first, count in runs:
                    data = os.pread(file.fileno(), count * ENTRY, (start + first) * ENTRY)
                    if len(data) != count * ENTRY:
                        raise MachineError("QEMU ended while its memory was looked at")
                    yield first, data
        except OSError as error:
            raise MachineError(f"the page map of QEMU cannot be read: {error}") from error

    def read(self, runs: Sequence[tuple[int, int]], into: memoryview) -> None:
        """Copy the pages of ``runs``, in order, to ``into``. Raises MachineError."""
        self._check_size(runs, into)
        self._move("process_vm_readv", runs, into, in_order(runs))

    def read_in_place(self, runs: Runs, into: memoryview, start: int) -> None:
        """Copy the pages of ``runs`` to ``into``, the place of the pages from ``start`` on. Raises
        MachineError."""
        self._move("process_vm_readv", runs, into, [first - start for first, _ in runs])

    def read_to(
        self, runs: Sequence[tuple[int, int]], into: memoryview, places: Sequence[int]
    ) -> None:
        """Copy the pages of ``runs`` to ``into``, each run to its page in ``places``. Raises
        MachineError."""
        _check_places(runs, into, places)
        self._move("process_vm_readv", runs, into, places)

    def write(self, runs: Sequence[tuple[int, int]], data: memoryview) -> None:
        """Copy ``data`` to the pages of ``runs``. The VM must be paused. Raises MachineError."""
        self._check_size(runs, data)
        self._move("process_vm_writev", runs, data, in_order(runs))

    def write_from(
        self, runs: Sequence[tuple[int, int]], data: memoryview, places: Sequence[int]
    ) -> None:
        """Copy pages of ``data`` to the pages of ``runs``, each run from its page in ``places``.
        The VM must be paused. Raises MachineError."""
        _check_places(runs, data, places)
        self._move("process_vm_writev", runs, data, places)

    def _check_size(self, runs: Sequence[tuple[int, int]], buffer: memoryview) -> None:
        if count_pages(runs) * PAGE != buffer.nbytes:
            raise ValueError("the buffer does not fit the pages")

    def _move(
        self,
        function: str,
        runs: Sequence[tuple[int, int]],
        buffer: memoryview,
        places: Sequence[int],
    ) -> None:
        """``places``: for each run, the page of ``buffer`` that belongs to its first page."""
        call = _from_libc(function)
        here = ctypes.addressof(ctypes.c_char.from_buffer(buffer)) if buffer.nbytes else 0
        for batch in _batches(runs, places):
            length = sum(pages for _, pages, _ in batch) * PAGE
            local = _pieces((here + place * PAGE, pages) for _, pages, place in batch)
            remote = _pieces((self.address + first * PAGE, pages) for first, pages, _ in batch)
            moved = call(self.pid, local, len(batch), remote, len(batch), 0)
            if moved != length:
                reason = os.strerror(ctypes.get_errno()) if moved < 0 else "a part is missing"
                raise MachineError(f"the guest's memory cannot be copied: {reason}")


def _check_places(
    runs: Sequence[tuple[int, int]], buffer: memoryview, places: Sequence[int]
) -> None:
    end = buffer.nbytes // PAGE
    for (_, count), place in zip(runs, places, strict=True):
        if place < 0 or place + count > end:
            raise ValueError("a place lies outside of the buffer")


def in_order(runs: Iterable[tuple[int, int]]) -> list[int]:
    """The position of each of ``runs``, in pages, if they follow each other without gaps."""
    return [0, *itertools.accumulate(count for _, count in runs)][:-1]


@functools.cache
def _from_libc(function: str) -> Any:
    """The function of the C library. Opening the library takes longer than copying some pages."""
    call = getattr(ctypes.CDLL(None, use_errno=True), function)
    call.restype = ctypes.c_ssize_t
    return call


def _batches(
    runs: Iterable[tuple[int, int]], places: Iterable[int]
) -> Iterable[list[tuple[int, int, int]]]:
    """Split ``runs`` with their ``places`` into portions that one system call can copy: (first
    page, how many, place)."""
    batch: list[tuple[int, int, int]] = []
    room = CALL_MAX // PAGE
    for (first, pages), place in zip(runs, places, strict=True):
        done = 0
        while done < pages:
            part = min(pages - done, room)
            batch.append((first + done, part, place + done))
            done, room = done + part, room - part
            if not room or len(batch) == IOV_MAX:
                yield batch
                batch, room = [], CALL_MAX // PAGE
    if batch:
        yield batch


def _spans(runs: Runs) -> tuple[Runs, list[bytes | None]]:
    """Join runs that lie close together, so that the page map is read in few calls. Returns the
    spans, and for each of them 0xFF for each page of ``runs`` and 0 for others; None if all are."""
    spans: Runs = []
    masks: list[bytes | None] = []
    for near in _near(runs):
        first, end = near[0][0], sum(near[-1])
        spans.append((first, end - first))
        if len(near) == 1:
            masks.append(None)
            continue
        mask = bytearray(end - first)
        for start, count in near:
            mask[start - first : start - first + count] = b"\xff" * count
        masks.append(bytes(mask))
    return spans, masks


def _near(runs: Runs) -> Iterator[Runs]:
    """Yield groups of runs with at most NEAR pages between two, and at most PART pages in all
    unless one run is longer."""
    group: Runs = []
    for first, count in runs:
        if group and (first > sum(group[-1]) + NEAR or first + count > group[0][0] + PART):
            yield group
            group = []
        group.append((first, count))
    if group:
        yield group


def _and(a: bytes, b: bytes) -> bytes:
    both = int.from_bytes(a, "little") & int.from_bytes(b, "little")
    return both.to_bytes(len(a), "little")

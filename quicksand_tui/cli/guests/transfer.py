"""Copies files of this host into a guest; has the common part of both directions of `cp`."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import stat
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path

from quicksand.base.capacity import DISK_RESERVE
from quicksand.base.errors import AgentRefusedError, DiskSpaceError, QuicksandError
from quicksand.guest.agent.extents import FILE_MAX, Extent
from quicksand.guest.guest_files import GuestFile, GuestFiles

from quicksand_tui.cli.guests.executing import READ_SIZE, FdReader
from quicksand_tui.cli.output import complain, complain_of, show_size
from quicksand_tui.cli.progress_display import Standing

COMPLAINTS_MAX = 100
"""The most files that are reported as not copied; a guest can have a million."""

CONTENTS = "/."
"""The end of a source that means the contents of a directory, not the directory itself."""


class TransferError(QuicksandError):
    """Raised when something cannot be copied; the message names it."""


class Tally:
    """Counts the copied files and the failures."""

    def __init__(self) -> None:
        self.seen = 0
        """Files that were looked at before the copy began."""
        self.files = 0
        self.bytes = 0
        self.failed = 0

    def look(self) -> Standing:
        """Returns the progress. The total is not known."""
        if self.seen and not (self.bytes or self.files):
            return Standing(text=f"looking at what is there: {self.seen} files")
        text = f"copied {self.files} files, {show_size(self.bytes)}"
        return Standing(text=text, done=self.bytes)

    def fail(self, path: str, reason: object) -> None:
        """Reports a file that was left out, unless there were too many; counts it in any case."""
        self.failed += 1
        if self.failed <= COMPLAINTS_MAX:
            complain_of(path, reason)

    def tell_rest(self) -> None:
        """Reports the number of further files that were left out."""
        if self.failed > COMPLAINTS_MAX:
            complain(f"{self.failed - COMPLAINTS_MAX} more could not be copied")

    async def count(self, chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """Yields ``chunks`` and counts their bytes."""
        async for chunk in chunks:
            self.bytes += len(chunk)
            yield chunk


def split_contents(path: str) -> tuple[str, bool]:
    """Returns a source without `CONTENTS` at its end, and whether it had that."""
    if path in (".", "/"):
        return path, True
    if path.endswith(CONTENTS):
        return path[: -len(CONTENTS)] or "/", True
    return path.rstrip("/") or "/", False


DEPTH_MAX = 128
"""The most directories within one another; a descriptor is open for each during the copy."""

ENTRIES_MAX = 100_000
"""The most files that are looked at before a copy; of a larger tree, only the first ones count."""

BLOCK = 4096
"""The least bytes that a file takes on a disk."""

SMALL = 1024 * 1024
"""Bytes that are copied unchecked, however full the disk is."""


class NotEnoughSpaceError(DiskSpaceError):
    """Raised when the copy needs more than the disk has to spare. Nothing has been copied."""


class Survey:
    """Looks through a tree of the guest, and keeps the listings for the copy."""

    def __init__(self, files: GuestFiles, tally: Tally) -> None:
        self._files = files
        self._tally = tally
        self._remembered: dict[str, list[GuestFile]] = {}

    async def measure(self, source: str, info: GuestFile) -> int:
        """Returns the bytes that ``source`` will probably take here, without holes."""
        if not info.is_dir:
            return size_here(info)
        total = 0
        counted: set[str] = set()
        waiting = [(source, 0)]
        while waiting and self._tally.seen < ENTRIES_MAX:
            directory, depth = waiting.pop()
            try:
                found = await self._files.list(directory)
            except AgentRefusedError:
                continue  # the copy will report it
            self._remembered[directory] = found
            self._tally.seen += len(found)
            for entry in found:
                if entry.identity and entry.identity in counted:
                    continue  # another name of the same file
                counted.add(entry.identity)
                total += size_here(entry)
                if entry.is_dir and depth < DEPTH_MAX:
                    waiting.append((child(directory, entry.name), depth + 1))
        return total

    async def list(self, path: str) -> list[GuestFile]:
        """Lists a directory; if it was looked through before, in its state of that time."""
        known = self._remembered.pop(path, None)
        return known if known is not None else await self._files.list(path)


def child(directory: str, name: str) -> str:
    """Returns the path of an entry of a directory of the guest."""
    return f"{directory.rstrip('/')}/{name}"


def size_here(info: GuestFile) -> int:
    """Returns the bytes that a file of the guest will probably take here, without holes."""
    if info.type != "file":
        return BLOCK
    return max(0, min(info.size, info.allocated)) + BLOCK


def spare(descriptor: int) -> int:
    """Returns the bytes that the disk of an open file or directory has to spare: the free ones,
    less a reserve."""
    found = os.fstatvfs(descriptor)
    return found.f_bavail * found.f_frsize - DISK_RESERVE


def require_space(target: str, need: int) -> None:
    """Raises NotEnoughSpaceError if ``need`` bytes would nearly fill the disk of ``target``."""
    place = Path(os.path.abspath(target))  # noqa: PTH100 - what a link there leads to has the space
    while not place.is_dir() and place != place.parent:
        place = place.parent
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        left = spare(descriptor)
    finally:
        os.close(descriptor)
    if need > max(left, SMALL):
        raise NotEnoughSpaceError(
            f"{show_size(need)} are to be copied, and {place} has {show_size(max(0, left))} to "
            f"spare ({show_size(DISK_RESERVE)} are kept free)",
            hint="free some space there, or say --yes to copy until the disk is full",
        )


STDIN = 0
SECTOR = 512
"""The unit in bytes by which stat(2) counts the size of a file on disk."""

OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags that follow no symlink, and do not wait for the other end of a pipe."""


async def from_stdin(files: GuestFiles, target: str, tally: Tally) -> None:
    """Writes stdin to one file of the guest. Raises OSError, QuicksandError."""
    await files.write(target, tally.count(FdReader(STDIN)))


async def send(files: GuestFiles, source: str, target: str, tally: Tally, *, follow: bool) -> None:
    """Copies ``source`` of this host to ``target`` in the guest. Failures are handled as in
    `incoming.fetch`."""
    source, contents = split_contents(source)
    try:
        found = Path(source).stat() if follow or contents else Path(source).lstat()
    except OSError as error:
        raise TransferError(f"{source}: {error.strerror}") from error
    name = Path(source).name
    if name in ("", ".."):
        name = Path(source).resolve().name
    if follow:
        source = os.path.realpath(source)
    there = await _stat(files, target)
    sender = _Sender(files, tally)
    if contents:
        if not stat.S_ISDIR(found.st_mode):
            raise TransferError(f"{source} is not a directory")
        if there is None:
            await sender.take(source, target, found)
        else:
            await sender.fill(source, target)
        return
    if there is not None and there.is_dir:
        target = f"{target.rstrip('/')}/{name}"
    elif target.endswith("/"):
        raise TransferError(f"{target} is not a directory of the sandbox")
    await sender.take(source, target, found)


async def _stat(files: GuestFiles, path: str) -> GuestFile | None:
    try:
        return await files.stat(path)
    except AgentRefusedError as error:
        if error.code != "not_found":
            raise
        return None


class _Sender:
    def __init__(self, files: GuestFiles, tally: Tally) -> None:
        self._files = files
        self._tally = tally
        self._copied: dict[tuple[int, int], str] = {}
        """The place in the guest of each file with several names here, by device and inode."""

    async def fill(self, source: str, target: str) -> None:
        """Copies all entries of the directory ``source`` into the guest's ``target``. Failures are
        counted."""
        try:
            entries = sorted(os.scandir(source), key=lambda entry: entry.name)
        except OSError as error:
            raise TransferError(f"{source}: {error.strerror}") from error
        for entry in entries:
            path = f"{target.rstrip('/')}/{entry.name}"
            try:
                await self.take(entry.path, path, entry.stat(follow_symlinks=False))
            except (TransferError, AgentRefusedError) as error:
                self._tally.fail(entry.path, error)
            except OSError as error:
                self._tally.fail(entry.path, error.strerror or error)

    async def take(self, source: str, target: str, found: os.stat_result) -> None:
        """Copies one file, symlink or directory. Raises TransferError, AgentRefusedError."""
        if stat.S_ISDIR(found.st_mode):
            await self._directory(source, target, found)
            return
        if not (stat.S_ISLNK(found.st_mode) or stat.S_ISREG(found.st_mode)):
            raise TransferError(f"{source} is a pipe, socket or device, left out")
        if not await self._link(target, found):
            if stat.S_ISLNK(found.st_mode):
                await self._symlink(source, target, found)
            else:
                await self._file(source, target, found)
            if found.st_nlink > 1:
                self._copied[found.st_dev, found.st_ino] = target
        self._tally.files += 1

    async def _directory(self, source: str, target: str, found: os.stat_result) -> None:
        """Copies a directory. An existing one keeps its mode and time."""
        mode = stat.S_IMODE(found.st_mode)
        try:
            await self._files.mkdir(target, mode=mode)
            is_new = True
        except AgentRefusedError as error:
            if error.code != "exists":
                raise
            await self._files.mkdir(target, mode=mode, exist_ok=True)
            is_new = False
        await self.fill(source, target)
        if is_new:
            # Last: each file that is made in it changes its time.
            await self._files.set_mtime(target, found.st_mtime_ns)

    async def _link(self, target: str, found: os.stat_result) -> bool:
        """Makes ``target`` a hard link to the copy of another name of the file; returns whether
        that was possible."""
        existing = self._copied.get((found.st_dev, found.st_ino))
        if existing is None:
            return False
        try:
            # A file may have been written through a symlink that was there.
            await self._files.link(target, existing, follow=stat.S_ISREG(found.st_mode))
        except AgentRefusedError:
            return False  # another file system, an older agent: it is copied again
        return True

    async def _file(self, source: str, target: str, found: os.stat_result) -> None:
        try:
            descriptor = os.open(source, OPEN)
        except OSError as error:
            raise TransferError(f"{source}: {error.strerror}") from error
        with io.FileIO(descriptor):
            await self._files.write_extents(
                target,
                self._counted(_read(descriptor, source)),
                mode=stat.S_IMODE(found.st_mode),
                mtime_ns=found.st_mtime_ns,
            )

    async def _counted(self, found: AsyncIterable[Extent]) -> AsyncIterator[Extent]:
        async for extent in found:
            self._tally.bytes += len(extent.data)
            yield extent

    async def _symlink(self, source: str, target: str, found: os.stat_result) -> None:
        leads_to = os.readlink(source)  # noqa: PTH115 - a Path would drop slashes and dots
        try:
            await self._files.symlink(target, leads_to, mtime_ns=found.st_mtime_ns)
        except AgentRefusedError as error:
            if error.code != "exists" or (await self._files.stat(target, follow=False)).is_dir:
                raise
            await self._files.remove(target)
            await self._files.symlink(target, leads_to, mtime_ns=found.st_mtime_ns)


async def _read(descriptor: int, source: str) -> AsyncIterator[Extent]:
    """Yields the parts of a file that are not holes; the last one marks its end. Raises
    TransferError."""
    at, data_end = 0, 0
    try:
        found = os.fstat(descriptor)
        if found.st_blocks * SECTOR >= found.st_size:
            data_end = FILE_MAX  # perhaps a file that the kernel makes up, without a size
        while True:
            if at >= data_end:
                at, data_end = await asyncio.to_thread(_find_data, descriptor, at)
            chunk = await asyncio.to_thread(os.pread, descriptor, min(READ_SIZE, data_end - at), at)
            if not chunk:
                break
            yield Extent(at, chunk)
            at += len(chunk)
    except OSError as error:
        raise TransferError(f"{source}: {error.strerror}") from error
    yield Extent(at, b"")


def _find_data(descriptor: int, at: int) -> tuple[int, int]:
    """Returns the beginning and the end of the next data: the file's end if only a hole is left."""
    # First, so that data appended meanwhile are not taken for a hole.
    size = os.fstat(descriptor).st_size
    try:
        start = os.lseek(descriptor, at, os.SEEK_DATA)
        return start, max(os.lseek(descriptor, start, os.SEEK_HOLE), start + 1)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return max(at, size), FILE_MAX
        return at, FILE_MAX  # this file system cannot tell

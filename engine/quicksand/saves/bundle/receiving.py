"""Members of a bundle on their way to the disk: checked while they are written."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path

from quicksand.errors import DiskSpaceError
from quicksand.host.files import map_os_errors
from quicksand.host.sharing import write_at
from quicksand.planning import DISK_RESERVE
from quicksand.saves.bundle.manifest import Member
from quicksand.saves.bundle.tar import Header, TarReader
from quicksand.snapshots.pages import CHUNK, seal
from quicksand.snapshots.records import File
from quicksand.snapshots.verified import Verified

HOLE = 64 * 1024
"""So many zeros become a hole in the file."""

_ZEROS = bytes(HOLE)

Progress = Callable[[str, int, int], None]
"""Called with the stage, bytes done and the total. What it raises ends the work cleanly."""


def stopping(progress: Progress | None, stop: Callable[[], None]) -> Progress:
    """Progress that calls ``stop`` before it tells of itself."""

    def say(stage: str, done: int, total: int) -> None:
        stop()
        if progress is not None:
            progress(stage, done, total)

    return say


class Receiver:
    """Takes one member after the other, as the manifest lists them."""

    def __init__(self, reader: TarReader, total: int, progress: Progress | None) -> None:
        """``total``: bytes of all members."""
        self._reader = reader
        self._total = total
        self._progress = progress or (lambda stage, done, total: None)
        self._done = 0
        self._verified = Verified.of_user()
        self._whole: list[Path] = []

    def note_verified(self) -> None:
        """What was written is where it stays: files whose checksums were known need not be read
        again before they are used."""
        for mark in self._whole:
            self._verified.add(mark)

    def next(self, member: Member) -> None:
        """Go to the member that comes next, which is to be ``member``. Raises ValueError."""
        header = self._reader.next()
        if header != Header(member.name, member.size):
            found = "its end" if header is None else f"{header.name!r} of {header.size} bytes"
            raise ValueError(f"{member.name} of {member.size} bytes is expected, not {found}")

    def end(self) -> None:
        """The last one has been taken. Raises ValueError if there is more."""
        header = self._reader.next()
        if header is not None:
            raise ValueError(f"it has {header.name!r}, which its manifest does not list")

    def take_small(self, member: Member, limit: int) -> bytes:
        """The content of a member that has ``limit`` bytes at most. Raises ValueError."""
        self.next(member)
        data = self._reader.small_content(limit, member.name)
        self._advance(len(data))
        check_digest(member, hashlib.sha256(data).hexdigest())
        return data

    def skip(self, member: Member) -> None:
        """Look at a member that is not needed. Raises ValueError if it is damaged."""
        self.next(member)
        digest = hashlib.sha256()
        for data in self._reader.content():
            digest.update(data)
            self._advance(len(data))
        check_digest(member, digest.hexdigest())

    def write(self, member: Member, path: Path, expected: File | None = None) -> None:
        """Have a member as the new file ``path``, on the disk; zeros become holes. ``expected``: a
        record that knows its checksums.

        Raises ValueError if it is damaged, DiskSpaceError, PathError.
        """
        self.next(member)
        self.write_content(path, member=member, expected=expected)

    def write_content(
        self, path: Path, *, member: Member | None = None, expected: File | None = None
    ) -> str:
        """As `write`, of the member that has been gone to already. Returns its digest."""
        with map_os_errors(path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
        try:
            digest, crcs = hashlib.sha256(), Crcs()
            at = 0
            for data in self._reader.content():
                digest.update(data)
                if expected is not None:
                    crcs.update(data)
                with map_os_errors(path):
                    _write_sparse(descriptor, data, at)
                at += len(data)
                self._advance(len(data))
            if member is not None:
                check_digest(member, digest.hexdigest())
            if expected is not None:
                crcs.check(expected, at)
            with map_os_errors(path):
                os.ftruncate(descriptor, at)
                seal(descriptor)
            if expected is not None:
                self._whole.append(self._verified.mark(descriptor, expected))
            return digest.hexdigest()
        finally:
            os.close(descriptor)

    def _advance(self, count: int) -> None:
        self._done += count
        self._progress("reading", self._done, max(self._total, self._done))


class Crcs:
    """The CRC-32 of each chunk of a file that comes in pieces."""

    def __init__(self) -> None:
        self._found: list[int] = []
        self._crc = self._filled = 0

    def update(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            part = view[: CHUNK - self._filled]
            self._crc, self._filled = zlib.crc32(part, self._crc), self._filled + len(part)
            if self._filled == CHUNK:
                self._found.append(self._crc)
                self._crc = self._filled = 0
            view = view[len(part) :]

    def check(self, expected: File, size: int) -> None:
        """Raise ValueError unless it was that file."""
        found = [*self._found, self._crc] if self._filled else self._found
        if size != expected.size or tuple(found) != expected.crcs:
            raise ValueError(f"{expected.name} is not the file that its record tells of")


def check_digest(member: Member, found: str) -> None:
    """Raise ValueError unless the content has the digest that the manifest tells."""
    if found != member.sha256:
        raise ValueError(
            f"{member.name} is damaged: its digest is {found[:12]}…, not {member.sha256[:12]}…"
        )


def _write_sparse(descriptor: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    start: int | None = None
    for offset in range(0, len(data), HOLE):
        if view[offset : offset + HOLE] == _ZEROS[: len(data) - offset]:
            if start is not None:
                write_at(descriptor, view[start:offset], at + start)
            start = None
        elif start is None:
            start = offset
    if start is not None:
        write_at(descriptor, view[start:], at + start)


def require_space(root: Path, need: int) -> None:
    """Raise DiskSpaceError unless ``need`` bytes fit where ``root`` is, or will be."""
    place = next(p for p in (root, *root.parents) if p.exists())
    with map_os_errors(place):
        found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    if free < need + DISK_RESERVE:
        raise DiskSpaceError(
            f"the bundle says that it holds {need >> 20} MiB, and {place} has {free >> 20} MiB of "
            "free space",
            hint="free some disk space, if the bundle is to be believed",
        )

"""Writes the members of a bundle to disk and checks them meanwhile.

Whatever could reach this host is refused: in its configuration and in the headers of its disks.
Only our own code reads them, before any QEMU program sees a file.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from quicksand_disks import (
    DiskFileError,
    ForeignDisk,
    MalformedError,
    Qcow2Header,
    check_backing_name,
    check_qcow2,
    check_snapshots,
)

from quicksand.base.arch import Architecture
from quicksand.base.capacity import DISK_RESERVE
from quicksand.base.error_text import mib_text
from quicksand.base.errors import BundleError, DiskSpaceError
from quicksand.base.files import map_os_errors
from quicksand.base.progress import Progress
from quicksand.base.remedies import Words
from quicksand.base.sharing import write_at
from quicksand.records.config import NetworkMode, SandboxConfig
from quicksand.records.nodes import File
from quicksand.saves.bundle.manifest import BundleKind, Member
from quicksand.saves.bundle.streams import Header, TarReader
from quicksand.saves.resolving import left_out_of
from quicksand.snapshots.pages import CHUNK, seal
from quicksand.snapshots.verified import Verified

HOLE = 64 * 1024
"""Bytes of zeros that become a hole in the file."""

_ZEROS = bytes(HOLE)

RECORDS_MAX = 32 * 1024 * 1024
"""Bytes of all records in a bundle; those of a hundred checkpoints take a tenth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import."""

    kind: BundleKind
    name: str
    root: Path
    """The directory of the save, sandbox or image."""
    size: int
    """Bytes of the files in the bundle."""
    base: str = ""
    """The image below it."""
    image_added: bool = False
    """Whether the bundle brought a new image."""
    id: str = ""
    """The new sandbox's id, "" for other kinds."""
    checkpoints: int = 0
    notes: tuple[str, ...] = ()
    """Notes for the user before starting it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """The options of an import."""

    name: str | None = None
    """The name to use instead of the bundle's; None keeps that."""
    replace: bool = False
    """Whether to replace an existing one of that name; a replaced save goes to the trash."""
    trusted: bool = False
    """Whether to accept QEMU arguments and mounts, because the user knows who made the bundle."""
    places: Mapping[str, str] = field(default_factory=dict)
    """The directories of this host for files of an imported sandbox, by the keywords of its
    options (`place_option`)."""
    opened: str = ""
    """The file name of the bundle, if a start unpacks it. Then its contents get no name that has
    another meaning: an image does not become a current version, and the caller leaves out options
    that a configuration may not choose."""
    expected: str = ""
    """The SHA-256 of the manifest that a bundle of ours must have; "" for any."""
    progress: Progress | None = None
    stop: Callable[[], None] = lambda: None
    """Called while waiting for a pipe, and before anything is published; may raise."""


def stopping(progress: Progress | None, stop: Callable[[], None]) -> Progress:
    """Return a `Progress` that calls ``stop`` before ``progress``."""

    def say(stage: str, done: int, total: int) -> None:
        stop()
        if progress is not None:
            progress(stage, done, total)

    return say


class Watch(Protocol):
    """Checks the content of a file while it is written."""

    def look(self, data: bytes) -> None:
        """Check the next piece. Raises ValueError or BundleError if the file cannot be right."""


class Members(Protocol):
    """The files of a bundle: a `Receiver` reads them from it, others get them one by one."""

    def skip(self, member: Member) -> None:
        """Leave out a file that is not needed. Raises ValueError if it is damaged."""

    def write(
        self,
        member: Member,
        path: Path,
        expected: File | None = None,
        watch: Watch | None = None,
    ) -> None:
        """Write a file as the new file ``path``. Raises as `Receiver.write`."""

    def end(self) -> None:
        """Raise ValueError if there are more files than were requested."""

    def require_space(self, root: Path, need: int) -> None:
        """Raise DiskSpaceError unless there is room for ``need`` bytes of files below ``root``."""


class Receiver:
    """Reads the members of a bundle in the order of its manifest."""

    def __init__(self, reader: TarReader, total: int, progress: Progress | None) -> None:
        """``total`` is the bytes of all members, for the progress."""
        self._reader = reader
        self._total = total
        self._progress = progress or (lambda stage, done, total: None)
        self._done = 0
        self._records = 0
        """Bytes of records that were read."""
        self._verified = Verified.of_user()
        self._whole: list[Path] = []

    def note_verified(self) -> None:
        """Note that files with checked checksums need not be read again before their first use. To
        be called once they are at their final paths."""
        for mark in self._whole:
            self._verified.add(mark)

    def next(self, member: Member) -> None:
        """Go to the next member, which must be ``member``. Raises ValueError."""
        header = self._reader.next()
        if header != Header(member.name, member.size):
            found = "its end" if header is None else f"{header.name!r} of {header.size} bytes"
            raise ValueError(f"{member.name} of {member.size} bytes is expected, not {found}")

    def end(self) -> None:
        """Raise ValueError if there are more members."""
        header = self._reader.next()
        if header is not None:
            raise ValueError(f"it has {header.name!r}, which its manifest does not list")

    def require_space(self, root: Path, need: int) -> None:
        """See `require_space`."""
        require_space(root, need)

    def take_small(self, member: Member, limit: int) -> bytes:
        """Read a record of at most ``limit`` bytes. Raises ValueError."""
        self.next(member)
        self._records += member.size
        if self._records > RECORDS_MAX:
            raise ValueError(f"its records have more than {mib_text(RECORDS_MAX)}")
        data = self._reader.small_content(limit, member.name)
        self._advance(len(data))
        check_digest(member, hashlib.sha256(data).hexdigest())
        return data

    def skip(self, member: Member) -> None:
        """Read a member that is not needed. Raises ValueError if it is damaged."""
        self.next(member)
        digest = hashlib.sha256()
        for data in self._reader.content():
            digest.update(data)
            self._advance(len(data))
        check_digest(member, digest.hexdigest())

    def write(
        self,
        member: Member,
        path: Path,
        expected: File | None = None,
        watch: Watch | None = None,
    ) -> None:
        """Write a member to the new file ``path`` and sync it; zeros become holes. ``expected`` is
        a record with its checksums.

        Raises ValueError if it is damaged, the errors of ``watch``, DiskSpaceError, PathError.
        """
        if expected is not None and expected.size != member.size:
            raise unlike(expected)
        self.next(member)
        self.write_content(path, member=member, expected=expected, watch=watch)

    def write_content(
        self,
        path: Path,
        *,
        member: Member | None = None,
        expected: File | None = None,
        watch: Watch | None = None,
    ) -> str:
        """Write the present member as `write` does and return its digest."""
        with map_os_errors(path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
        try:
            digest = hashlib.sha256()
            crcs = None if expected is None else Crcs(expected)
            at = 0
            for data in self._reader.content():
                if watch is not None:
                    watch.look(data)
                digest.update(data)
                if crcs is not None:
                    crcs.update(data)
                with map_os_errors(path):
                    _write_sparse(descriptor, data, at)
                at += len(data)
                self._advance(len(data))
            if member is not None:
                check_digest(member, digest.hexdigest())
            if crcs is not None:
                crcs.check(at)
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
    """Checks the CRC-32 of each 4 MiB chunk of a file that arrives in pieces."""

    def __init__(self, expected: File) -> None:
        self._expected = expected
        self._chunks = self._crc = self._filled = 0

    def update(self, data: bytes) -> None:
        """Check the next piece. Raises ValueError at the first chunk that differs."""
        view = memoryview(data)
        while view:
            part = view[: CHUNK - self._filled]
            self._crc, self._filled = zlib.crc32(part, self._crc), self._filled + len(part)
            if self._filled == CHUNK:
                self._end_chunk()
            view = view[len(part) :]

    def _end_chunk(self) -> None:
        if self._expected.crcs[self._chunks : self._chunks + 1] != (self._crc,):
            raise unlike(self._expected)
        self._chunks += 1
        self._crc = self._filled = 0

    def check(self, size: int) -> None:
        """Raise ValueError unless the file was complete at ``size`` bytes."""
        if self._filled:
            self._end_chunk()
        if size != self._expected.size or self._chunks != len(self._expected.crcs):
            raise unlike(self._expected)


def unlike(expected: File) -> ValueError:
    """Return the error for a file that differs from its record."""
    return ValueError(f"{expected.name} is not the file that its record describes")


def check_digest(member: Member, found: str) -> None:
    """Raise ValueError unless the digest ``found`` is the one in the manifest."""
    if found != member.sha256:
        raise ValueError(
            f"{member.name} is damaged: its digest is {found[:12]}…, not {member.sha256[:12]}…"
        )


def _write_sparse(descriptor: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    start: int | None = None
    for offset in range(0, len(data), HOLE):
        # Compare bytes: comparing views is forty times slower.
        if data[offset : offset + HOLE] == _ZEROS[: len(data) - offset]:
            if start is not None:
                write_at(descriptor, view[start:offset], at + start)
            start = None
        elif start is None:
            start = offset
    if start is not None:
        write_at(descriptor, view[start:], at + start)


def require_space(root: Path, need: int) -> None:
    """Raise DiskSpaceError unless ``need`` bytes, and a reserve, are free where ``root`` is or will
    be. Raises PathError."""
    place = next(p for p in (root, *root.parents) if p.exists())
    with map_os_errors(place):
        found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    if free < need + DISK_RESERVE:
        raise DiskSpaceError(
            f"the bundle claims to hold {mib_text(need)}, and {place} has {mib_text(free)} of "
            "free space",
            hint="free some disk space if you trust the bundle",
        )


def check_config(config: SandboxConfig, other: Mapping[str, Any] | None = None) -> None:
    """Raise BundleError if a configuration from elsewhere reaches this host."""
    reason = dangers(config, other)
    if reason:
        raise BundleError(
            f"the bundle {reason}",
            hint=Words(
                "if you know who made it, ",
                Words("`import --trust`", python="`trusted=True`"),
                " takes it all the same",
            ),
        )


def dangers(config: SandboxConfig, other: Mapping[str, Any] | None = None) -> str:
    """Return the options of a configuration that only a trusted file may choose, or ""."""
    if config.extra_qemu_args:
        words = " ".join(config.extra_qemu_args)
        return f"has QEMU arguments of its own, which can read and run anything here: {words[:200]}"
    if mounts := config.mounts or (other or {}).get("mounts"):
        return f"mounts directories of this host: {str(mounts)[:200]}"
    return ""


def warnings(config: SandboxConfig, arch: str, *, trusted: bool) -> Iterator[str]:
    """Yield warnings before a start: that this host is of another architecture than ``arch``;
    options that reach this host, or that are left out."""
    yield from foreign(arch)
    if not trusted:
        if left_out := left_out_of(config):
            yield (
                f"what it asks for is left out ({'; '.join(left_out)}): give it yourself at the "
                "start, or `import --trust` if you know who made it"
            )
        return
    if config.network_mode is NetworkMode.FULL:
        yield "its network mode is full: what runs in it reaches this host's own services"
    if config.port_forwards:
        ports = ", ".join(forward.between(" -> ") for forward in config.port_forwards)
        yield f"it forwards ports of this host: {ports}"


def foreign(arch: str) -> Iterator[str]:
    """Yield the warning that a machine of ``arch`` must be emulated, if so."""
    host = Architecture.host()
    if Architecture.parse(arch) is not host:
        yield (
            f"it is for {arch}, and this host is {host.value}: it starts only with QEMU for "
            f"{arch}, and everything in it is slow"
        )


class DiskWatch(ForeignDisk):
    """Checks a disk of a bundle while it is written. `check_disk` or `check_layer` check it again
    when it is complete."""

    def look(self, data: bytes) -> None:
        """Check the next piece of the file. Raises BundleError."""
        try:
            super().look(data)
        except DiskFileError as error:
            raise BundleError(str(error), hint=error.hint) from error


def check_layer(path: Path, name: str, *, snapshots: bool = False) -> Qcow2Header:
    """Check the header of a layer that is called ``name`` in the bundle. ``snapshots`` allows
    internal snapshots. Raises BundleError.
    """
    header = check_disk(path, name, allow_backing=True)
    try:
        check_backing_name(header.backing_file)
        if header.snapshots and not snapshots:
            raise MalformedError(f"it holds {header.snapshots} snapshots")
    except MalformedError as error:
        raise BundleError(f"{name} is refused: {error}") from error
    return header


def check_disk(path: Path, name: str, *, allow_backing: bool = False) -> Qcow2Header:
    """Check a qcow2 header as `check_qcow2` does, naming the bundle's file. Raises BundleError."""
    try:
        header = check_qcow2(path, allow_backing=allow_backing)
    except DiskFileError as error:
        reason = error.__cause__ or error
        message = f"{name} is not a usable qcow2 image: {reason}"
        raise BundleError(message, hint=error.hint) from error
    try:
        check_snapshots(path)
    except MalformedError as error:
        raise BundleError(f"{name} is refused: {error}") from error
    return header

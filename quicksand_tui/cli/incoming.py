"""Files from a guest onto this host.

The guest is hostile: names, kinds, sizes and the shape of the tree are its word. Everything is made
relative to a descriptor of the directory it belongs to and nothing is opened through a symlink, so
whatever the guest says, nothing outside the target is touched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path, PurePosixPath
from typing import Protocol

from quicksand.errors import AgentRefusedError, DiskSpaceError
from quicksand.guest_files import GuestFile

from quicksand_tui.cli.streams import FdWriter
from quicksand_tui.cli.transfer import Tally, TransferError, split_contents

NAME_MAX = 255
TARGET_MAX = 4095
"""Bytes of a file's name and of a symlink's target: Linux's limits, less the closing NUL."""

DEPTH_MAX = 128
"""Directories within one another; each holds a descriptor while it is copied."""

ENTRIES_MAX = 1_000_000

SURPLUS_MAX = 1024 * 1024 * 1024
"""Bytes by which a file may be longer than the guest said it was: logs grow meanwhile, an endless
stream must end."""

MODE_KEPT = 0o777
"""Not setuid, setgid and sticky: here the files are ours, not the guest's."""

KINDS = {"fifo": "pipe", "socket": "socket", "block": "device", "char": "device"}
STDOUT = 1

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FULL = (errno.ENOSPC, errno.EDQUOT)


class Files(Protocol):
    """What is needed of `GuestFiles`."""

    def stream(self, path: str) -> AsyncIterator[bytes]: ...

    async def stat(self, path: str, *, follow: bool = True) -> GuestFile: ...

    async def list(self, path: str) -> list[GuestFile]: ...


async def to_stdout(files: Files, source: str, tally: Tally) -> None:
    """Write one file to stdout."""
    if (await files.stat(source)).is_dir:
        raise TransferError(f"{source} is a directory; only a file can go to stdout")
    writer = FdWriter(STDOUT)
    async for chunk in tally.count(files.stream(source)):
        await writer.write(chunk)
    await writer.close()


async def fetch(files: Files, source: str, target: str, tally: Tally, *, follow: bool) -> None:
    """Copy ``source`` of the guest to ``target`` here. What cannot be copied is told and counted in
    ``tally``; only what makes all of it impossible raises QuicksandError."""
    source, contents = split_contents(source)
    info = await files.stat(source, follow=follow or contents)
    receiver = _Receiver(files, tally)
    if contents:
        if not info.is_dir:
            raise TransferError(f"{source} is not a directory")
        with _target_errors(target):
            Path(target).mkdir(parents=True, exist_ok=True)
            directory = os.open(target, DIRECTORY)
        try:
            await receiver.fill(directory, source, depth=0)
        finally:
            os.close(directory)
        return
    if _is_stream(target):
        if info.type != "file":
            raise TransferError(f"{source} is not a file; {target} takes only one")
        await _write_through(files, source, target, tally)
        return
    with _target_errors(target):
        directory, name = _open_parent(target, PurePosixPath(source).name)
    try:
        await receiver.take(directory, name, source, info, depth=0)
    finally:
        os.close(directory)


def _open_parent(target: str, name: str) -> tuple[int, bytes]:
    """The directory that the copy goes into and its name there. Raises OSError."""
    if Path(target).is_dir():
        return os.open(target, DIRECTORY), check_name(name)
    if target.endswith("/"):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    parent, last = os.path.split(target)
    return os.open(parent or ".", DIRECTORY), check_name(last)


@contextlib.contextmanager
def _target_errors(target: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TransferError(f"{target}: {error.strerror}") from error


def _is_stream(target: str) -> bool:
    """Whether the user named a device or pipe: it is written to, never replaced."""
    try:
        named = Path(target).lstat()
        meant = Path(target).stat()
    except OSError:
        return False
    if stat.S_ISREG(meant.st_mode) or stat.S_ISDIR(meant.st_mode):
        return False
    if stat.S_ISLNK(named.st_mode):
        raise TransferError(
            f"{target} is a symlink to something that is no file",
            hint="use - for stdout, or name the device itself",
        )
    return True


async def _write_through(files: Files, source: str, target: str, tally: Tally) -> None:
    with _target_errors(target):
        descriptor = os.open(target, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        async for chunk in tally.count(files.stream(source)):
            _write(descriptor, chunk)
    finally:
        os.close(descriptor)


def check_name(name: str) -> bytes:
    """The bytes of a name that can only be an entry of its directory. Raises TransferError."""
    try:
        raw = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise TransferError(f"the name {name!r} cannot be used here") from None
    if raw in (b"", b".", b"..") or b"/" in raw or b"\0" in raw or len(raw) > NAME_MAX:
        raise TransferError(f"the name {name[:NAME_MAX]!r} cannot be used here")
    return raw


class _Receiver:
    """Makes what the guest lists, below descriptors of directories."""

    def __init__(self, files: Files, tally: Tally) -> None:
        self._files = files
        self._tally = tally
        self._entries = 0

    async def fill(self, directory: int, source: str, *, depth: int) -> None:
        """Copy all entries of the guest's ``source`` into ``directory``."""
        if depth > DEPTH_MAX:
            raise TransferError(f"{source[:200]}…: more than {DEPTH_MAX} directories deep")
        for info in await self._files.list(source):
            self._entries += 1
            if self._entries > ENTRIES_MAX:
                raise TransferError(f"more than {ENTRIES_MAX} files")
            path = f"{source.rstrip('/')}/{info.name}"
            try:
                name = check_name(info.name)
                await self.take(directory, name, path, info, depth=depth)
            except (TransferError, AgentRefusedError) as error:
                self._tally.fail(path, error)

    async def take(
        self, directory: int, name: bytes, source: str, info: GuestFile, *, depth: int
    ) -> None:
        """Copy one thing as ``name`` into ``directory``. Raises TransferError, DiskSpaceError."""
        try:
            match info.type:
                case "dir":
                    await self._directory(directory, name, source, info, depth)
                case "file":
                    await self._file(directory, name, source, info)
                case "symlink":
                    self._symlink(directory, name, source, info)
                case kind:
                    raise TransferError(
                        f"{source} is a {KINDS.get(kind, 'strange thing')}, left out"
                    )
        except OSError as error:
            if error.errno in FULL:
                raise DiskSpaceError(f"no space left for {source}") from error
            raise TransferError(f"{source}: {_explain(error)}") from error

    async def _directory(
        self, directory: int, name: bytes, source: str, info: GuestFile, depth: int
    ) -> None:
        try:
            os.mkdir(name, 0o700, dir_fd=directory)
            made = True
        except FileExistsError:
            made = False
        inner = os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
        try:
            await self.fill(inner, source, depth=depth + 1)
            if made:
                os.fchmod(inner, info.mode & MODE_KEPT)
        finally:
            os.close(inner)

    async def _file(self, directory: int, name: bytes, source: str, info: GuestFile) -> None:
        limit = max(0, info.size) + SURPLUS_MAX
        temporary = _temporary(name)
        descriptor = os.open(temporary, NEW_FILE, 0o600, dir_fd=directory)
        try:
            try:
                async for chunk in self._tally.count(self._files.stream(source)):
                    limit -= len(chunk)
                    if limit < 0:
                        raise TransferError(f"{source} goes on and on; it was {info.size} bytes")
                    _write(descriptor, chunk)
                os.fchmod(descriptor, info.mode & MODE_KEPT)
                with contextlib.suppress(OverflowError, ValueError):
                    os.utime(descriptor, (info.mtime, info.mtime))
            finally:
                os.close(descriptor)
            _publish(directory, temporary, name)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
            raise
        self._tally.files += 1

    def _symlink(self, directory: int, name: bytes, source: str, info: GuestFile) -> None:
        target = (info.target or "").encode("utf-8", "surrogateescape")
        if not target or b"\0" in target or len(target) > TARGET_MAX:
            raise TransferError(f"{source} is a symlink to nowhere")
        temporary = _temporary(name)
        os.symlink(target, temporary, dir_fd=directory)
        try:
            _publish(directory, temporary, name)
        except BaseException:
            os.unlink(temporary, dir_fd=directory)
            raise
        self._tally.files += 1


def _temporary(name: bytes) -> bytes:
    return b"." + name[: NAME_MAX - 32] + b".quicksand-" + secrets.token_hex(6).encode()


def _publish(directory: int, temporary: bytes, name: bytes) -> None:
    """Give a finished file its name. A file or link of that name is replaced, nothing else is."""
    with contextlib.suppress(FileNotFoundError):
        there = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not (stat.S_ISREG(there.st_mode) or stat.S_ISLNK(there.st_mode)):
            kind = errno.EISDIR if stat.S_ISDIR(there.st_mode) else errno.EEXIST
            raise OSError(kind, os.strerror(kind))
    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _explain(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "there is something here of that name that is no directory"
    return error.strerror or str(error)

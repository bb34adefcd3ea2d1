"""`quicksand-tui cp`: copies files into and out of a sandbox. What comes from a guest is hostile:
each file is made by descriptors of directories, under a name that can only be an entry of its own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

import click
from quicksand.base.errors import AgentRefusedError, DiskSpaceError
from quicksand.guest.guest_files import GuestFile, GuestFiles

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.guests import transfer
from quicksand_tui.cli.guests.executing import FdWriter
from quicksand_tui.cli.guests.transfer import (
    DEPTH_MAX,
    SMALL,
    NotEnoughSpaceError,
    Survey,
    Tally,
    TransferError,
    child,
    require_space,
    spare,
    split_contents,
)
from quicksand_tui.cli.output import Exit
from quicksand_tui.cli.progress_display import shown
from quicksand_tui.cli.runner import attached, run_async
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand_tui.cli.runner import Signals


NAME_MAX = 255
TARGET_MAX = 4095
"""The most bytes of a symlink's target: Linux's limit (PATH_MAX), less the closing NUL."""

ENTRIES_MAX = 1_000_000

LINKS_MAX = 100_000
"""The most files with several names that are kept in mind; others are copied for each name."""

SURPLUS_MAX = 1024 * 1024 * 1024
"""The most bytes that a file may have beyond the size that the guest gave. Logs grow during a copy,
but an endless stream must end."""

MODE_KEPT = 0o777
"""The mode bits that are kept. Setuid, setgid and sticky are not: here the files belong to this
user, not to the guest."""

KINDS = {"fifo": "pipe", "socket": "socket", "block": "device", "char": "device"}
STDOUT = 1

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FULL = (errno.ENOSPC, errno.EDQUOT)


async def to_stdout(files: GuestFiles, source: str, tally: Tally) -> None:
    """Writes one file of the guest to stdout. Raises OSError, QuicksandError."""
    if (await files.stat(source)).is_dir:
        raise TransferError(f"{source} is a directory; only a file can go to stdout")
    writer = FdWriter(STDOUT)
    async for chunk in tally.count(files.stream(source)):
        await writer.write(chunk)
    await writer.close()


async def fetch(
    files: GuestFiles,
    source: str,
    target: str,
    tally: Tally,
    *,
    follow: bool,
    to_the_full: bool = False,
) -> None:
    """Copies ``source`` of the guest to ``target`` on this host. Files that cannot be copied are
    reported and counted in ``tally``; QuicksandError is raised only if nothing at all can be.

    Raises NotEnoughSpaceError, with nothing copied, if ``source`` is larger than the disk has to
    spare; with ``to_the_full``, copies as much as the disk can hold instead.
    """
    source, contents = split_contents(source)
    info = await files.stat(source, follow=follow or contents)
    survey = Survey(files, tally)
    if contents and not info.is_dir:
        raise TransferError(f"{source} is not a directory")
    if not to_the_full and not _is_stream(target):
        need = await survey.measure(source, info)
        with _target_errors(target):
            require_space(target, need)
    if contents:
        with _target_errors(target):
            is_new = _make_directory(target)
            directory = os.open(target, DIRECTORY)
        try:
            receiver = _Receiver(files, survey, tally, directory, to_the_full=to_the_full)
            await receiver.fill(directory, source, None, depth=0)
            if is_new:
                _finish_directory(directory, info)
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
        receiver = _Receiver(files, survey, tally, directory, to_the_full=to_the_full)
        await receiver.take(directory, _Place(name, None), source, info, depth=0)
    finally:
        os.close(directory)


def _make_directory(target: str) -> bool:
    """Makes a directory and the missing ones above it; returns whether it was missing."""
    try:
        Path(target).mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _finish_directory(directory: int, info: GuestFile) -> None:
    """Gives a directory its mode and time, once all is in it."""
    os.fchmod(directory, info.mode & MODE_KEPT)
    _set_time(directory, info)


def _set_time(target: int, info: GuestFile) -> None:
    # The guest's time need not be one that this system has.
    with contextlib.suppress(OverflowError, ValueError):
        os.utime(target, ns=(info.mtime_ns, info.mtime_ns))


def _open_parent(target: str, name: str) -> tuple[int, bytes]:
    """Returns a descriptor of the target's directory, and the name of the copy in it. Raises
    OSError."""
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
    """Returns whether the target is a device or pipe, which is written to and never replaced.
    Raises TransferError for a symlink to one."""
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


async def _write_through(files: GuestFiles, source: str, target: str, tally: Tally) -> None:
    with _target_errors(target):
        descriptor = os.open(target, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        async for chunk in tally.count(files.stream(source)):
            _write(descriptor, chunk)
    finally:
        os.close(descriptor)


def check_name(name: str) -> bytes:
    """Returns the bytes of a name that can only be an entry of its own directory. Raises
    TransferError."""
    try:
        raw = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise TransferError(f"the name {name!r} cannot be used here") from None
    if raw in (b"", b".", b"..") or b"/" in raw or b"\0" in raw or len(raw) > NAME_MAX:
        raise TransferError(f"the name {name[:NAME_MAX]!r} cannot be used here")
    return raw


class _Place(NamedTuple):
    """A name below the directory where the copy begins."""

    name: bytes
    directory: _Place | None
    """The directory above; None for that directory itself."""


class _Copied(NamedTuple):
    """A file of ours that has more names in the guest."""

    place: _Place
    facts: tuple[int, int, int]
    """The facts by `_identify`."""


class _Receiver:
    """Makes the files that the guest lists, relative to descriptors of directories."""

    def __init__(
        self, files: GuestFiles, survey: Survey, tally: Tally, top: int, *, to_the_full: bool
    ) -> None:
        """``top`` is a descriptor of the directory where the copy begins. ``to_the_full`` goes on
        until the disk is full, rather than stop shortly before."""
        self._top = top
        self._copied: dict[str, _Copied] = {}
        """The copies, by the guest's identities of the files."""
        self._files = files
        self._survey = survey
        self._tally = tally
        self._to_the_full = to_the_full
        self._entries = 0
        self._written = 0
        """The bytes written so far, in all files."""

    async def fill(self, directory: int, source: str, here: _Place | None, *, depth: int) -> None:
        """Copies all entries of the guest's ``source`` into ``directory``, which is ``here``.
        Failures are counted."""
        if depth > DEPTH_MAX:
            raise TransferError(f"{source[:200]}…: more than {DEPTH_MAX} directories deep")
        for info in await self._survey.list(source):
            self._entries += 1
            if self._entries > ENTRIES_MAX:
                raise TransferError(f"more than {ENTRIES_MAX} files")
            path = child(source, info.name)
            try:
                place = _Place(check_name(info.name), here)
                await self.take(directory, place, path, info, depth=depth)
            except (TransferError, AgentRefusedError) as error:
                self._tally.fail(path, error)

    async def take(
        self, directory: int, place: _Place, source: str, info: GuestFile, *, depth: int
    ) -> None:
        """Copies one file, symlink or directory as ``place``, which is in ``directory``. Raises
        TransferError, DiskSpaceError."""
        try:
            match info.type:
                case "dir":
                    await self._directory(directory, place, source, info, depth)
                case "file" | "symlink" if self._link(directory, place.name, info):
                    self._tally.files += 1
                case "file":
                    await self._file(directory, place, source, info)
                case "symlink":
                    self._symlink(directory, place, source, info)
                case kind:
                    raise TransferError(
                        f"{source} is a {KINDS.get(kind, 'strange thing')}, left out"
                    )
        except OSError as error:
            if error.errno in FULL:
                raise self._full(source) from error
            raise TransferError(f"{source}: {_explain(error)}") from error

    async def _directory(
        self, directory: int, place: _Place, source: str, info: GuestFile, depth: int
    ) -> None:
        try:
            os.mkdir(place.name, 0o700, dir_fd=directory)
            made = True
        except FileExistsError:
            made = False
        inner = os.open(place.name, DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
        try:
            await self.fill(inner, source, place, depth=depth + 1)
            if made:
                _finish_directory(inner, info)
        finally:
            os.close(inner)

    def _remember(self, place: _Place, info: GuestFile, ours: os.stat_result) -> None:
        """Keeps the place of a file that has more names by the guest's word."""
        if info.identity and info.links > 1 and len(self._copied) < LINKS_MAX:
            self._copied[info.identity] = _Copied(place, _identify(ours))

    def _link(self, directory: int, name: bytes, info: GuestFile) -> bool:
        """Makes ``name`` a hard link to the copy of another name of the same file; returns whether
        there is one. A link leads only to a file that this copy has made: the guest's word is not
        enough, and in a mounted directory it can change the files there."""
        copied = self._copied.get(info.identity)
        if copied is None:
            return False
        temporary = _temporary(name)
        try:
            with _reopened(self._top, copied.place.directory) as there:
                os.link(
                    copied.place.name,
                    temporary,
                    src_dir_fd=there,
                    dst_dir_fd=directory,
                    follow_symlinks=False,
                )
            made = os.stat(temporary, dir_fd=directory, follow_symlinks=False)
            if _identify(made) != copied.facts:
                return False
            _publish(directory, temporary, name)
        except OSError:
            return False  # no links on this file system, too many of them, gone: copied again
        finally:
            # The temporary name still exists if both were names of the same file already.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
        return True

    async def _file(self, directory: int, place: _Place, source: str, info: GuestFile) -> None:
        temporary = _temporary(place.name)
        descriptor = os.open(temporary, NEW_FILE, 0o600, dir_fd=directory)
        try:
            try:
                await self._contents(descriptor, source, info)
                os.fchmod(descriptor, info.mode & MODE_KEPT)
                _set_time(descriptor, info)
                ours = os.fstat(descriptor)
            finally:
                os.close(descriptor)
            _publish(directory, temporary, place.name)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
            raise
        self._remember(place, info, ours)
        self._tally.files += 1

    async def _contents(self, descriptor: int, source: str, info: GuestFile) -> None:
        """Writes a file's data at their offsets; holes in the guest's file become holes here."""
        limit = max(0, info.size) + SURPLUS_MAX
        end = 0
        async for extent in self._files.extents(source):
            end = extent.offset + len(extent.data)
            if end > limit:
                raise TransferError(f"{source} goes on and on; it was {info.size} bytes")
            if extent.data:
                self._require_space(descriptor, source, len(extent.data))
                _write_at(descriptor, extent.data, extent.offset)
                self._tally.bytes += len(extent.data)
        os.ftruncate(descriptor, end)

    def _require_space(self, descriptor: int, source: str, count: int) -> None:
        """Raises DiskSpaceError if writing ``count`` more bytes would fill the disk."""
        self._written += count
        if self._to_the_full or self._written <= SMALL:
            return
        if spare(descriptor) < count:
            raise self._full(source)

    def _full(self, source: str) -> DiskSpaceError:
        return DiskSpaceError(
            f"no space left for {source}",
            hint=f"{self._tally.files} files were copied and stay; free some space, then copy "
            "the rest",
        )

    def _symlink(self, directory: int, place: _Place, source: str, info: GuestFile) -> None:
        target = (info.target or "").encode("utf-8", "surrogateescape")
        if not target or b"\0" in target or len(target) > TARGET_MAX:
            raise TransferError(f"{source} is a symlink to nowhere")
        temporary = _temporary(place.name)
        os.symlink(target, temporary, dir_fd=directory)
        try:
            with contextlib.suppress(OverflowError, ValueError):
                times = (info.mtime_ns, info.mtime_ns)
                os.utime(temporary, ns=times, dir_fd=directory, follow_symlinks=False)
            ours = os.stat(temporary, dir_fd=directory, follow_symlinks=False)
            _publish(directory, temporary, place.name)
        except BaseException:
            os.unlink(temporary, dir_fd=directory)
            raise
        self._remember(place, info, ours)
        self._tally.files += 1


def _identify(found: os.stat_result) -> tuple[int, int, int]:
    """Returns device, inode and kind of a file. The kind matters, since an inode's number is used
    again at once when the file is gone."""
    return found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode)


@contextlib.contextmanager
def _reopened(top: int, place: _Place | None) -> Iterator[int]:
    """Yields a descriptor of a directory below ``top``, reached through no symlink. Raises
    OSError."""
    names = []
    while place is not None:
        names.append(place.name)
        place = place.directory
    found = os.dup(top)
    try:
        for name in reversed(names):
            inner = os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=found)
            os.close(found)
            found = inner
        yield found
    finally:
        os.close(found)


def _temporary(name: bytes) -> bytes:
    return b"." + name[: NAME_MAX - 32] + b".quicksand-" + secrets.token_hex(6).encode()


def _publish(directory: int, temporary: bytes, name: bytes) -> None:
    """Renames a finished file to its name. Only a file or link of that name is replaced."""
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


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count


def _explain(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "there is something here of that name that is no directory"
    return error.strerror or str(error)


_IN_GUEST = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62}):(.*)", re.DOTALL)
STANDARD = "-"


@dataclass(frozen=True, slots=True)
class Place:
    """The source or the target of a copy."""

    path: str
    sandbox: str | None = None
    """The name of the sandbox; None for a path of this host, or "-" for a standard stream."""

    @classmethod
    def parse(cls, text: str) -> Place:
        """Reads a place as typed. NAME:/path is in a guest; a file of this host whose name has a
        colon is written ./NAME:..."""
        match = _IN_GUEST.fullmatch(text)
        if match is None:
            return cls(text)
        if not match[2].startswith("/"):
            raise click.UsageError(
                f"{text!r}: a path in a sandbox begins with a slash (a local file: './{text}')"
            )
        return cls(match[2], match[1])


@command_of("cp")
def cp_command(source: str, target: str, follow: bool, yes: bool) -> int:
    """Copy files into or out of a sandbox.

    One side is NAME:/path, the other a local path, or - for stdin or stdout. A directory is copied
    with all its contents: into TARGET if that is a directory, else as TARGET. SOURCE/. copies only
    the contents. Times and modes are kept, except setuid and setgid on the way out. Symlinks stay
    symlinks, and hard links within SOURCE stay hard links. A directory that exists keeps its mode
    and time. Devices, pipes and sockets are left out.

    Holes stay holes. If a copy may not fit on this disk, you are asked first; a file that does not
    fit is not left here in part.
    """
    origin, goal = Place.parse(source), Place.parse(target)
    name = origin.sandbox or goal.sandbox
    if name is None or (origin.sandbox is not None and goal.sandbox is not None):
        raise click.UsageError("one of SOURCE and TARGET must be NAME:/path, the other local")
    try:
        return _copy(origin, goal, name, follow=follow, to_the_full=yes)
    except NotEnoughSpaceError as error:
        if not _agreed(error):
            raise
    return _copy(origin, goal, name, follow=follow, to_the_full=True)


def _agreed(error: Exception) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = f"{clean(error)}. Copy until the disk is full?"
    return click.confirm(question, default=False, err=True)


def _copy(
    origin: Place,
    goal: Place,
    name: str,
    *,
    follow: bool,
    to_the_full: bool,
) -> int:
    tally = Tally()

    async def main(signals: Signals) -> int:
        async with attached(name) as sandbox, shown(tally.look):
            files = sandbox.files
            if origin.sandbox is not None:
                await _fetch(
                    files,
                    origin.path,
                    goal.path,
                    tally,
                    follow=follow,
                    to_the_full=to_the_full,
                )
            else:
                await _send(files, origin.path, goal.path, tally, follow=follow)
        tally.tell_rest()
        return Exit.FAILURE if tally.failed else Exit.OK

    return run_async(main)


async def _fetch(
    files: GuestFiles,
    source: str,
    target: str,
    tally: Tally,
    *,
    follow: bool,
    to_the_full: bool,
) -> None:
    if target == STANDARD:
        await to_stdout(files, source, tally)
    else:
        await fetch(files, source, target, tally, follow=follow, to_the_full=to_the_full)


async def _send(files: GuestFiles, source: str, target: str, tally: Tally, *, follow: bool) -> None:
    if source == STANDARD:
        await transfer.from_stdin(files, target, tally)
    else:
        await transfer.send(files, source, target, tally, follow=follow)

"""An open file or directory, or a special file that is only looked at.

All work uses the descriptor, so a file that is renamed or removed stays the one that was opened.
Every method holds the descriptor (`walk.SharedDescriptor`) and maps errors, and asks the write
policy before it changes something. `_operation` does all three.
"""

from __future__ import annotations

import errno
import os

from quicksand_smb import copying, kernel, patterns, xattrs
from quicksand_smb.disk_reserve import BLOCK, DiskReserve
from quicksand_smb.minimal_stdlib import Protocol
from quicksand_smb.names import from_host, from_wire, host_path, to_wire
from quicksand_smb.store_errors import Reason, StoreError, store_error
from quicksand_smb.store_types import Entry, FileKind, Limits, Stat
from quicksand_smb.walk import SharedDescriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Concatenate, ParamSpec, TypeVar

    from quicksand_smb.own_changes import OwnChanges

    P = ParamSpec("P")
    R = TypeVar("R")

OFFSET_MAX = (1 << 63) - 1
"""The largest offset in a file, in bytes (off_t)."""

_SET_ID = 0o6000
_APPEND: int = getattr(os, "RWF_APPEND", 0)
"""The flag of pwritev2(2) that appends in one step (Linux 4.16)."""

PAUSE = 64
"""The names that a search passes by at once. They take some milliseconds, whatever the pattern."""


class Share(Protocol):
    """The part of a store that its nodes use."""

    limits: Limits
    disk_reserve: DiskReserve
    own_changes: OwnChanges | None
    """The record of the server's own changes, while somebody asks for those of others."""

    def forget(self, node: Node) -> None:
        """Remove a node that was closed."""


def _operation(
    *, changes: bool
) -> Callable[[Callable[Concatenate[Node, int, P], R]], Callable[Concatenate[Node, P], R]]:
    """Make a method that gets the descriptor as its first argument. With `changes` it raises
    READ_ONLY where the guest may not change the file."""

    def wrap(method: Callable[Concatenate[Node, int, P], R]) -> Callable[Concatenate[Node, P], R]:
        def run(self: Node, /, *args: P.args, **kwargs: P.kwargs) -> R:
            if changes and self.frozen:
                raise StoreError(Reason.READ_ONLY)
            descriptor = self.held.take()
            try:
                result = method(self, descriptor, *args, **kwargs)
                if changes and self._share.own_changes is not None:
                    self._share.own_changes.record(descriptor)
                return result
            except (OSError, OverflowError, ValueError) as error:
                raise store_error(error) from error
            finally:
                self.held.give()

        run.__name__ = method.__name__
        run.__doc__ = method.__doc__
        run.changes = changes  # type: ignore[attr-defined]
        return run

    return wrap


class Node:
    """An open file, made by `Store.open`. All methods raise StoreError, and GONE after `close` or
    `Store.close`."""

    __slots__ = ("_append", "_read", "_share", "_write", "first", "frozen", "held", "kind",
                 "opened_by", "path")  # fmt: skip

    def __init__(
        self,
        share: Share,
        descriptor: int,
        kind: FileKind,
        *,
        read: bool,
        write: bool,
        append: bool,
        frozen: bool,
        path: bytes,
        first: Stat | None = None,
    ) -> None:
        self._share = share
        self._read = read
        self._write = write
        self._append = append
        self.held = SharedDescriptor(descriptor)
        self.kind = kind
        self.frozen = frozen
        """Whether nothing may be changed with this node."""
        self.first = first
        """The file's state when it was opened, unless opening has changed it."""
        self.path: bytes | None = path
        """The path by which the file was opened, or its present one (`Store.known_name`). It is
        kept as bytes, since thousands of files may be open, each 512 names deep. None means that it
        is unknown."""
        self.opened_by = len(path)
        """The length in bytes of the path by which the file was opened. A longer one is not kept,
        since the ledger holds only these bytes."""

    def close(self) -> None:
        """Close the node. A second call does nothing."""
        self.held.close()
        self._share.forget(self)

    @_operation(changes=False)
    def stat(self, descriptor: int) -> Stat:
        """Return the present state of the file."""
        return kernel.stat_of(descriptor)

    @_operation(changes=False)
    def read_into(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        """Fill the buffer from `offset`. Returns how many bytes there were, 0 at the end."""
        self._need(self._read)
        return os.preadv(descriptor, [buffer], offset)

    def send_to(self, socket_fd: int, offset: int, count: int) -> int:
        """Send bytes to a socket without copying them. Returns how many the socket took, 0 at the
        end of the file. Raises the socket's own errors unchanged (BlockingIOError,
        ConnectionError)."""
        descriptor = self.held.take()
        try:
            self._need(self._read)
            if offset + count > OFFSET_MAX:
                raise StoreError(Reason.INVALID)
            return os.sendfile(socket_fd, descriptor, offset, count)
        except (BlockingIOError, ConnectionError, InterruptedError):
            raise
        except (OSError, OverflowError, ValueError) as error:
            raise store_error(error) from error
        finally:
            self.held.give()

    @_operation(changes=True)
    def write(self, descriptor: int, data: memoryview, offset: int, *, at_end: bool = False) -> int:
        """Write all of `data` at `offset`, or at the end if `at_end` is set or the node only
        appends. Returns how many bytes were written; there are fewer only if the disk filled up
        meanwhile. `at_end` means the end at the moment of writing, even if others append."""
        self._need(self._write or self._append)
        count = len(data)
        if at_end or (self._append and not self._write):
            offset = os.fstat(descriptor).st_size
        self._check_size(offset, count)
        self._share.disk_reserve.need_range(descriptor, offset, count)
        if at_end and _APPEND:
            return os.pwritev(descriptor, [data], 0, _APPEND)
        done = os.pwrite(descriptor, data, offset)
        while done < count:
            try:
                done += os.pwrite(descriptor, data[done:], offset + done)
            except OSError:
                break
        return done

    @_operation(changes=True)
    def resize(self, descriptor: int, size: int) -> None:
        """Cut the file, or lengthen it by a hole."""
        self._need(self._write)
        self._check_size(0, size)
        os.ftruncate(descriptor, size)

    @_operation(changes=False)
    def sync(self, descriptor: int, *, data_only: bool = False) -> None:
        """Flush the file to the disk. For a directory that means its names."""
        if self.kind is FileKind.DIRECTORY:
            directory = os.open(b".", os.O_RDONLY | kernel.O_ALWAYS, dir_fd=descriptor)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        elif self._read or self._write or self._append:
            (getattr(os, "fdatasync", os.fsync) if data_only else os.fsync)(descriptor)

    @_operation(changes=True)
    def set_times(
        self, descriptor: int, *, accessed_ns: int | None = None, written_ns: int | None = None
    ) -> None:
        """Set times in nanoseconds since 1970. None leaves a time unchanged. A time that the file
        system cannot store becomes its earliest or latest one."""
        kernel.set_times(descriptor, accessed_ns, written_ns)

    @_operation(changes=True)
    def set_mode(self, descriptor: int, mode: int) -> None:
        """Set the permission bits. Set-id bits are never set. A directory keeps its set-group-id
        bit, which only determines the group of new files."""
        now = kernel.stat_of(descriptor)
        mode &= 0o1777
        if now.kind is FileKind.DIRECTORY:
            mode |= now.mode & 0o2000
        self._change_mode(descriptor, mode)

    def _change_mode(self, descriptor: int, mode: int) -> None:
        try:
            os.fchmod(descriptor, mode)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            os.chmod(kernel.own_path(descriptor), mode)

    def empty(self) -> None:
        """Empty the file for an open that overwrites it. The open has checked the permission."""
        descriptor = self.held.take()
        try:
            os.ftruncate(descriptor, 0)
        finally:
            self.held.give()

    def drop_set_id(self, mode: int) -> None:
        """Drop the set-id bits before a guest writes to a program. The kernel does that for
        ordinary users, but not if this server runs as root."""
        descriptor = self.held.take()
        try:
            os.fchmod(descriptor, mode & ~_SET_ID)
        finally:
            self.held.give()

    @_operation(changes=True)
    def allocate(
        self, descriptor: int, offset: int, count: int, *, keep_size: bool = False
    ) -> None:
        """Reserve disk space. Raises UNSUPPORTED where the file system cannot."""
        self._need(self._write)
        self._check_size(offset, count)
        self._share.disk_reserve.need_range(descriptor, offset, count)
        kernel.fallocate(descriptor, kernel.FALLOC_KEEP_SIZE if keep_size else 0, offset, count)

    @_operation(changes=True)
    def punch(self, descriptor: int, offset: int, count: int) -> None:
        """Free the blocks of a range, which then reads as zeros. The size stays. Raises UNSUPPORTED
        where the file system cannot."""
        self._need(self._write)
        if offset < 0 or count < 0 or offset + count > OFFSET_MAX:
            raise StoreError(Reason.INVALID)
        if count:
            mode = kernel.FALLOC_PUNCH_HOLE | kernel.FALLOC_KEEP_SIZE
            kernel.fallocate(descriptor, mode, offset, count)

    @_operation(changes=False)
    def ranges(
        self, descriptor: int, offset: int, count: int, *, at_most: int = 1024
    ) -> list[tuple[int, int]]:
        """Return the parts of a range that hold data, as (offset, count), at most `at_most` of
        them. If the file system reports no holes, that is the whole range."""
        self._need(self._read or self._write)
        if offset < 0 or count < 0:
            raise StoreError(Reason.INVALID)
        end = min(offset + count, os.fstat(descriptor).st_size)
        found: list[tuple[int, int]] = []
        if not hasattr(os, "SEEK_DATA"):
            return [(offset, end - offset)] if offset < end else []
        while offset < end and len(found) < at_most:
            try:
                start = os.lseek(descriptor, offset, os.SEEK_DATA)
                if start >= end:
                    break
                hole = min(os.lseek(descriptor, start, os.SEEK_HOLE), end)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data up to the end
                    break
                raise
            found.append((start, hole - start))
            offset = hole
        return found

    @_operation(changes=True)
    def copy_from(self, descriptor: int, other: Node, offset: int, to: int, count: int) -> int:
        """Copy bytes from another file, in the kernel if possible. Ranges of one file may overlap.
        Returns how many bytes there were before the other's end."""
        self._need(self._write)
        other._need(other._read)
        self._check_size(to, count)
        if offset < 0:
            raise StoreError(Reason.INVALID)
        source = other.held.take()
        try:
            count = max(0, min(count, os.fstat(source).st_size - offset))
            self._share.disk_reserve.need_range(descriptor, to, count)
            done = copying.copy_in_kernel(source, descriptor, offset, to, count)
            return done + copying.copy(source, descriptor, offset + done, to + done, count - done)
        finally:
            other.held.give()

    @_operation(changes=True)
    def clone_from(self, descriptor: int, other: Node, offset: int, to: int, count: int) -> None:
        """Share the disk blocks of a part of another file. Raises UNSUPPORTED where the file system
        cannot, and INVALID if the range does not fit its blocks."""
        self._need(self._write)
        other._need(other._read)
        self._check_size(to, count)
        if offset < 0:
            raise StoreError(Reason.INVALID)
        if not count:
            return
        self._share.disk_reserve.need(BLOCK)  # the metadata of shared blocks takes space
        source = other.held.take()
        try:
            kernel.clone_range(descriptor, source, offset, count, to)
        finally:
            other.held.give()

    @_operation(changes=False)
    def read_link(self, descriptor: int) -> str:
        """Return a symlink's target, which is data. Raises INVALID for anything else."""
        if self.kind is not FileKind.SYMLINK:
            raise StoreError(Reason.INVALID)
        return from_host(os.readlink(b"", dir_fd=descriptor))

    def entries(self, pattern: str, *, posix: bool = False) -> Iterator[Entry]:
        """Iterate over the names of a directory that match (`patterns`), without "." and "..".
        Memory does not grow with the directory. Names that vanish meanwhile are left out.

        Each call reads with a descriptor of its own, which the iterator closes at its end.
        """
        return (entry for entry in self.search(pattern, posix=posix) if entry is not None)

    def search(self, pattern: str, *, posix: bool = False) -> Iterator[Entry | None]:
        """As `entries`, but with a None after each `PAUSE` names that do not match, because the
        next match may take long."""
        if self.kind is not FileKind.DIRECTORY:
            raise StoreError(Reason.NOT_DIRECTORY)
        if patterns.is_literal(pattern):
            return self._entry(pattern, posix)
        return self._scan(patterns.matcher(pattern), posix)

    def _entry(self, wanted: str, posix: bool) -> Iterator[Entry | None]:
        try:
            name = from_wire(wanted, posix=posix, separator="\0")[0]
            yield Entry(name, self._stat_of_entry(host_path((name,))[0]))
        except StoreError as error:
            if error.reason not in (Reason.NOT_FOUND, Reason.BAD_NAME):
                raise

    @_operation(changes=False)
    def _stat_of_entry(self, descriptor: int, name: bytes) -> Stat:
        return kernel.stat_at(descriptor, name)

    @_operation(changes=False)
    def _open_again(self, descriptor: int) -> int:
        flags = os.O_RDONLY | kernel.O_DIRECTORY | kernel.O_ALWAYS
        return os.open(b".", flags, dir_fd=descriptor)

    def _scan(self, matches: Callable[[str], bool] | None, posix: bool) -> Iterator[Entry | None]:
        directory = self._open_again()
        passed = 0
        try:
            with os.scandir(directory) as found:
                for item in found:
                    if self.held.closed:
                        raise StoreError(Reason.GONE)
                    raw = os.fsencode(item.name)
                    name = from_host(raw)
                    if matches is not None and not matches(to_wire(name, posix=posix)):
                        passed += 1
                        if not passed % PAUSE:
                            yield None
                        continue
                    try:
                        yield Entry(name, kernel.stat_at(directory, raw))
                    except OSError:  # removed meanwhile, or a mount point that does not answer
                        continue
        except OSError as error:
            raise store_error(error) from error
        finally:
            os.close(directory)

    # Extended attributes: only those of users (xattr(7)), so no capability, label or ACL.

    @_operation(changes=False)
    def attributes(self, descriptor: int) -> list[str]:
        """Return the names of the extended attributes, without "user."."""
        found = xattrs.listed(xattrs.path_for(self.kind, descriptor))
        names = [from_host(name[5:]) for name in found if name.startswith(b"user.")]
        return [name for name in names if xattrs.is_name(name)][: self._share.limits.attributes]

    @_operation(changes=False)
    def attribute(self, descriptor: int, name: str) -> bytes:
        """Return the value of an extended attribute. Raises NOT_FOUND."""
        key = xattrs.key_of(name)
        return os.getxattr(xattrs.path_for(self.kind, descriptor), key)

    @_operation(changes=True)
    def set_attribute(self, descriptor: int, name: str, value: bytes) -> None:
        """Make or change an extended attribute. Raises TOO_LARGE and TOO_MANY beyond the limits."""
        key = xattrs.key_of(name)
        limits = self._share.limits
        if len(value) > limits.attribute_bytes:
            raise StoreError(Reason.TOO_LARGE)
        target = xattrs.path_for(self.kind, descriptor)
        there = xattrs.listed(target)
        if len(there) >= limits.attributes and key not in there:
            raise StoreError(Reason.TOO_MANY)
        self._share.disk_reserve.need(max(len(value), BLOCK))
        os.setxattr(target, key, value)

    @_operation(changes=True)
    def remove_attribute(self, descriptor: int, name: str) -> None:
        """Remove an extended attribute. Raises NOT_FOUND."""
        key = xattrs.key_of(name)
        os.removexattr(xattrs.path_for(self.kind, descriptor), key)

    def _need(self, allowed: bool) -> None:
        if self.kind is FileKind.DIRECTORY:
            raise StoreError(Reason.IS_DIRECTORY)
        if not allowed:
            raise StoreError(Reason.DENIED)

    def _check_size(self, offset: int, count: int) -> None:
        if offset < 0 or count < 0:
            raise StoreError(Reason.INVALID)
        if offset + count > self._share.limits.file_bytes:
            raise StoreError(Reason.TOO_LARGE)

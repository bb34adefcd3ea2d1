"""The same interface by path strings, as one writes it without thinking of a hostile guest. The
attacks must succeed here; otherwise they would prove nothing about the store."""

from __future__ import annotations

import os
import stat as stat_
from collections.abc import Callable, Iterator

from quicksand_smb.store import Action, Disposition, FileKind, OpenOptions, Space, Stat
from quicksand_smb.store_types import stat_from_os


class NaiveNode:
    def __init__(self, path: str, descriptor: int | None) -> None:
        self.path = path
        self.descriptor = descriptor

    @property
    def kind(self) -> FileKind:
        return stat_from_os(os.stat(self.path)).kind

    def _fd(self) -> int:
        assert self.descriptor is not None
        return self.descriptor

    def stat(self) -> Stat:
        return stat_from_os(os.stat(self.path))

    def read_into(self, buffer: memoryview, offset: int) -> int:
        return os.readv(self._fd(), [buffer])

    def write(self, data: memoryview, offset: int) -> int:
        return os.pwrite(self._fd(), data, offset)

    def resize(self, size: int) -> None:
        os.truncate(self.path, size)

    def set_times(self, *, accessed_ns: int | None = None, written_ns: int | None = None) -> None:
        os.utime(self.path, ns=(accessed_ns or 0, written_ns or 0))

    def set_mode(self, mode: int) -> None:
        os.chmod(self.path, mode)

    def allocate(self, offset: int, count: int) -> None:
        os.posix_fallocate(self._fd(), offset, count)

    def punch(self, offset: int, count: int) -> None:
        os.pwrite(self._fd(), bytes(count), offset)

    def copy_from(self, other: NaiveNode, offset: int, to: int, count: int) -> int:
        return os.pwrite(self._fd(), os.pread(other._fd(), count, offset), to)

    clone_from = copy_from

    def set_attribute(self, name: str, value: bytes) -> None:
        os.setxattr(self.path, "user." + name, value)

    def remove_attribute(self, name: str) -> None:
        os.removexattr(self.path, "user." + name)

    def entries(self, pattern: str) -> Iterator[str]:
        yield from os.listdir(self.path)

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class NaiveStore:
    """`checked`: as many do, compare the resolved path with the root's as strings first."""

    def __init__(self, root: str, *, checked: bool = False, **_ignored: object) -> None:
        self.root = root
        self.checked = checked
        self.nodes: list[NaiveNode] = []
        self.between: Callable[[], None] = lambda: None
        """What another process does between the check and the use."""

    def _path(self, names: tuple[str, ...]) -> str:
        path = os.path.join(self.root, *names)
        if self.checked:
            if not os.path.realpath(path).startswith(self.root):
                raise PermissionError(path)
            self.between()
        return path

    def look(self, names: tuple[str, ...]) -> Stat:
        return stat_from_os(os.stat(self._path(names)))

    def read_link(self, names: tuple[str, ...]) -> str:
        return os.readlink(self._path(names))

    def space(self) -> Space:
        found = os.statvfs(self.root)
        free = found.f_bavail * found.f_frsize
        return Space(total=0, free=free, available=free, block_size=1, names=0, free_names=0)

    def where(self, node: NaiveNode) -> tuple[str, ...] | None:
        return (os.path.relpath(node.path, self.root),)

    def open(self, names: tuple[str, ...], wish: OpenOptions) -> tuple[NaiveNode, Action]:
        path = self._path(names)
        there = os.path.exists(path)
        if wish.directory:
            if not there:
                os.mkdir(path, wish.mode)
            return NaiveNode(path, None), Action.OPENED if there else Action.CREATED
        flags = os.O_RDWR if wish.write else os.O_RDONLY
        if wish.disposition is not Disposition.OPEN:
            flags |= os.O_CREAT
        if wish.disposition in (Disposition.OVERWRITE, Disposition.SUPERSEDE):
            flags |= os.O_TRUNC
        descriptor = None
        if not there or not stat_.S_ISDIR(os.stat(path).st_mode):
            descriptor = os.open(path, flags, wish.mode)
        self.nodes.append(NaiveNode(path, descriptor))
        if not there:
            os.chmod(path, wish.mode)
        return self.nodes[-1], Action.OPENED if there else Action.CREATED

    def remove(
        self, names: tuple[str, ...], *, directory: bool, same_as: Stat | None = None
    ) -> None:
        (os.rmdir if directory else os.unlink)(self._path(names))

    def rename(
        self, old: tuple[str, ...], new: tuple[str, ...], *, replace: bool,
        same_as: Stat | None = None,
    ) -> None:  # fmt: skip
        os.rename(self._path(old), self._path(new))

    def link(
        self, old: tuple[str, ...], new: tuple[str, ...], *, replace: bool,
        same_as: Stat | None = None,
    ) -> None:  # fmt: skip
        os.link(self._path(old), self._path(new))

    def symlink(self, target: str, names: tuple[str, ...]) -> None:
        os.symlink(target, self._path(names))

    def make_node(self, names: tuple[str, ...], kind: FileKind, mode: int) -> None:
        type_ = {FileKind.FIFO: stat_.S_IFIFO, FileKind.SOCKET: stat_.S_IFSOCK}.get(
            kind, stat_.S_IFCHR
        )
        os.mknod(self._path(names), type_ | mode, os.makedev(1, 5))

    def close(self) -> None:
        for node in self.nodes:
            node.close()

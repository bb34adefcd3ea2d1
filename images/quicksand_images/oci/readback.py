"""Compares a written file system with its records: names, types, modes, owners, sizes, targets of
links, numbers of devices, and xattrs. Our own reader does it, so the programs that wrote it are not
trusted."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from quicksand.base.errors import HostError
from quicksand.base.regular import open_regular
from quicksand_disks import MalformedError
from quicksand_disks.changes import FileType
from quicksand_disks.ext4 import ROOT, FileSystem, Inode, find_extents, read_attributes

from quicksand_images.oci.tar import Kind
from quicksand_images.oci.tree import Node, Tree

_PREFIXES = {
    1: "user.",
    2: "system.posix_acl_access",
    3: "system.posix_acl_default",
    4: "trusted.",
    6: "security.",
    7: "system.",
}
"""The beginnings of xattrs' names by their numbers (Linux, fs/ext4/xattr.h)."""

_LABEL = "security.selinux"
"""The label that a host with SELinux gives to every file, and mke2fs copies. A guest without
SELinux ignores it, and one with it labels its files itself."""

SHOWN_MAX = 300
"""Characters of a link or of xattrs in an error."""


_FOUND = b"lost+found"
"""The directory that mke2fs makes in the root directory."""

_TYPES = {
    Kind.FILE: FileType.FILE,
    Kind.DIRECTORY: FileType.DIRECTORY,
    Kind.SYMLINK: FileType.SYMLINK,
    Kind.CHARACTER: FileType.CHARACTER_DEVICE,
    Kind.BLOCK: FileType.BLOCK_DEVICE,
    Kind.FIFO: FileType.FIFO,
}


class RawDisk:
    """A disk in a file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset).ljust(length, b"\0")


def require_written(tree: Tree, target: Path) -> None:
    """Raise HostError unless the file system ``target`` has exactly the files of ``tree``,
    unchanged. Raises ImageError, OSError. Blocks for I/O."""
    descriptor = open_regular(target)
    try:
        filesystem = FileSystem(RawDisk(descriptor))
        _compare(filesystem, tree.root, filesystem.inode(ROOT), "/", {})
    except MalformedError as error:
        raise HostError(f"the file system that was written is unsound: {error}") from error
    finally:
        os.close(descriptor)


def _compare(
    filesystem: FileSystem, node: Node, inode: Inode, path: str, numbers: dict[int, int]
) -> None:
    """``numbers`` has the inode of each compared record: hard links have one."""
    wanted, found = _wanted(node), _found(filesystem, node, inode)
    if wanted != found:
        raise HostError(
            f"the file {path!r} did not get into the file system: it has {str(found)[:SHOWN_MAX]}, "
            f"not {str(wanted)[:SHOWN_MAX]}"
        )
    if numbers.setdefault(id(node), inode.number) != inode.number:
        raise HostError(f"the hard link {path!r} did not get into the file system")
    if node.kind is not Kind.DIRECTORY:
        return
    entries = filesystem.entries(inode, find_extents(filesystem, inode))
    for name, child in node.children.items():
        inner = f"{path.rstrip('/')}/{name}"
        number = entries.pop(_bytes(name), None)
        if number is None:
            raise HostError(f"the file {inner!r} did not get into the file system")
        _compare(filesystem, child, filesystem.inode(number), inner, numbers)
    if path == "/":
        entries.pop(_FOUND, None)
    if entries:
        name = f"{path.rstrip('/')}/{min(entries).decode('utf-8', 'replace')}"
        raise HostError(f"the file system has {len(entries)} files too many, such as {name!r}")


Facts = tuple[object, ...]
"""The compared facts of a file."""


def _wanted(node: Node) -> Facts:
    size = node.size if node.kind is Kind.FILE else None
    is_device = node.kind in (Kind.CHARACTER, Kind.BLOCK)
    return (
        _TYPES[node.kind],
        oct(node.mode),
        (node.uid, node.gid),
        size,
        _bytes(node.target) if node.kind is Kind.SYMLINK else None,
        node.device if is_device else None,
        dict(node.xattrs),
    )


def _found(filesystem: FileSystem, node: Node, inode: Inode) -> Facts:
    xattrs = {
        _PREFIXES.get(prefix, f"{prefix}.") + rest.decode("utf-8", "surrogateescape"): value
        for (prefix, rest), value in read_attributes(filesystem, inode).items()
    }
    if _LABEL not in node.xattrs:
        xattrs.pop(_LABEL, None)
    is_device = inode.type in (FileType.CHARACTER_DEVICE, FileType.BLOCK_DEVICE)
    return (
        inode.type,
        oct(inode.mode),
        inode.owner,
        inode.size if inode.type is FileType.FILE else None,
        filesystem.target(inode) if inode.type is FileType.SYMLINK else None,
        _device(inode) if is_device else None,
        xattrs,
    )


def _device(inode: Inode) -> tuple[int, int]:
    """Return the numbers of a device: small ones in the first word, others in the second (Linux,
    fs/ext4/inode.c and include/linux/kdev_t.h)."""
    old, new = struct.unpack_from("<II", inode.block)
    if old:
        return old >> 8 & 0xFF, old & 0xFF
    return new >> 8 & 0xFFF, new & 0xFF | new >> 12 & 0xFFF00


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")

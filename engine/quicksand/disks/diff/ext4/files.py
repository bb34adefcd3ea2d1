"""Reads one file of a file system by its path."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from quicksand.base.errors import ImageError
from quicksand.disks.diff.bounds import Malformed, require
from quicksand.disks.diff.chain import Chain
from quicksand.disks.diff.changes import FileType
from quicksand.disks.diff.ext4.filesystem import ROOT, FileSystem
from quicksand.disks.diff.ext4.inode import Inode, find_extents
from quicksand.disks.diff.layer import Layer


def read_from_disk(layers: Sequence[Path], path: str, *, most: int) -> bytes | None:
    """Return the file at the absolute ``path`` on the disk that ``layers`` make, the lowest first;
    None if there is none. No link is followed. Blocks for I/O.

    Raises ImageError for a disk that makes no sense or holds another file system, and for a file of
    more than ``most`` bytes.
    """
    with ExitStack() as stack:
        opened = []
        for layer in layers:
            opened.append(Layer(layer))
            stack.callback(opened[-1].close)
        try:
            filesystem = FileSystem(Chain(opened))
            found = _find(filesystem, path)
            return None if found is None else _content(filesystem, found, most)
        except Malformed as error:
            raise ImageError(f"{path} on {layers[-1]} cannot be read: {error}") from error


def _find(filesystem: FileSystem, path: str) -> Inode | None:
    inode = filesystem.inode(ROOT)
    for name in filter(None, path.encode().split(b"/")):
        if inode.type is not FileType.DIRECTORY:
            return None
        number = filesystem.entries(inode, find_extents(filesystem, inode)).get(name)
        if number is None:
            return None
        inode = filesystem.inode(number)
    return inode if inode.type is FileType.FILE else None


def _content(filesystem: FileSystem, inode: Inode, most: int) -> bytes:
    require(inode.size <= most, f"it has more than {most} bytes")
    if inode.has_inline_data:
        return filesystem.inline_data(inode)
    size = filesystem.block_size
    content = bytearray(inode.size)
    for extent in find_extents(filesystem, inode):
        at = extent.logical * size
        length = min(extent.length, -(-(inode.size - at) // size))
        if length > 0:
            filesystem.budget.spend(length)
            content[at : at + length * size] = filesystem.read_blocks(extent.physical, length)
    return bytes(content[: inode.size])

"""Reads files of a file system by their paths."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from quicksand.base.errors import ImageError
from quicksand.disks.diff.chain import Chain
from quicksand.disks.diff.changes import FileType
from quicksand.disks.diff.ext4.filesystem import ROOT, FileSystem
from quicksand.disks.diff.ext4.inode import Inode, find_extents
from quicksand.disks.diff.layer import Layer
from quicksand.disks.diff.reading_limits import Malformed, require

DIRECTORIES_KEPT = 16
"""Directories whose names a `Finder` keeps: more than the depth of most paths."""


def read_from_disk(layers: Sequence[Path], path: str, *, most: int) -> bytes | None:
    """Return the file at the absolute ``path`` on the disk that ``layers`` make, the lowest first;
    None if there is none. No link is followed. Blocks for I/O.

    Raises ImageError for a disk that makes no sense or holds another file system, and for a file of
    more than ``most`` bytes.
    """
    try:
        with opened_file_system(layers) as filesystem:
            found = Finder(filesystem).find(path)
            if found is None or found.type is not FileType.FILE:
                return None
            return content(filesystem, found, most)
    except Malformed as error:
        raise ImageError(f"{path} on {layers[-1]} cannot be read: {error}") from error


@contextmanager
def opened_file_system(layers: Sequence[Path]) -> Iterator[FileSystem]:
    """Open the file system on the disk that ``layers`` make, the lowest first. Raises Malformed if
    the disk holds none, ImageError."""
    with ExitStack() as stack:
        opened = []
        for layer in layers:
            opened.append(Layer(layer))
            stack.callback(opened[-1].close)
        yield FileSystem(Chain(opened))


class Finder:
    """Finds the inodes at paths of one file system. The directories read last are kept, so that a
    large one is not read again for each of its files."""

    def __init__(self, filesystem: FileSystem) -> None:
        self.filesystem = filesystem
        self._kept: OrderedDict[int, dict[bytes, int]] = OrderedDict()

    def find(self, path: str) -> Inode | None:
        """Return the inode at the absolute ``path``, of any type; None if there is none. No link is
        followed. Raises Malformed, ImageError."""
        inode = self.filesystem.inode(ROOT)
        for name in filter(None, path.encode("utf-8", "surrogateescape").split(b"/")):
            if inode.type is not FileType.DIRECTORY:
                return None
            number = self._entries(inode).get(name)
            if number is None:
                return None
            inode = self.filesystem.inode(number)
        return inode

    def _entries(self, inode: Inode) -> dict[bytes, int]:
        if (kept := self._kept.get(inode.number)) is not None:
            self._kept.move_to_end(inode.number)
            return kept
        filesystem = self.filesystem
        entries = filesystem.entries(inode, find_extents(filesystem, inode))
        self._kept[inode.number] = entries
        if len(self._kept) > DIRECTORIES_KEPT:
            self._kept.popitem(last=False)
        return entries


def content(filesystem: FileSystem, inode: Inode, most: int) -> bytes:
    """Return a file's contents. Raises Malformed, also for more than ``most`` bytes, ImageError."""
    require(inode.size <= most, f"it has more than {most} bytes")
    if inode.has_inline_data:
        return filesystem.inline_data(inode)
    size = filesystem.block_size
    data = bytearray(inode.size)
    for extent in find_extents(filesystem, inode):
        at = extent.logical * size
        length = min(extent.length, -(-(inode.size - at) // size))
        if length > 0:
            filesystem.budget.spend(length)
            data[at : at + length * size] = filesystem.read_blocks(extent.physical, length)
    return bytes(data[: inode.size])

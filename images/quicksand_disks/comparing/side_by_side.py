"""Walks two file systems side by side and finds the paths that differ.

Every path is visited. The blocks decide, not the times: a file whose inode is unchanged but whose
blocks were written is compared too. For most files, comparing the 256 bytes of the inode is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quicksand_disks.changes import ChangeKind, FileChange, FileType
from quicksand_disks.errors import require
from quicksand_disks.ext4.filesystem import ROOT, FileSystem
from quicksand_disks.ext4.inode import (
    FLAGS_OF_USERS,
    SYSTEM_DATA,
    Extent,
    Inode,
    blocks_of,
    find_extents,
    read_attributes,
)
from quicksand_disks.qcow2.layers import Ranges

COMPARED_MAX = 1024 * 1024 * 1024
"""Bytes that are compared in all files together. Beyond that, files in rewritten blocks count as
different: a rare wrong "content" is better than a wait of minutes."""

PIECE = 1024 * 1024
"""Bytes that are compared in one step."""


class Contents:
    """Compares files of two file systems."""

    def __init__(self, a: FileSystem, b: FileSystem, touched: Ranges | None) -> None:
        """``touched`` holds the blocks that may differ, or is None if all may."""
        self._a = a
        self._b = b
        self._touched = touched
        self._left = COMPARED_MAX

    def is_untouched(self, extents: Sequence[Extent]) -> bool:
        """Whether these blocks certainly hold the same bytes in both."""
        if self._touched is None:
            return not extents
        touches = self._touched.touches
        return not any(touches(first, first + count) for _, count, first in extents)

    def equal(self, in_a: Sequence[Extent], in_b: Sequence[Extent], size: int) -> bool:
        """Whether the first ``size`` bytes are the same. Raises DisksError."""
        if in_a == in_b and self.is_untouched(in_a):
            return True
        if self._a.block_size != self._b.block_size:
            return self._equal_bytes(in_a, in_b, size)
        block = self._a.block_size
        for logical, count, at_a, at_b in _side_by_side(in_a, in_b, -(-size // block)):
            if at_a == at_b and (at_a is None or self.is_untouched([Extent(0, count, at_a)])):
                continue
            if not self._equal_run(at_a, at_b, count, min(count * block, size - logical * block)):
                return False
        return True

    def _equal_run(self, at_a: int | None, at_b: int | None, count: int, size: int) -> bool:
        self._left -= size
        if self._left < 0:
            return False
        step = max(1, PIECE // self._a.block_size)
        for first in range(0, count, step):
            length = min(step, count - first)
            rest = min(length * self._a.block_size, size - first * self._a.block_size)
            here = _read(self._a, at_a, first, length)[:rest]
            if here != _read(self._b, at_b, first, length)[:rest]:
                return False
        return True

    def _equal_bytes(self, in_a: Sequence[Extent], in_b: Sequence[Extent], size: int) -> bool:
        """Compare files of file systems with different block sizes, byte by byte."""
        self._left -= size
        if self._left < 0:
            return False
        return all(
            _slice(self._a, in_a, at, PIECE)[: size - at]
            == _slice(self._b, in_b, at, PIECE)[: size - at]
            for at in range(0, size, PIECE)
        )


def _read(filesystem: FileSystem, at: int | None, first: int, count: int) -> bytes:
    """Read blocks of an extent; ``at`` is None for a hole, which reads as zeros."""
    if at is None:
        return bytes(count * filesystem.block_size)
    return filesystem.read_blocks(at + first, count)


def _slice(filesystem: FileSystem, extents: Sequence[Extent], at: int, length: int) -> bytes:
    """Read ``length`` bytes of a file from ``at`` on, both multiples of the block size."""
    block = filesystem.block_size
    first, count = at // block, length // block
    data = bytearray(length)
    for extent in extents:
        start = max(first, extent.logical)
        end = min(first + count, extent.logical + extent.length)
        if start < end:
            place = extent.physical + start - extent.logical
            found = filesystem.read_blocks(place, end - start)
            data[(start - first) * block : (end - first) * block] = found
    return bytes(data)


def _side_by_side(
    in_a: Sequence[Extent], in_b: Sequence[Extent], end: int
) -> Iterator[tuple[int, int, int | None, int | None]]:
    """Cut a file's first ``end`` blocks into runs: (first, count, place in a, place in b). A place
    is None for a hole."""
    number_a = number_b = logical = 0
    while logical < end:
        at_a, stop_a, number_a = _locate(in_a, number_a, logical, end)
        at_b, stop_b, number_b = _locate(in_b, number_b, logical, end)
        stop = min(stop_a, stop_b)
        yield logical, stop - logical, at_a, at_b
        logical = stop


def _locate(
    extents: Sequence[Extent], number: int, logical: int, end: int
) -> tuple[int | None, int, int]:
    """Return the place of block ``logical``, where its run ends, and the number of its extent."""
    while number < len(extents) and extents[number].logical + extents[number].length <= logical:
        number += 1
    if number == len(extents):
        return None, end, number
    extent = extents[number]
    if extent.logical > logical:
        return None, min(extent.logical, end), number
    stop = min(extent.logical + extent.length, end)
    return extent.physical + logical - extent.logical, stop, number


PATH_MAX = 65536
"""Bytes of a path. A system call takes 4096 (PATH_MAX), but a program can build deeper trees."""

MEMORY_MAX = 512 * 1024 * 1024
"""Bytes of memory for the list of changes: enough for a million paths of common length."""

CHANGE_COST = 400
"""Bytes of memory that a change takes in addition to its path."""

DIRECTORY_MODE = 4
"""The upper four bits of a directory's mode (S_IFDIR >> 12)."""

_WITH_SIZE = (FileType.FILE, FileType.SYMLINK)
_DEVICES = (FileType.CHARACTER_DEVICE, FileType.BLOCK_DEVICE)

Pair = tuple[bytes, int | None, int | None]
"""A path, and its inode numbers in a and b."""


def compare(a: FileSystem, b: FileSystem, differing: Ranges) -> list[FileChange]:
    """List what changed from ``a`` to ``b``, sorted by path.

    ``differing`` holds the bytes of the disks that may differ. Raises DisksError.
    """
    walk = _Walk(a, b, _touched_blocks(a, b, differing))
    found = sorted(walk.changes(), key=lambda pair: pair[0])
    return [change for _, change in found]


def _touched_blocks(a: FileSystem, b: FileSystem, differing: Ranges) -> Ranges | None:
    """Return the blocks that may differ, or None if the two layouts number blocks differently."""
    if a.superblock.layout() != b.superblock.layout():
        return None
    size = a.block_size
    blocks = [(start // size, -(-end // size)) for start, end in differing.pairs()]
    blocks += [(number, number + 1) for number in (*a.logged, *b.logged)]
    return Ranges(blocks)


class _Walk:
    def __init__(self, a: FileSystem, b: FileSystem, touched: Ranges | None) -> None:
        self._a = a
        self._b = b
        self._contents = Contents(a, b, touched)
        self._seen: tuple[set[int], set[int]] = (set(), set())
        self._memory_left = MEMORY_MAX

    def changes(self) -> Iterator[tuple[bytes, FileChange]]:
        """Yield paths and changes, each directory before its contents."""
        waiting: list[Pair] = [(b"/", ROOT, ROOT)]
        while waiting:
            path, number_a, number_b = waiting.pop()
            inode_a = None if number_a is None else self._a.inode(number_a)
            inode_b = None if number_b is None else self._b.inode(number_b)
            change = self._change(path, inode_a, inode_b)
            if change is not None:
                yield path, change
            if _is_directory(inode_a) or _is_directory(inode_b):
                waiting += self._children(path, inode_a, inode_b)

    def _children(self, path: bytes, inode_a: Inode | None, inode_b: Inode | None) -> list[Pair]:
        """Return the entries of a directory to visit: all but non-directories that are the same
        inode in both and lie in untouched blocks."""
        require(len(path) < PATH_MAX, "a path is too long")
        prefix = path if path == b"/" else path + b"/"
        self._enter(0, inode_a)
        self._enter(1, inode_b)
        names_a, names_b = self._names(inode_a, inode_b)
        pairs: list[Pair] = []
        for name, number_b in names_b.items():
            number_a = names_a.get(name)
            if number_a != number_b or not self._is_same(number_b):
                pairs.append((self._keep(prefix, name), number_a, number_b))
        if names_a is not names_b:
            for name, number_a in names_a.items():
                if name not in names_b:
                    pairs.append((self._keep(prefix, name), number_a, None))
        return pairs

    def _keep(self, prefix: bytes, name: bytes) -> bytes:
        """Return the path of an entry to visit. Raises MalformedError when there are too many."""
        path = prefix + name
        self._memory_left -= 2 * len(path) + CHANGE_COST
        require(self._memory_left >= 0, "there are too many changes to list")
        return path

    def _enter(self, side: int, inode: Inode | None) -> None:
        if inode is not None and _is_directory(inode):
            seen = self._seen[side]
            require(inode.number not in seen, f"the directory {inode.number} has two places")
            seen.add(inode.number)

    def _names(
        self, inode_a: Inode | None, inode_b: Inode | None
    ) -> tuple[dict[bytes, int], dict[bytes, int]]:
        """Return the names in a directory of a and b: one object if they cannot differ."""
        extents_a = _extents_of_directory(self._a, inode_a)
        extents_b = _extents_of_directory(self._b, inode_b)
        names_b: dict[bytes, int] = {}
        if inode_b is not None and extents_b is not None:
            names_b = self._b.entries(inode_b, extents_b)
        if inode_a is None or extents_a is None:
            return {}, names_b
        if (
            inode_b is not None
            and extents_a == extents_b
            and inode_a.size == inode_b.size
            and not inode_a.has_inline_data
            and not inode_b.has_inline_data
            and self._contents.is_untouched(extents_a)
        ):
            return names_b, names_b
        return self._a.entries(inode_a, extents_a), names_b

    def _is_same(self, number: int) -> bool:
        """Whether an inode is certainly the same in both: not a directory, equal byte for byte, and
        with all of its blocks untouched."""
        raw = self._b.raw_inode(number)
        if raw[1] >> 4 == DIRECTORY_MODE or raw != self._a.raw_inode(number):
            return False
        self._b.budget.spend()
        blocks = blocks_of(raw)
        return blocks is not None and self._contents.is_untouched(blocks)

    # One path

    def _change(self, path: bytes, a: Inode | None, b: Inode | None) -> FileChange | None:
        differs: tuple[str, ...] = ()
        if a is None or b is None:
            kind = ChangeKind.ADDED if a is None else ChangeKind.REMOVED
        elif a.type is not b.type:
            kind = ChangeKind.TYPE_CHANGED
        else:
            kind, differs = ChangeKind.CHANGED, tuple(self._differences(a, b))
            if not differs:
                return None
        return FileChange(
            path=path.decode("utf-8", "surrogateescape"),
            kind=kind,
            type_before=None if a is None else a.type,
            type_after=None if b is None else b.type,
            size_before=_size(a),
            size_after=_size(b),
            differs=differs,
        )

    def _differences(self, a: Inode, b: Inode) -> Iterator[str]:
        """Yield how two inodes of one type differ. Only differences that a user could notice count:
        not the access time, nor a change that was undone."""
        if a.type is FileType.FILE and not self._same_content(a, b):
            yield "content"
        if a.type is FileType.SYMLINK and self._a.target(a) != self._b.target(b):
            yield "target"
        if a.type in _DEVICES and a.block[:8] != b.block[:8]:
            yield "device"
        if a.mode != b.mode:
            yield "mode"
        if a.owner != b.owner:
            yield "owner"
        # A directory's time changes with its entries, which are reported themselves.
        if a.type is not FileType.DIRECTORY and a.mtime != b.mtime:
            yield "mtime"
        if not self._same_attributes(a, b):
            yield "attributes"

    def _same_content(self, a: Inode, b: Inode) -> bool:
        if a.size != b.size:
            return False
        if a.has_inline_data or b.has_inline_data:
            return _small_content(self._a, a) == _small_content(self._b, b)
        return self._contents.equal(find_extents(self._a, a), find_extents(self._b, b), a.size)

    def _same_attributes(self, a: Inode, b: Inode) -> bool:
        if (a.flags ^ b.flags) & FLAGS_OF_USERS:
            return False
        found_a, found_b = read_attributes(self._a, a), read_attributes(self._b, b)
        found_a.pop(SYSTEM_DATA, None)
        found_b.pop(SYSTEM_DATA, None)
        return found_a == found_b


def _is_directory(inode: Inode | None) -> bool:
    return inode is not None and inode.type is FileType.DIRECTORY


def _extents_of_directory(filesystem: FileSystem, inode: Inode | None) -> list[Extent] | None:
    """Return the extents of a directory, None for everything else."""
    if inode is None or not _is_directory(inode):
        return None
    return [] if inode.has_inline_data else find_extents(filesystem, inode)


def _size(inode: Inode | None) -> int | None:
    return inode.size if inode is not None and inode.type in _WITH_SIZE else None


def _small_content(filesystem: FileSystem, inode: Inode) -> bytes:
    """Read a file that is, or once was, stored in its inode: it has at most one block."""
    if inode.has_inline_data:
        return filesystem.inline_data(inode)
    extents = find_extents(filesystem, inode)
    if not extents or extents[0].logical:
        return bytes(min(inode.size, filesystem.block_size))
    return filesystem.read_blocks(extents[0].physical, 1)[: inode.size]

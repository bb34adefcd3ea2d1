"""Names with a line break. debugfs takes its commands as lines, so such a file temporarily has
another name of the same length; then its own is written into the directory's block."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import HostError, ImageError
from quicksand.base.regular import open_regular
from quicksand_disks import MalformedError
from quicksand_disks.ext4 import FileSystem, Finder, Inode, find_extents

from quicksand_images.oci.readback import RawDisk
from quicksand_images.oci.tree import Node, Tree

BREAK, INSTEAD = "\n", "_-.~+=,@0123456789"
"""The replacements of a line break: the first one that makes a free name."""

NAMES_MAX = 1000
"""The most such names in an image: each one's directory is searched. Real images have a handful."""

_INDEXED = 0x1000
"""EXT4_INDEX_FL: the directory is a hash table of its names (Linux, fs/ext4/ext4.h)."""

_UUID_AT, _UUID_SIZE = 1024 + 0x68, 16
_GENERATION_AT = 0x64
_ENTRY = struct.Struct("<IHB")
_TAIL, _TAIL_MARK = 12, b"\0\0\0\0\x0c\0\0\xde"
"""The end of a directory's block: not an entry, but its checksum (struct ext4_dir_entry_tail)."""

_POLYNOMIAL = 0x82F63B78
"""CRC-32C (Castagnoli), reversed."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """A file that has another name."""

    directory: Node
    path: str
    """The path of the directory, by the temporary names of files."""
    name: str
    instead: str


@contextmanager
def set_aside(tree: Tree) -> Iterator[list[Renamed]]:
    """Give files whose names have line breaks other names during the context. Raises ImageError if
    none is free, and for too many."""
    renamed: list[Renamed] = []
    try:
        _rename(tree.root, "", renamed)
        yield renamed
    finally:
        for one in reversed(renamed):
            children = one.directory.children
            children[one.name] = children.pop(one.instead)


def _rename(directory: Node, path: str, renamed: list[Renamed]) -> None:
    children = directory.children
    for name in [name for name in sorted(children) if BREAK in name]:
        names = (name.replace(BREAK, character) for character in INSTEAD)
        free = (one for one in names if one not in children and one not in (".", ".."))
        instead = next(free, None)
        if instead is None:
            raise ImageError(f"the name {name!r} cannot be written beside others like it")
        if len(renamed) >= NAMES_MAX:
            raise ImageError(f"the layers are refused: {NAMES_MAX} names have line breaks")
        children[instead] = children.pop(name)
        renamed.append(Renamed(directory, path, name, instead))
    for name, child in children.items():
        if child.children:
            _rename(child, f"{path}/{name}", renamed)


def write_names(target: Path, renamed: list[Renamed]) -> None:
    """Give the files in the file system ``target`` their own names. Raises HostError, ImageError,
    OSError."""
    if not renamed:
        return
    descriptor = open_regular(target, os.O_RDWR)
    try:
        # First find all places, by the present names.
        filesystem = FileSystem(RawDisk(descriptor))
        finder = Finder(filesystem)
        found = [(one, _require(finder, one)) for one in renamed]
        for one, directory in found:
            _write(descriptor, filesystem, directory, one)
    except MalformedError as error:
        raise HostError(f"the file system that was written is unsound: {error}") from error
    finally:
        os.close(descriptor)


def _require(finder: Finder, one: Renamed) -> Inode:
    directory = finder.find(one.path or "/")
    if directory is None or directory.flags & _INDEXED or directory.has_inline_data:
        raise HostError(f"the name {one.name!r} cannot be written into its directory")
    return directory


def _write(descriptor: int, filesystem: FileSystem, directory: Inode, one: Renamed) -> None:
    size = filesystem.block_size
    for extent in find_extents(filesystem, directory):
        for number in range(extent.physical, extent.physical + extent.length):
            block = bytearray(os.pread(descriptor, size, number * size))
            at = _find(block, os.fsencode(one.instead))
            if at is not None:
                name = os.fsencode(one.name)
                block[at : at + len(name)] = name
                block[-4:] = struct.pack("<I", _checksum(descriptor, filesystem, directory, block))
                os.pwrite(descriptor, block, number * size)
                return
    raise HostError(f"the file {one.name!r} did not get into the file system")


def _find(block: bytearray, name: bytes) -> int | None:
    """Return the offset of a name in a block of a directory, whose end must be its checksum."""
    if block[-_TAIL:-4] != _TAIL_MARK:
        raise HostError("the directories of the file system have no checksums")
    at = 0
    while at < len(block):
        inode, length, name_length = _ENTRY.unpack_from(block, at)
        start = at + 8
        if inode and block[start : start + name_length] == name:
            return start
        if length < 8:
            return None
        at += length
    return None


def _checksum(descriptor: int, filesystem: FileSystem, directory: Inode, block: bytearray) -> int:
    uuid = os.pread(descriptor, _UUID_SIZE, _UUID_AT)
    raw = filesystem.raw_inode(directory.number)
    generation = raw[_GENERATION_AT : _GENERATION_AT + 4]
    parts = uuid + struct.pack("<I", directory.number) + generation + block[:-_TAIL]
    return crc32c(parts)


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of data as ext4 has it, without the usual inversion at the end."""
    table = []
    for number in range(256):
        value = number
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc

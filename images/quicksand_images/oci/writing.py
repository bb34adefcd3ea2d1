"""Writes the records of an image into an ext4 file system, without root and without mounting it.

mke2fs copies names and contents from a directory of this user's; debugfs then sets what such a
directory cannot have (owners, modes, devices, capabilities). Finally everything is read back and
compared, because debugfs goes on after an error and ends with 0.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

from quicksand.base.capacity import check_space
from quicksand.base.errors import HostError
from quicksand.base.regular import create
from quicksand.base.threads import in_stoppable_thread

from quicksand_images.disk import Makers, make_file_system, plan_mke2fs
from quicksand_images.oci.broken_names import set_aside, write_names
from quicksand_images.oci.ext4 import command_line, quoted
from quicksand_images.oci.readback import require_written
from quicksand_images.oci.tar import Kind
from quicksand_images.oci.tree import Node, Tree
from quicksand_images.recipe import Disk

SIZE_MIN = 8 * 1024**3
"""The least bytes of the file system, as in the default image; unused blocks take no space."""

JOURNAL_MIB = 16
_STEP = 1024**3
_FILE_COST = 16 * 1024
"""Bytes of the file system for each inode, as in `plan_mke2fs`."""

_BLOCK = 4096
_SHORT = 400
"""The most bytes of a path that is written whole; a longer one would exceed a command."""

_TYPES = {
    Kind.FILE: 0o100000,
    Kind.DIRECTORY: 0o040000,
    Kind.SYMLINK: 0o120000,
    Kind.CHARACTER: 0o020000,
    Kind.BLOCK: 0o060000,
    Kind.FIFO: 0o010000,
}
_DEVICES = {Kind.CHARACTER: "c", Kind.BLOCK: "b"}


def planned_size(tree: Tree) -> int:
    """Return the bytes of a file system in which at least half is free."""
    taken, count = _taken(tree)
    needed = max(SIZE_MIN, 2 * taken, 2 * count * _FILE_COST)
    return -(-needed // _STEP) * _STEP


def _taken(tree: Tree) -> tuple[int, int]:
    """Return the bytes that files take, and their number. Hard links are one file."""
    sizes = {id(node): node.size for _, node in tree.walk()}
    return sum((-(-size // _BLOCK) + 1) * _BLOCK for size in sizes.values()), len(sizes)


async def write_ext4(
    tree: Tree, place: Path, target: Path, *, makers: Makers, uuid: UUID, epoch: int
) -> None:
    """Write the files of ``tree`` to ``target``, a new sparse file, by way of the new directory
    ``place``, into which their contents are moved. Equal trees, ``uuid`` and ``epoch`` (Unix time)
    give equal bytes.

    Raises ToolError, OSError, DiskSpaceError if the host has no room for it and for a compressed
    one, and HostError if the file system is not as requested.
    """
    taken, _ = await asyncio.to_thread(_taken, tree)
    check_space(place.parent, 2 * taken)
    disk = Disk(size_bytes=planned_size(tree), journal_mib=JOURNAL_MIB, build_bytes=0)
    with set_aside(tree) as renamed:
        said = await _make(tree, place, target, makers, disk, uuid, epoch)
    await asyncio.to_thread(write_names, target, renamed)
    try:
        await asyncio.to_thread(require_written, tree, target)
    except HostError as error:
        raise HostError(f"{error}; debugfs says:\n{said}") from error


async def _make(
    tree: Tree, place: Path, target: Path, makers: Makers, disk: Disk, uuid: UUID, epoch: int
) -> str:
    """Have mke2fs and debugfs make the file system; return debugfs's errors."""
    await in_stoppable_thread(lambda stop: lay_out(tree, place, stop))
    values = target.with_suffix(".values")
    values.mkdir(mode=0o700)
    await in_stoppable_thread(lambda stop: _write_values(tree, values, stop))

    def plan(mke2fs: Sequence[str], directory: Path, file: Path) -> list[str]:
        return plan_mke2fs(mke2fs, directory, file, disk, uuid)

    return await make_file_system(
        makers,
        place,
        target,
        plan,
        {"E2FSPROGS_FAKE_TIME": str(epoch), "SOURCE_DATE_EPOCH": str(epoch)},
        map(command_line, plan_commands(tree, epoch)),
        values=values,
    )


def lay_out(tree: Tree, place: Path, stop: Callable[[], None] = lambda: None) -> None:
    """Make a directory with the names and contents of ``tree``, all accessible only to this user.
    ``stop`` is called before each file, and may raise. Raises OSError."""
    first: dict[int, Path] = {}
    place.mkdir(mode=0o700)
    for name, node in tree.walk():
        stop()
        path = Path(f"{place}{name}")
        match node.kind:
            case Kind.DIRECTORY if name:
                path.mkdir(mode=0o700)
            case Kind.SYMLINK:
                path.symlink_to(node.target)
            case Kind.FIFO:
                os.mkfifo(path, 0o600)
            case Kind.FILE if id(node) in first:
                path.hardlink_to(first[id(node)])
            case Kind.FILE:
                assert node.content is not None
                node.content.rename(path)
                first[id(node)] = path


def plan_commands(tree: Tree, epoch: int) -> Iterator[str]:
    """Yield debugfs commands for the attributes that files in a directory of this user's cannot
    have. They refer to the values of xattrs by numbers (`_write_values`)."""
    numbers = itertools.count(1)
    for name, node in tree.walk():
        above, _, last = name.rpartition("/")
        path = quoted(name or "/")
        if node.kind in _DEVICES or len(os.fsencode(path)) > _SHORT:
            yield from _enter(above)
            path = quoted(last)
        if node.kind in _DEVICES:
            yield f"mknod {path} {_DEVICES[node.kind]} {node.device[0]} {node.device[1]}"
        fields: dict[str, object] = {
            "mode": f"0{mode_of(node):o}",
            "uid": node.uid,
            "gid": node.gid,
            "mtime": f"@{node.mtime}",
        }
        fields |= dict.fromkeys(("ctime", "atime", "crtime"), f"@{epoch}")
        for field, value in fields.items():
            yield f"set_inode_field {path} {field} {value}"
        for attribute in sorted(node.xattrs):
            yield f"ea_set -f {next(numbers)} {path} {quoted(attribute)}"


def _enter(directory: str) -> Iterator[str]:
    """Yield the commands that make debugfs enter a directory, none of them long."""
    if len(os.fsencode(quoted(directory))) <= _SHORT:
        yield f"cd {quoted(directory or '/')}"
        return
    yield 'cd "/"'
    for part in directory.strip("/").split("/"):
        yield f"cd {quoted(part)}"


def mode_of(node: Node) -> int:
    """Return the type and the permissions of a file as one number (inode(7))."""
    return _TYPES[node.kind] | node.mode


def _write_values(tree: Tree, values: Path, stop: Callable[[], None]) -> None:
    """Write the values of all xattrs to files in ``values``, numbered as in `plan_commands`. Raises
    OSError."""
    numbers = itertools.count(1)
    for _, node in tree.walk():
        stop()
        for _, value in sorted(node.xattrs.items()):
            with create(values / str(next(numbers))) as file:
                file.write(value)

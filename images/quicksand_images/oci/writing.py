"""Writes the records of an image into an ext4 file system, without root and without mounting it.

mke2fs copies names and contents from a directory of this user's; what such a directory cannot have
(owners, modes, devices, capabilities) debugfs sets afterwards. Then everything is read back and
compared, because debugfs goes on after an error and ends with 0.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import UUID

from quicksand.base.errors import HostError
from quicksand.base.regular import create
from quicksand.base.space import check_space
from quicksand.base.threads import in_stoppable_thread
from quicksand.base.tools import run_tool

from quicksand_images.disk import plan_mke2fs
from quicksand_images.oci.ext4 import Found, command_line, list_tree, quoted
from quicksand_images.oci.readback import require_details
from quicksand_images.oci.tar import Kind
from quicksand_images.oci.tree import Node, Tree
from quicksand_images.recipe import Disk
from quicksand_images.toolbox import Tool

SIZE_MIN = 8 * 1024**3
"""Bytes of the file system at least, as the default image has; unused blocks take no space."""

JOURNAL_MIB = 16
_STEP = 1024**3
_FILE_COST = 16 * 1024
"""Bytes of the file system for each inode, as `plan_mke2fs` says."""

_BLOCK = 4096
_ERRORS_ONLY, _ERRORS_MAX = 'exec "$@" >/dev/null', 25
"""debugfs repeats every command, a hundred bytes and more for each of some million; errors, of
which so many lines are kept, go to its stderr."""

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
    """Return the bytes that files take, and how many there are. Hard links are one file."""
    sizes = {id(node): node.size for _, node in tree.walk()}
    return sum((-(-size // _BLOCK) + 1) * _BLOCK for size in sizes.values()), len(sizes)


async def write_ext4(
    tree: Tree, place: Path, target: Path, *, tools: tuple[Tool, Tool], uuid: UUID, epoch: int
) -> None:
    """Write the files of ``tree`` to ``target``, a new sparse file, by way of the new directory
    ``place``, into which their contents are moved. Equal trees, ``uuid`` and ``epoch`` (Unix time)
    give equal bytes.

    Raises ToolError, OSError, DiskSpaceError if the host has no room for it and for a compressed
    one, and HostError if the file system is not what was asked for.
    """
    mke2fs, debugfs = tools
    taken, _ = await asyncio.to_thread(_taken, tree)
    check_space(place.parent, 2 * taken)
    disk = Disk(size_bytes=planned_size(tree), journal_mib=JOURNAL_MIB, build_bytes=0)
    await in_stoppable_thread(lambda stop: lay_out(tree, place, stop))
    clock = {"E2FSPROGS_FAKE_TIME": str(epoch), "SOURCE_DATE_EPOCH": str(epoch)}
    argv = plan_mke2fs(mke2fs.command, place, target, disk, uuid)
    await run_tool(argv, env={**mke2fs.env, **clock})
    values = target.with_suffix(".values")
    values.mkdir(mode=0o700)
    commands = target.with_suffix(".debugfs")
    await in_stoppable_thread(lambda stop: _write_commands(commands, tree, values, epoch, stop))
    argv = [
        "sh",
        "-c",
        _ERRORS_ONLY,
        "sh",
        *debugfs.command,
        "-w",
        "-f",
        str(commands),
        str(target),
    ]
    said = await run_tool(argv, env={**debugfs.env, **clock}, lines_max=_ERRORS_MAX)
    try:
        await require_written(tree, target, debugfs)
    except HostError as error:
        raise HostError(f"{error}; debugfs says:\n{said}") from error


def lay_out(tree: Tree, place: Path, stop: Callable[[], None] = lambda: None) -> None:
    """Make a directory with the names and contents of ``tree``, all of it only this user's.
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


def plan_commands(tree: Tree, values: Path, epoch: int) -> Iterator[str]:
    """Yield debugfs commands that give the files what a directory of this user's cannot give them.
    Writes the values of xattrs into the directory ``values``. Raises OSError."""
    number = 0
    for name, node in tree.walk():
        path = quoted(name or "/")
        if node.kind in _DEVICES:
            above, _, last = name.rpartition("/")
            yield f"cd {quoted(above or '/')}"
            yield f"mknod {quoted(last)} {_DEVICES[node.kind]} {node.device[0]} {node.device[1]}"
        fields: dict[str, object] = {
            "mode": f"0{mode_of(node):o}",
            "uid": node.uid,
            "gid": node.gid,
            "mtime": f"@{node.mtime}",
        }
        fields |= dict.fromkeys(("ctime", "atime", "crtime"), f"@{epoch}")
        for field, value in fields.items():
            yield f"set_inode_field {path} {field} {value}"
        for attribute, content in sorted(node.xattrs.items()):
            number += 1
            with create(values / str(number)) as file:
                file.write(content)
            yield f"ea_set -f {quoted(str(values / str(number)))} {path} {quoted(attribute)}"


def mode_of(node: Node) -> int:
    """Return the type and the permissions of a file as one number (inode(7))."""
    return _TYPES[node.kind] | node.mode


def _write_commands(
    path: Path, tree: Tree, values: Path, epoch: int, stop: Callable[[], None]
) -> None:
    with create(path) as file:
        for line in plan_commands(tree, values, epoch):
            stop()
            file.write(command_line(line))


async def require_written(tree: Tree, target: Path, debugfs: Tool) -> None:
    """Raise HostError unless the file system ``target`` has the files of ``tree`` with their
    owners, modes and sizes, what links lead to, devices and xattrs."""
    found = await list_tree(target, debugfs)
    await asyncio.to_thread(_compare, tree, found)
    await asyncio.to_thread(require_details, tree, target)


def _compare(tree: Tree, found: Mapping[str, Found]) -> None:
    wanted = set()
    for name, node in tree.walk():
        there = found.get(name or "/")
        wanted.add(name or "/")
        told = None if there is None else (there.mode, there.uid, there.gid)
        size_fits = there is not None and (node.kind is not Kind.FILE or there.size == node.size)
        if told != (mode_of(node), node.uid, node.gid) or not size_fits:
            raise HostError(f"the file {name!r} did not get into the file system: it has {there}")
    extra = sorted(set(found) - wanted - {"/lost+found"})
    if extra:
        raise HostError(f"the file system has {len(extra)} files too many, such as {extra[0]!r}")

"""Makes ext4 file systems and qcow2 files from directories, without mounting anything."""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID, uuid4

from quicksand.base.errors import HostError
from quicksand.base.tools import Progress, run_tool
from quicksand.qemu.binaries import QemuBinaries

from quicksand_images.recipe import Disk
from quicksand_images.rootfs import RootTree
from quicksand_images.toolbox import Tool, require_tool

FEATURES = (
    "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,"
    "large_file,huge_file,dir_nlink,extra_isize,metadata_csum"
)
"""Features of ext4, fixed because distributions have other defaults. They let the file system grow
online to 1024 times its size."""

SPARE_KIB = 16 * 1024
"""What a file system for handing files over has besides these, in KiB."""


async def require_filesystem_tools(
    place: Path, progress: Progress | None = None
) -> tuple[Tool, Tool]:
    """Return mke2fs and debugfs, getting them if necessary. Raises HostError."""
    programs = ("mke2fs", "debugfs")
    found = [await require_tool(p, "e2fsprogs", place, progress=progress) for p in programs]
    return found[0], found[1]


async def make_ext4(
    tree: RootTree, target: Path, disk: Disk, *, tools: tuple[Tool, Tool], uuid: UUID, epoch: int
) -> None:
    """Write a file system with the files in ``tree`` to ``target``, a new sparse file.

    Equal trees, ``uuid`` and ``epoch`` (Unix time) give equal bytes. Raises ToolError, and
    HostError for a file name with a quotation mark or a newline.
    """
    mke2fs, debugfs = tools
    # Old and new versions of e2fsprogs read the time from different variables.
    clock = {"E2FSPROGS_FAKE_TIME": str(epoch), "SOURCE_DATE_EPOCH": str(epoch)}
    await run_tool(
        plan_mke2fs(mke2fs.command, tree.path, target, disk, uuid), env={**mke2fs.env, **clock}
    )
    commands = target.with_suffix(".debugfs")
    await asyncio.to_thread(_write_lines, commands, plan_inodes(tree, epoch))
    await run_tool([*debugfs.command, "-w", "-f", commands, target], env={**debugfs.env, **clock})
    commands.unlink()


async def make_scratch(
    tree: Path, target: Path, disk: Disk, tools: tuple[Tool, Tool], binaries: QemuBinaries
) -> None:
    """Make a qcow2 disk with the files in ``tree``, all owned by root, for a short-lived VM. Raises
    ToolError, HostError."""
    assert binaries.img is not None
    mke2fs, debugfs = tools
    raw, commands = target.with_suffix(".raw"), target.with_suffix(".debugfs")
    argv = plan_mke2fs(mke2fs.command, tree, raw, disk, uuid4())
    # dpkg syncs after every package, and nobody needs this disk after a crash.
    argv[argv.index(FEATURES)] = FEATURES.replace("has_journal,", "")
    await run_tool(argv, env=mke2fs.env)
    root = RootTree(path=tree, owners={})
    lines = itertools.chain(("set_super_value mount_opts nobarrier",), plan_inodes(root, None))
    await asyncio.to_thread(_write_lines, commands, lines)
    await run_tool([*debugfs.command, "-w", "-f", commands, raw], env=debugfs.env)
    await run_tool(
        [binaries.img, "convert", "-f", "raw", "-O", "qcow2", raw, target], env=binaries.env
    )
    for path in (raw, commands):
        path.unlink()


async def make_handed(tree: Path, target: Path, tools: tuple[Tool, Tool]) -> None:
    """Make the raw disk ``target`` with the files in ``tree``, which a VM of a build reads. Raises
    ToolError."""
    mke2fs = tools[0]
    size = await asyncio.to_thread(lambda: sum(_blocks(path) for path in _walk(tree)))
    argv = ["-q", "-F", "-t", "ext4", "-O", FEATURES.replace("has_journal,", ""), "-b", "4096"]
    argv += ["-m", "0", "-d", str(tree), str(target), f"{(size + size // 8) // 1024 + SPARE_KIB}k"]
    await run_tool([*mke2fs.command, *argv], env=mke2fs.env)


def _blocks(path: Path) -> int:
    """Return the bytes of the blocks that a file takes, with its inode."""
    return (-(-path.lstat().st_size // 4096) + 1) * 4096


def plan_mke2fs(
    mke2fs: Sequence[str], tree: Path, target: Path, disk: Disk, uuid: UUID
) -> list[str]:
    """Return the command line of mke2fs."""
    # A sparse file reads as zeros, so the guest's first boots have no tables to clear.
    extended = f"hash_seed={uuid},root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0"
    return [
        *mke2fs,
        *("-q", "-F", "-t", "ext4", "-O", FEATURES, "-b", "4096", "-I", "256", "-i", "16384"),
        *("-m", "0", "-L", "quicksand", "-U", str(uuid), "-J", f"size={disk.journal_mib}"),
        *("-E", extended, "-d", str(tree), str(target), f"{disk.size_bytes // 1024}k"),
    ]


def plan_inodes(tree: RootTree, epoch: int | None) -> Iterator[str]:
    """Yield debugfs commands that correct what mke2fs takes from the host: the times of inodes and,
    if all files belong to the user who builds, their owners. Without ``epoch`` times do not matter.
    Raises HostError for a file name with a quotation mark or a newline."""
    for path in sorted(_walk(tree.path)):
        name = "/" + os.fspath(path.relative_to(tree.path)) if path != tree.path else "/"
        if '"' in name or "\n" in name:
            raise HostError(f"the file name {name!r} is not possible in an image")
        times = () if epoch is None else ("ctime", "atime", "crtime")
        values = dict.fromkeys(times, f"@{epoch}")
        if tree.owners is not None:
            uid, gid = tree.owners.get(name, (0, 0))
            values |= {"uid": str(uid), "gid": str(gid)}
        for field, value in values.items():
            yield f'set_inode_field "{name}" {field} {value}'


async def make_qcow2(raw: Path, target: Path, binaries: QemuBinaries) -> None:
    """Compress ``raw`` into ``target``. Raises ToolError."""
    assert binaries.img is not None
    await run_tool(plan_convert(binaries.img, raw, target), env=binaries.env)


def plan_convert(img: Path, raw: Path, target: Path) -> list[str]:
    """Return the command line of qemu-img. Without -W, equal disks give equal files."""
    return [
        str(img),
        *("convert", "-f", "raw", "-O", "qcow2", "-c", "-m", "8"),
        *("-o", "compression_type=zstd,cluster_size=64k", str(raw), str(target)),
    ]


def clamp_times(tree: Path, epoch: int) -> None:
    """Set access times, later modification times and those of directories to ``epoch``, since they
    depend on when and in which order the build wrote. Raises OSError."""
    for path in _walk(tree):
        found = path.lstat()
        is_directory = stat.S_ISDIR(found.st_mode)
        changed = epoch * 10**9 if is_directory else min(found.st_mtime_ns, epoch * 10**9)
        os.utime(path, ns=(epoch * 10**9, changed), follow_symlinks=False)


def newest_time(tree: Path, before: float) -> int:
    """Return the Unix time of the newest file in /usr that is older than ``before``, the start of
    the build: the time of the newest package."""
    times = (
        found.st_mtime
        for path in _walk(tree / "usr")
        if stat.S_ISREG((found := path.lstat()).st_mode) and found.st_mtime < before
    )
    return int(max(times, default=before))


def _walk(tree: Path) -> Iterator[Path]:
    yield tree
    for directory, directories, files in os.walk(tree):
        for name in (*directories, *files):
            yield Path(directory, name)


def _write_lines(path: Path, lines: Iterator[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)

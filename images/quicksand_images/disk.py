"""From a directory to a compressed qcow2 with an ext4 file system, without mounting anything."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

from quicksand.errors import HostError
from quicksand.host.tools import Progress, run_tool
from quicksand.qemu.binaries import QemuBinaries

from quicksand_images.recipe import Disk
from quicksand_images.rootfs import RootTree
from quicksand_images.toolbox import Tool, require_tool

FEATURES = (
    "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,"
    "large_file,huge_file,dir_nlink,extra_isize,metadata_csum"
)
"""Fixed, since distributions differ: grows online to 1024 times its size."""


async def require_filesystem_tools(
    place: Path, progress: Progress | None = None
) -> tuple[Tool, Tool]:
    """mke2fs and debugfs. Raises HostError."""
    programs = ("mke2fs", "debugfs")
    found = [await require_tool(p, "e2fsprogs", place, progress=progress) for p in programs]
    return found[0], found[1]


async def make_ext4(
    tree: RootTree, target: Path, disk: Disk, *, tools: tuple[Tool, Tool], uuid: UUID, epoch: int
) -> None:
    """Fill ``target``, a new sparse file, with a file system of the files in ``tree``.

    The same tree, ``uuid`` and ``epoch`` give the same bytes. Raises ToolError.
    """
    mke2fs, debugfs = tools
    # Old and new e2fsprogs have each their own way of setting the clock.
    clock = {"E2FSPROGS_FAKE_TIME": str(epoch), "SOURCE_DATE_EPOCH": str(epoch)}
    await run_tool(
        plan_mke2fs(mke2fs.command, tree.path, target, disk, uuid), env={**mke2fs.env, **clock}
    )
    commands = target.with_suffix(".debugfs")
    await asyncio.to_thread(_write_lines, commands, plan_inodes(tree, epoch))
    await run_tool([*debugfs.command, "-w", "-f", commands, target], env={**debugfs.env, **clock})
    commands.unlink()


def plan_mke2fs(
    mke2fs: Sequence[str], tree: Path, target: Path, disk: Disk, uuid: UUID
) -> list[str]:
    """The command line of mke2fs."""
    # A sparse file reads as zeros, so there are no tables to be cleared in the guest's first boots.
    extended = f"hash_seed={uuid},root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0"
    return [
        *mke2fs,
        *("-q", "-F", "-t", "ext4", "-O", FEATURES, "-b", "4096", "-I", "256", "-i", "16384"),
        *("-m", "0", "-L", "quicksand", "-U", str(uuid), "-J", f"size={disk.journal_mib}"),
        *("-E", extended, "-d", str(tree), str(target), f"{disk.size_bytes // 1024}k"),
    ]


def plan_inodes(tree: RootTree, epoch: int) -> Iterator[str]:
    """Commands of debugfs for what mke2fs takes from the host: when inodes changed, and, if all
    files belong to the user who builds, their owners. Other times are right already."""
    for path in sorted(_walk(tree.path)):
        name = "/" + os.fspath(path.relative_to(tree.path)) if path != tree.path else "/"
        if '"' in name or "\n" in name:
            raise HostError(f"the file name {name!r} is not possible in an image")
        values = {"ctime": f"@{epoch}", "atime": f"@{epoch}", "crtime": f"@{epoch}"}
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
    """The command line of qemu-img. In order (no -W), so that equal disks give equal files."""
    return [
        str(img),
        *("convert", "-f", "raw", "-O", "qcow2", "-c", "-m", "8"),
        *("-o", "compression_type=zstd,cluster_size=64k", str(raw), str(target)),
    ]


def clamp_times(tree: Path, epoch: int) -> None:
    """Set every time after ``epoch`` to it: what the build itself wrote."""
    for path in _walk(tree):
        changed = min(path.lstat().st_mtime_ns, epoch * 10**9)
        os.utime(path, ns=(epoch * 10**9, changed), follow_symlinks=False)


def newest_time(tree: Path, before: float) -> int:
    """When the newest file of a package was made: the newest one in /usr from before the build."""
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

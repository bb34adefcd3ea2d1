"""Makes ext4 file systems and qcow2 files from directories, without mounting anything."""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Protocol
from uuid import UUID, uuid4

from quicksand.base.errors import HostError
from quicksand.base.progress import Progress
from quicksand.base.regular import create
from quicksand.base.threads import in_stoppable_thread
from quicksand.base.tools import run_tool
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
"""KiB that a file system for handing over files has besides these."""


ERRORS_MAX = 25
"""Lines of debugfs's errors that are kept."""

_ERRORS_ONLY = 'exec "$@" 2>&1 >/dev/null'
"""debugfs repeats every command, more than a hundred bytes for each of some million; errors go to
its stderr."""

Plan = Callable[[Sequence[str], Path, Path], list[str]]
"""Returns mke2fs's command line, given its start, the directory, and the new file."""


class FileSystems(Protocol):
    """mke2fs and debugfs that are not this host's (`workshop.py`)."""

    async def make_file_system(
        self,
        tree: Path,
        target: Path,
        plan: Plan,
        commands: Path | None,
        env: Mapping[str, str],
        values: Path | None,
    ) -> str:
        """Do what `make_file_system` does; ``commands`` is a file for debugfs."""
        ...


Makers = tuple[Tool, Tool] | FileSystems
"""The programs that make file systems: this host's mke2fs and debugfs, or others."""


async def require_filesystem_tools(
    place: Path, progress: Progress | None = None
) -> tuple[Tool, Tool]:
    """Return mke2fs and debugfs, getting them if necessary. Raises HostError."""
    programs = ("mke2fs", "debugfs")
    found = [await require_tool(p, "e2fsprogs", place, progress=progress) for p in programs]
    return found[0], found[1]


async def make_ext4(
    tree: RootTree, target: Path, disk: Disk, *, tools: Makers, uuid: UUID, epoch: int
) -> None:
    """Write a file system with the files in ``tree`` to ``target``, a new sparse file.

    Equal trees, ``uuid`` and ``epoch`` (Unix time) give equal bytes. Raises ToolError, and
    HostError for a file name with a quotation mark or a newline.
    """
    # Old and new versions of e2fsprogs read the time from different variables.
    clock = {"E2FSPROGS_FAKE_TIME": str(epoch), "SOURCE_DATE_EPOCH": str(epoch)}

    def plan(mke2fs: Sequence[str], place: Path, file: Path) -> list[str]:
        return plan_mke2fs(mke2fs, place, file, disk, uuid)

    lines = map(os.fsencode, plan_inodes(tree, epoch))
    await make_file_system(tools, tree.path, target, plan, clock, lines)


async def make_file_system(
    makers: Makers,
    tree: Path,
    target: Path,
    plan: Plan,
    env: Mapping[str, str],
    lines: Iterable[bytes] | None = None,
    *,
    values: Path | None = None,
) -> str:
    """Make ``target`` from the directory ``tree``, and have debugfs carry out the commands
    ``lines`` in it, in the directory ``values``. Return debugfs's last errors: it goes on after
    one, and ends with 0. Raises ToolError."""
    commands = None if lines is None else target.with_suffix(".debugfs")
    if commands is not None and lines is not None:
        await in_stoppable_thread(partial(_write_lines, commands, lines))
    if isinstance(makers, tuple):
        mke2fs, debugfs = makers
        said = ""
        await run_tool(plan(mke2fs.command, tree, target), env={**mke2fs.env, **env})
        if commands is not None:
            argv = plan_debugfs(debugfs.command, commands, target)
            settings = {**debugfs.env, **env}
            said = await run_tool(argv, env=settings, cwd=values, lines_max=ERRORS_MAX)
    else:
        said = await makers.make_file_system(tree, target, plan, commands, env, values)
    if commands is not None:
        commands.unlink()
    return said


def plan_debugfs(debugfs: Sequence[str], commands: PurePath, target: PurePath) -> list[str]:
    """Return the command line that carries out ``commands`` and prints only errors."""
    argv = [*debugfs, "-w", "-f", str(commands), str(target)]
    return ["sh", "-c", _ERRORS_ONLY, "sh", *argv]


async def make_scratch(
    tree: Path, target: Path, disk: Disk, tools: Makers, binaries: QemuBinaries
) -> None:
    """Make a qcow2 disk with the files in ``tree``, all owned by root, for a short-lived VM. Raises
    ToolError, HostError."""
    assert binaries.img is not None
    raw = target.with_suffix(".raw")

    def plan(mke2fs: Sequence[str], place: Path, file: Path) -> list[str]:
        argv = plan_mke2fs(mke2fs, place, file, disk, uuid4())
        # dpkg syncs after every package, and nobody needs this disk after a crash.
        argv[argv.index(FEATURES)] = FEATURES.replace("has_journal,", "")
        return argv

    root = RootTree(path=tree, owners={})
    lines = itertools.chain(("set_super_value mount_opts nobarrier",), plan_inodes(root, None))
    await make_file_system(tools, tree, raw, plan, {}, map(os.fsencode, lines))
    await run_tool(
        [binaries.img, "convert", "-f", "raw", "-O", "qcow2", raw, target], env=binaries.env
    )
    raw.unlink()


async def make_handed(tree: Path, target: Path, tools: Makers) -> None:
    """Make the raw disk ``target`` with the files in ``tree``, to be read by a VM of a build.
    Raises ToolError."""
    size = await asyncio.to_thread(lambda: sum(_blocks(path) for path in _walk(tree)))

    def plan(mke2fs: Sequence[str], place: Path, file: Path) -> list[str]:
        argv = [*mke2fs, "-q", "-F", "-t", "ext4"]
        argv += ["-O", FEATURES.replace("has_journal,", ""), "-b", "4096", "-m", "0"]
        return [*argv, "-d", str(place), str(file), f"{(size + size // 8) // 1024 + SPARE_KIB}k"]

    await make_file_system(tools, tree, target, plan, {})


def _blocks(path: Path) -> int:
    """Return the bytes of a file's blocks, with its inode."""
    return (-(-path.lstat().st_size // 4096) + 1) * 4096


def plan_mke2fs(
    mke2fs: Sequence[str], tree: Path, target: Path, disk: Disk, uuid: UUID
) -> list[str]:
    """Return the command line of mke2fs."""
    # A sparse file reads as zeros, so the guest's first boots need not clear tables.
    extended = f"hash_seed={uuid},root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0"
    return [
        *mke2fs,
        *("-q", "-F", "-t", "ext4", "-O", FEATURES, "-b", "4096", "-I", "256", "-i", "16384"),
        *("-m", "0", "-L", "quicksand", "-U", str(uuid), "-J", f"size={disk.journal_mib}"),
        *("-E", extended, "-d", str(tree), str(target), f"{disk.size_bytes // 1024}k"),
    ]


def plan_inodes(tree: RootTree, epoch: int | None) -> Iterator[str]:
    """Yield debugfs commands that correct values which mke2fs takes from the host: the times of
    inodes and, if all files belong to the user who builds, their owners. Without ``epoch`` times do
    not matter. Raises HostError for a file name with a quotation mark or a newline."""
    for path in sorted(_walk(tree.path)):
        name = "/" + os.fspath(path.relative_to(tree.path)) if path != tree.path else "/"
        if '"' in name or "\n" in name:
            raise HostError(f"the file name {name!r} is not possible in an image")
        times = () if epoch is None else ("ctime", "atime", "crtime")
        values = dict.fromkeys(times, f"@{epoch}")
        if times and path.is_symlink():
            # mke2fs before 1.47.1 and busybox's tar leave these out.
            values["mtime"] = f"@{int(path.lstat().st_mtime)}"
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
    depend on the time and order of the build's writes. Raises OSError."""
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


def _write_lines(path: Path, lines: Iterable[bytes], stop: Callable[[], None]) -> None:
    with create(path) as file:
        for line in lines:
            stop()
            file.write(line + b"\n")

"""The kernel, initrd and modules of an image of ours, which a container image gets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.error_text import size_text
from quicksand.base.errors import ImageError
from quicksand.base.files import map_os_errors
from quicksand.base.regular import create
from quicksand.base.sharing import copy_sparse
from quicksand.base.threads import in_stoppable_thread
from quicksand.disks.images.disk_headers import disk_errors
from quicksand.disks.images.resolve import ResolvedImage
from quicksand_disks import MalformedError
from quicksand_disks.changes import FileType
from quicksand_disks.ext4 import (
    FileSystem,
    Finder,
    Inode,
    content,
    find_extents,
    opened_file_system,
)

from quicksand_images.oci.tree import Tree

MODULES = "/lib/modules"
MODULES_MAX = 2 * 1024**3
"""Bytes of all modules; a distribution's have 100 to 600 MB."""

MODULE_MAX = 256 * 1024**2
"""Bytes of one; the largest have 60 MB."""

DEPTH_MAX = 40
"""Parts of the path of a module; a distribution's have a dozen."""

_RELEASE = re.compile(r"[0-9][A-Za-z0-9._+~-]{0,100}")
_FILE = re.compile(r"(/[A-Za-z0-9._+,@-]{1,255})+")


@dataclass(frozen=True, slots=True)
class Module:
    """A module, or a table of them, of a kernel."""

    content: Path
    """The file with the contents, until they are added."""
    size: int
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The parts that boot the image."""

    name: str
    arch: Architecture
    digest: str
    cmdline: str
    release: str
    """The kernel's release, which names the directory of its modules."""
    modules: dict[str, Module]
    """The modules and their tables by their paths in the image."""


async def take_base(image: ResolvedImage, place: Path, staging: Path) -> Base:
    """Copy kernel and initrd of ``image`` to ``staging``, and its modules to the new directory
    ``place``. This is done first: from then on the build does not need that image, which may be
    removed. Raises ImageError if the modules are not in a known place, HostError."""
    place.mkdir(mode=0o700)
    with map_os_errors(staging):
        # The store replaces them by links if it has the same files.
        await asyncio.to_thread(copy_sparse, image.kernel, staging / "kernel")
        await asyncio.to_thread(copy_sparse, image.initrd, staging / "initrd")
    with map_os_errors(place):
        modules = await in_stoppable_thread(lambda stop: _take_modules(image, place, stop))
    return Base(
        name=image.name,
        arch=image.guest_arch,
        digest=image.digest,
        cmdline=image.cmdline,
        release=next(iter(modules)).split("/")[3],
        modules=modules,
    )


def _take_modules(image: ResolvedImage, place: Path, stop: Callable[[], None]) -> dict[str, Module]:
    """Copy the modules from the image's lowest layer, which holds its boot files, and return them
    by their paths below `MODULES`. Raises ImageError, OSError."""
    try:
        with disk_errors(), opened_file_system(image.chain[:1]) as filesystem:
            found = _find_modules(image, filesystem, stop)
            modules = {}
            for number, (path, inode) in enumerate(found.items()):
                stop()
                data = content(filesystem, inode, MODULE_MAX)
                with create(place / str(number)) as file:
                    file.write(data)
                modules[path] = Module(place / str(number), size=len(data), mode=inode.mode)
            return modules
    except MalformedError as error:
        raise _unfit(image, f"its disk cannot be read: {error}") from error


def _find_modules(
    image: ResolvedImage, filesystem: FileSystem, stop: Callable[[], None]
) -> dict[str, Inode]:
    """Return the files of the one kernel that has modules. Raises MalformedError, ImageError."""
    releases: dict[str, Inode] = {}
    for root in (MODULES, f"/usr{MODULES}"):  # where /lib is a link to it
        directory = Finder(filesystem).find(root)
        if directory is not None and directory.type is FileType.DIRECTORY:
            releases |= _entries(filesystem, directory)
    name = next(iter(releases), "")
    if len(releases) != 1 or not _RELEASE.fullmatch(name):
        raise _unfit(image, f"it has the modules of {len(releases) or 'no'} kernels, not of one")
    found: dict[str, Inode] = {}
    waiting = [(f"{MODULES}/{name}", releases[name])]
    while waiting:
        stop()
        path, inode = waiting.pop()
        if path.count("/") > DEPTH_MAX:
            raise _unfit(image, "its modules lie in too many directories")
        if inode.type is FileType.DIRECTORY:
            inner = sorted(_entries(filesystem, inode).items(), reverse=True)
            waiting += [(f"{path}/{name}", one) for name, one in inner]
        elif inode.type is FileType.FILE:
            # A link (build, source) leads to files that only a compiler needs.
            found[path] = inode
    if bad := next((path for path in found if not _FILE.fullmatch(path)), None):
        raise _unfit(image, f"it has a module with the name {bad[:200]!r}")
    if sum(inode.size for inode in found.values()) > MODULES_MAX:
        raise _unfit(image, f"its modules have more than {size_text(MODULES_MAX)}")
    if not found:
        raise _unfit(image, "it has no modules")
    return found


def _entries(filesystem: FileSystem, inode: Inode) -> dict[str, Inode]:
    """Return the entries of a directory. Raises MalformedError, ImageError."""
    entries = filesystem.entries(inode, find_extents(filesystem, inode))
    return {
        name.decode("utf-8", "surrogateescape"): filesystem.inode(number)
        for name, number in entries.items()
    }


def _unfit(image: ResolvedImage, why: str) -> ImageError:
    return ImageError(
        f"the kernel of the image {image.name!r} cannot be used: {why}",
        hint="--kernel-from debian uses that of the default image",
    )


def add_modules(tree: Tree, base: Base, mtime: int) -> None:
    """Put the modules into an image, in place of those for the same kernel. Raises ImageError."""
    tree.remove(f"{MODULES}/{base.release}")
    for path, module in base.modules.items():
        tree.put_file(path, module.content, size=module.size, mtime=mtime, mode=module.mode & 0o777)

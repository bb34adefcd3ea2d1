"""The kernel, initrd and modules of an image of ours, which a container image is given."""

from __future__ import annotations

import asyncio
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.files import map_os_errors
from quicksand.base.text import size_text
from quicksand.base.tools import run_tool
from quicksand.disks.images.resolve import ResolvedImage
from quicksand.qemu.binaries import QemuBinaries

from quicksand_images.oci.ext4 import Found, copy_out, list_tree
from quicksand_images.oci.tree import Tree
from quicksand_images.toolbox import Tool

MODULES = "/lib/modules"
MODULES_MAX = 2 * 1024**3
"""Bytes of all modules; a distribution's have 100 to 600 MB."""

_RELEASE = re.compile(r"[0-9][A-Za-z0-9._+~-]{0,100}")
_FILE = re.compile(r"(/[A-Za-z0-9._+,@-]{1,255})+")
_MAGIC_AT, _MAGIC = 1080, b"\x53\xef"
"""Where an ext4 file system that fills its disk says what it is (Linux, fs/ext4/ext4.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What boots the image."""

    name: str
    arch: Architecture
    digest: str
    cmdline: str
    release: str
    """The kernel's release, which names the directory of its modules."""
    modules: dict[str, tuple[Path, Found]]
    """The modules and their tables by their paths in the image, and where they wait."""


async def take_base(
    image: ResolvedImage, place: Path, staging: Path, binaries: QemuBinaries, debugfs: Tool
) -> Base:
    """Copy kernel and initrd of ``image`` to ``staging``, and its modules to the new directory
    ``place``. Raises ImageError if the modules are not where they can be found, HostError."""
    assert binaries.img is not None
    place.mkdir(mode=0o700)
    with map_os_errors(staging):
        await asyncio.to_thread(shutil.copyfile, image.kernel, staging / "kernel")
        await asyncio.to_thread(shutil.copyfile, image.initrd, staging / "initrd")
    raw = place / "base.raw"
    # The lowest layer: what boots an image is in its base.
    disk = image.chain[0]
    await run_tool(
        [binaries.img, "convert", "-f", "qcow2", "-O", "raw", disk, raw], env=binaries.env
    )
    try:
        release, modules = await _take_modules(image, raw, place, debugfs)
    finally:
        raw.unlink(missing_ok=True)
    return Base(
        name=image.name,
        arch=image.guest_arch,
        digest=image.digest,
        cmdline=image.cmdline,
        release=release,
        modules=modules,
    )


async def _take_modules(
    image: ResolvedImage, raw: Path, place: Path, debugfs: Tool
) -> tuple[str, dict[str, tuple[Path, Found]]]:
    if not await asyncio.to_thread(_is_ext4, raw):
        raise _unfit(image, "its disk is not one ext4 file system")
    found = await list_tree(raw, debugfs, MODULES)
    releases = {path.split("/")[3] for path in found}
    if len(releases) != 1 or not _RELEASE.fullmatch(release := releases.pop()):
        raise _unfit(image, f"it has the modules of {len(releases) or 'no'} kernels, not of one")
    # A link (build, source) leads to what only a compiler needs.
    files = {path: one for path, one in found.items() if one.mode & 0o170000 == 0o100000}
    if bad := next((path for path in files if not _FILE.fullmatch(path)), None):
        raise _unfit(image, f"it has a module with the name {bad[:200]!r}")
    if sum(one.size for one in files.values()) > MODULES_MAX:
        raise _unfit(image, f"its modules have more than {size_text(MODULES_MAX)}")
    places = {path: place / str(number) for number, path in enumerate(files)}
    await copy_out(raw, debugfs, places)
    return release, {path: (places[path], one) for path, one in files.items()}


def _is_ext4(raw: Path) -> bool:
    with raw.open("rb") as file:
        file.seek(_MAGIC_AT)
        return file.read(2) == _MAGIC


def _unfit(image: ResolvedImage, why: str) -> ImageError:
    return ImageError(
        f"the kernel of the image {image.name!r} cannot be used: {why}",
        hint="--kernel-from debian uses that of the default image",
    )


def add_modules(tree: Tree, base: Base, mtime: int) -> None:
    """Put the modules into an image, in place of those for the same kernel. Raises ImageError."""
    tree.remove(f"{MODULES}/{base.release}")
    for path, (content, found) in base.modules.items():
        tree.put_file(path, content, size=found.size, mtime=mtime, mode=found.mode & 0o777)

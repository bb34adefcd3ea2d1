"""The common parts of the two ways to make a root file system; removing a build's directory."""

from __future__ import annotations

import asyncio
import contextlib
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.removal import remove
from quicksand.base.tools import run_tool

from quicksand_images.recipe import ALPINE, Recipe
from quicksand_images.toolbox import find_tar

WORK = "quicksand-build"
"""The directory in the root file system for temporary files of the build."""

DPKG_CONFIG = """\
# A sandbox has snapshots: no fsync for every file that is unpacked.
force-unsafe-io
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/lintian/*
path-exclude=/usr/share/locale/*
path-include=/usr/share/locale/locale.alias
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootTree:
    """An unpacked root file system."""

    path: Path
    owners: Mapping[str, tuple[int, int]] | None
    """User and group id by path ("/etc/shadow") of files that are not root's, if all files here
    belong to the user who builds. None if the files have their real owners."""


def hook_environment(recipe: Recipe) -> dict[str, str]:
    """Return the environment of the configuring script, and the script as CUSTOMIZE. Raises
    OSError."""
    system, kernel = recipe.system, recipe.kernel
    return {
        "CUSTOMIZE": configuring_script(recipe),
        "DPKG_CONFIG": DPKG_CONFIG,
        "DISTRIBUTION": system.distribution,
        "KEYS": system.keys,
        "SUITE": system.suite,
        "MIRROR": system.mirror,
        "SECURITY_MIRROR": system.security_mirror,
        "COMPONENTS": " ".join(system.components),
        "USER_NAME": system.user,
        "KERNEL_PACKAGE": kernel.package,
        "PLAIN_MODULES": " ".join(kernel.plain_modules),
        "DROPPED_MODULES": " ".join(kernel.dropped_modules),
        "WORK": f"/{WORK}",
    }


def configuring_script(recipe: Recipe) -> str:
    """Return the shell script that configures the new system: the common part, the recipe's part,
    and the removal of the traces of both. Raises OSError."""
    place = Path(__file__).parent
    names = ("customize.sh", "clean.sh")
    if recipe.system.distribution == ALPINE:
        names = ("customize_alpine.sh", "clean_alpine.sh")
    first, last = ((place / name).read_text(encoding="utf-8") for name in names)
    return f"{first}\n{recipe.script}\n{last}"


async def unpack_tree(archive: Path) -> RootTree:
    """Unpack a tar archive beside itself and remove it. Raises ToolError, OSError."""
    tree = archive.with_suffix("")
    tree.mkdir()
    tree.chmod(0o755)
    # Only root can make device nodes, and the kernel fills the guest's /dev.
    await run_tool(
        [find_tar(), "-C", tree, "--exclude=./dev/*", "--no-same-owner", "-xpf", archive]
    )
    owners = await asyncio.to_thread(read_owners, archive)
    archive.unlink()
    return RootTree(path=tree, owners=owners)


def read_owners(archive: Path) -> dict[str, tuple[int, int]]:
    """Return the owners in a tar archive by path, without those of root's files."""
    with tarfile.open(archive, "r:") as file:
        return {
            "/" + member.name.removeprefix(".").strip("/"): (member.uid, member.gid)
            for member in file
            if member.uid or member.gid
        }


def mounts_below(place: Path) -> list[str]:
    """List the mount points below ``place``."""
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    points = [line.split()[4] for line in text.splitlines()]
    return [point for point in points if point.startswith(f"{place}/")]


def remove_build(place: Path) -> None:
    """Delete a build's directory unless something is mounted in it. The next build of that image
    removes the rest."""
    if mounts_below(place.resolve()):
        return
    with contextlib.suppress(OSError):
        remove(place)

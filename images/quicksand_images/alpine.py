"""Makes a root file system of Alpine's packages, without root: the host verifies what it downloads
and unpacks a small system, in whose VM Alpine's own apk installs everything into a new root."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from quicksand.base.errors import HostError
from quicksand.base.files import map_os_errors
from quicksand.base.progress import Progress
from quicksand.base.regular import open_file
from quicksand.base.threads import in_thread_to_the_end
from quicksand.base.tools import ToolError
from quicksand.guest.agent.session import Session
from quicksand.qemu.binaries import QemuBinaries

from quicksand_images import disk
from quicksand_images.apk import ARCHES, Package, closure
from quicksand_images.apk_file import files_start
from quicksand_images.apk_keys import TrustedKeys
from quicksand_images.apk_mirror import Mirrored, fetch_apks
from quicksand_images.in_vm import build_config, make_boot_files, run_machine, run_script, take_out
from quicksand_images.log import BuildLog
from quicksand_images.recipe import Recipe, System
from quicksand_images.rootfs import WORK, RootTree, hook_environment, unpack_tree
from quicksand_images.shares import OF_ALPINE
from quicksand_images.toolbox import find_tar

FIRST = ("alpine-baselayout", "apk-tools", "busybox", "busybox-binsh")
"""The packages with which the VM boots, besides those that they need."""

TARGET = "/target"
"""The new root in the VM."""

_UNPACK = (
    "--keep-directory-symlink",
    "--no-same-owner",
    # Each file has its checksum in a header of Alpine's.
    "--warning=no-unknown-keyword",
    "--exclude=dev/*",
    "-xzpf",
    "-",
)
_PACK = (
    f"set -o pipefail; cd {TARGET} && find . -xdev | LC_ALL=C sort | tar --no-recursion -T - -cf -"
)
"""Packs the new root. The VM has busybox's tar, which records owners by their numbers as well."""


async def make_alpine_tree(
    recipe: Recipe,
    place: Path,
    binaries: QemuBinaries,
    makers: disk.Makers,
    log: BuildLog,
) -> RootTree:
    """Make the root file system of ``recipe`` in ``place``, a private directory.

    Raises ImageError for files that are not signed by the recipe's keys, ImageNotFound for a
    package that its mirror lacks, HostError (ToolError), MachineError, AgentError. A cancellation
    leaves no process.
    """
    say = log.stage
    log.follow(OF_ALPINE)
    base = place / "base"
    work = base / WORK
    with map_os_errors(place):
        work.mkdir(mode=0o755, parents=True)
        base.chmod(0o755)
        found = await fetch_apks(
            [*recipe.system.packages, *FIRST],
            (),
            repositories(recipe.system),
            recipe.arch,
            work / "apk",
            say,
            keys=await asyncio.to_thread(TrustedKeys, recipe.system.keys),
            alone=[recipe.kernel.package],
        )
        (work / "apk" / "wanted").write_text(
            "".join(f"{name}\n" for name in recipe.system.packages)
        )
        say("unpacking packages", 0, 0)
        await in_thread_to_the_end(lambda: _lay_out(recipe, found, base))
        say("making a disk to install on", 0, 0)
        await asyncio.to_thread(make_boot_files, recipe, base, place)
        await disk.make_scratch(base, place / "base.qcow2", recipe.disk, makers, binaries)
        say("booting", 0, 0)
        config = build_config(str(place / "base.qcow2"), arch=recipe.arch)
        async with run_machine(place, config) as running:
            await running.guarded(_install(running.session, recipe, log))
            say("taking the system out of the VM", 0, 0)
            await running.guarded(take_out(running.session, place / "tree.tar", _PACK))
        return await unpack_tree(place / "tree.tar")


def repositories(system: System) -> list[str]:
    """Return the addresses of the repositories of a system."""
    mirror = system.mirror.rstrip("/")
    return [f"{mirror}/{system.suite}/{component}" for component in system.components]


def _lay_out(recipe: Recipe, found: Mirrored, base: Path) -> None:
    """Unpack the packages with which the VM boots, and the kernel. Raises HostError, ImageError."""
    first = closure(FIRST, found.offers)
    # Its directories, which may be links, are those to which others write.
    for package in sorted(first, key=lambda one: not one.name.startswith("alpine-baselayout")):
        unpack_apk(found.path(package), package, base)
    work = base / WORK
    (work / "kernel").mkdir()
    unpack(found, found.alone, work / "kernel")
    (kernel,) = found.alone
    text = f"Package: {kernel.name}\nVersion: {kernel.version}\n"
    (work / "kernel-package").write_text(text, encoding="ascii")


def unpack(found: Mirrored, packages: Sequence[Package], target: Path) -> None:
    """Unpack fetched packages into ``target``. Raises HostError, ImageError."""
    for package in packages:
        unpack_apk(found.path(package), package, target)


def unpack_apk(path: Path, package: Package, target: Path) -> None:
    """Unpack the files of a package into ``target`` as files of this user. The caller has verified
    its signature. Raises ToolError, HostError, ImageError."""
    start = files_start(path, package)
    if start == 0:
        raise HostError(f"the package {path.name} is not what its list says")
    with open_file(path) as file:
        os.lseek(file.fileno(), start, os.SEEK_SET)
        argv = [find_tar(), "-C", os.fspath(target), *_UNPACK]
        done = subprocess.run(argv, stdin=file.fileno(), capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[-2000:]
        raise ToolError(f"{path.name} cannot be unpacked into {target}: {said}", output=said)


async def _install(session: Session, recipe: Recipe, log: BuildLog) -> None:
    """Install and configure the packages in the VM."""
    script = Path(__file__).with_name("install_alpine.sh").read_text(encoding="utf-8")
    env = hook_environment(recipe)
    env |= {
        "ARCH": ARCHES[recipe.arch],
        "REPOSITORIES": "\n".join(repositories(recipe.system)),
        "TARGET": TARGET,
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
    }
    say: Progress = log.stage
    await run_script(session, script, env, lambda stage: say(stage, 0, 0), log=log.write)

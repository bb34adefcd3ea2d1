"""Builds an image: recipe -> root file system -> kernel, initrd and disk -> the image store."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from quicksand.base.effort import best_effort
from quicksand.base.errors import DiskSpaceError, HostError, QuicksandError
from quicksand.base.files import map_os_errors, try_lock
from quicksand.base.paths import make_private_dir, paths
from quicksand.base.remedies import Remedy, Words
from quicksand.base.removal import make_marked, remove
from quicksand.base.text import mib_text
from quicksand.base.threads import in_thread_to_the_end
from quicksand.base.tools import Progress, ToolError
from quicksand.disks.images.cpio import build_cpio
from quicksand.disks.images.qcow2 import check_qcow2
from quicksand.disks.images.start_kernel import check_kernel, start_kernel
from quicksand.disks.images.store import ImageStore, StoredImage
from quicksand.qemu import debs
from quicksand.qemu.binaries import QemuBinaries
from quicksand.qemu.provision import ensure_qemu

from quicksand_images import disk, in_vm, kernel, mmdebstrap
from quicksand_images.recipe import Recipe, load_recipe
from quicksand_images.rootfs import WORK, RootTree, configuring_script, remove_build
from quicksand_images.sources import find_keyring, find_mirrors
from quicksand_images.toolbox import Tool

FORM = 2
"""Part of a recipe's digest; to be raised when the same recipe gives other files. 2: the kernel is
a bzImage; before it was the ELF file inside."""

_LOCK_POLL_S = 0.2
_FULL = ("No space left on device", "Disk quota exceeded")
_POLICY = """\
#!/bin/sh
# No init looks after daemons here, so installing one does not start it. `service NAME start` does.
exit 101
"""


async def ensure_image(
    name: str,
    progress: Progress | None = None,
    *,
    store: ImageStore | None = None,
    any_recipe: bool = False,
) -> StoredImage:
    """Return the image ``name`` from the store. Build it if it is missing or damaged or, without
    ``any_recipe``, if its recipe has changed.

    If another process is building it, take that result. Raises as `build_image`.
    """
    store = store or ImageStore(paths().images)
    recipe = await asyncio.to_thread(load_recipe, name)
    wanted = None if any_recipe else recipe_digest(recipe)

    async def find() -> StoredImage | None:
        image = await asyncio.to_thread(store.get, name)
        fits = image is not None and not image.errors and wanted in (None, image.recipe)
        return image if fits else None

    if (image := await find()) is None:
        async with building(name, recipe.disk.build_bytes, store, progress) as place:
            image = await find() or await _build(recipe, store, place, progress)
    await asyncio.to_thread(make_ahead, image)
    return image


async def build_image(
    recipe: Path | str, *, progress: Progress | None = None, store: ImageStore | None = None
) -> StoredImage:
    """Build an image from a recipe, given as a file or a name, and make it the current version.

    Builds of the same name wait for each other. A failure or a cancellation leaves the store
    unchanged. Raises ImageNotFound, ImageError, HostError (ToolError, DiskSpaceError, …), and
    MachineError or AgentError from a build in a VM.
    """
    loaded = await asyncio.to_thread(load_recipe, recipe)
    store = store or ImageStore(paths().images)
    async with building(loaded.name, loaded.disk.build_bytes, store, progress) as place:
        image = await _build(loaded, store, place, progress)
    await asyncio.to_thread(make_ahead, image)
    return image


def make_ahead(image: StoredImage) -> None:
    """Make what the first start would make of the kernel. That start says if it cannot be."""
    with best_effort("make the kernel for starts", paths().engine_log, QuicksandError):
        start_kernel(image.kernel, paths().cache)


@contextlib.asynccontextmanager
async def building(
    name: str, build_bytes: int, store: ImageStore, progress: Progress | None
) -> AsyncIterator[Path]:
    """Yield a directory to build the image ``name`` in, while holding the lock of the name. Raises
    DiskSpaceError if less than ``build_bytes`` are free."""
    root = await asyncio.to_thread(make_private_dir, store.root)
    while (lock := try_lock(root / f".{name}.lock")) is None:
        if progress is not None:
            progress("waiting for another build of this image", 0, 0)
        await asyncio.sleep(_LOCK_POLL_S)
    try:
        # We hold the lock, so whatever is left belongs to builds that were killed.
        for stale in root.glob(f".building-{name}-*"):
            await asyncio.to_thread(remove_build, stale)
        place = root / f".building-{name}-{secrets.token_hex(4)}"
        with map_os_errors(place):
            make_marked(place)
            _require_space(place, build_bytes)
            # Processes with other user ids, in a user namespace, pass through it too.
            place.chmod(0o755)
        try:
            yield place
        except ToolError as error:
            if any(words in error.output for words in _FULL):
                raise DiskSpaceError(
                    f"no space left while building the image {name!r} in {root}",
                    hint="free some disk space and try again",
                ) from error
            raise
        finally:
            await in_thread_to_the_end(lambda: remove_build(place))
    finally:
        os.close(lock)


def _require_space(place: Path, needed: int) -> None:
    free = shutil.disk_usage(place).free
    if free < needed:
        remove(place)
        raise DiskSpaceError(
            f"building an image needs {mib_text(needed)} in {place.parent}, "
            f"{mib_text(free)} are free",
            hint="free some disk space, or set QUICKSAND_DATA_DIR to another disk",
        )


async def _build(
    recipe: Recipe, store: ImageStore, place: Path, progress: Progress | None
) -> StoredImage:
    say = progress or (lambda stage, done, total: None)
    binaries = await ensure_qemu(progress, arch=recipe.arch.value)
    tools = await disk.require_filesystem_tools(place, progress)
    started = time.time()
    tree = await _make_tree(recipe, place, binaries, tools, progress)
    staging = place / "staging"
    staging.mkdir(mode=0o755)
    say("making kernel and initrd", 0, 3)
    facts = await asyncio.to_thread(_make_boot_files, recipe, tree.path, staging)
    epoch = await asyncio.to_thread(_finish_tree, tree, started)
    uuid = content_uuid(recipe, facts["packages"], epoch)
    say("making the file system", 1, 3)
    raw = place / "disk.raw"
    await disk.make_ext4(tree, raw, recipe.disk, tools=tools, uuid=uuid, epoch=epoch)
    say("compressing the disk", 2, 3)
    await disk.make_qcow2(raw, staging / "disk.qcow2", binaries)
    header = await asyncio.to_thread(check_qcow2, staging / "disk.qcow2")
    manifest = {
        "name": recipe.name,
        "version": recipe.version,
        "arch": recipe.arch.value,
        "recipe": recipe_digest(recipe),
        "created": epoch,
        "cmdline": recipe.kernel.cmdline,
        "virtual_size": header.virtual_size,
        "filesystem_uuid": str(uuid),
        "init": None,
        "user": recipe.system.user,
        "suite": recipe.system.suite,
        "machine": dict(recipe.machine),
        **facts,
        "files": {
            "disk": {"name": "disk.qcow2"},
            "kernel": {"name": "kernel"},
            "initrd": {"name": "initrd"},
        },
    }
    return await in_thread_to_the_end(lambda: store.publish(staging, manifest))


async def _make_tree(
    recipe: Recipe,
    place: Path,
    binaries: QemuBinaries,
    tools: tuple[Tool, Tool],
    progress: Progress | None,
) -> RootTree:
    """Make the root file system in the fastest way that this host allows."""
    if not debs.is_apt_host():
        raise HostError(
            "images can be built on Debian and Ubuntu only",
            hint=Words(
                "on such a machine ", Remedy("build_any_image"), ", then copy the image's directory"
            ),
        )
    keyring = await find_keyring(recipe, place)
    mirrors = await asyncio.to_thread(find_mirrors, recipe)
    builder = await mmdebstrap.find_builder(place, progress)
    if builder is not None:
        return await mmdebstrap.make_tree(
            recipe, builder, place, keyring=keyring, mirrors=mirrors, progress=progress
        )
    return await in_vm.make_tree(
        recipe,
        place,
        keyring=keyring,
        mirrors=mirrors,
        binaries=binaries,
        tools=tools,
        progress=progress,
    )


def _make_boot_files(recipe: Recipe, tree: Path, staging: Path) -> dict[str, Any]:
    """Write the kernel and the initrd to ``staging``; return what the manifest says of them."""
    work = tree / WORK
    release = (work / "release").read_text(encoding="ascii").strip()
    kernel_package = (work / "kernel-package").read_text(encoding="utf-8")
    modules = tree / "usr" / "lib" / "modules" / release
    with map_os_errors(staging):
        shutil.copyfile(work / "bzimage", staging / "kernel")
        check_kernel(staging / "kernel")
        entries = kernel.initrd_entries(modules, recipe.kernel.boot_modules)
        (staging / "initrd").write_bytes(build_cpio(entries))
    lines = (work / "packages").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(": ", 1) for line in kernel_package.splitlines())
    return {
        "kernel_release": release,
        "kernel_package": {"name": fields["Package"], "version": fields["Version"]},
        "packages": dict(line.split("\t", 1) for line in lines),
    }


def _finish_tree(tree: RootTree, started: float) -> int:
    """Remove what only the build needed, make times repeatable, and return the newest time."""
    place = tree.path.parent
    remove(place, part=f"{tree.path.name}/{WORK}")
    for name in ("dev", "run", "tmp"):
        for entry in (tree.path / name).iterdir():
            remove(place, part=f"{tree.path.name}/{name}/{entry.name}")
    for lock in ("var/lib/apt/lists/lock", "var/cache/apt/archives/lock"):
        (tree.path / lock).unlink(missing_ok=True)
    policy = tree.path / "usr" / "sbin" / "policy-rc.d"
    policy.write_text(_POLICY, encoding="ascii")
    policy.chmod(0o755)
    epoch = disk.newest_time(tree.path, started)
    disk.clamp_times(tree.path, epoch)
    return epoch


def recipe_digest(recipe: Recipe) -> str:
    """Return the digest of a recipe, of the script that configures the system, and of `FORM`.
    Raises OSError."""
    text = f"{FORM}\n{recipe!r}{configuring_script(recipe)}"
    return hashlib.sha256(text.encode()).hexdigest()


def content_uuid(recipe: Recipe, packages: dict[str, str], epoch: int) -> UUID:
    """Return the UUID of the file system, which is equal for equal contents."""
    text = "\n".join([recipe.name, str(epoch), *(f"{k} {v}" for k, v in sorted(packages.items()))])
    return uuid5(NAMESPACE_URL, f"quicksand-image:{text}")

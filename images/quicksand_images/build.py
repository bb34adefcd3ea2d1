"""Builds an image: recipe -> root file system -> kernel, initrd and disk -> the image store."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from quicksand.base.arch import Architecture
from quicksand.base.effort import best_effort
from quicksand.base.error_text import mib_text
from quicksand.base.errors import (
    DiskSpaceError,
    HostError,
    ImageError,
    ImageNotFound,
    QuicksandError,
)
from quicksand.base.files import give_back, map_os_errors, try_named_lock
from quicksand.base.listing import own_directories
from quicksand.base.paths import make_private_dir, paths
from quicksand.base.progress import Course, Progress
from quicksand.base.removal import make_marked, remove
from quicksand.base.threads import in_thread_to_the_end
from quicksand.base.tools import ToolError
from quicksand.disks.images.boot_files import build_cpio, check_kernel, start_kernel
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.recipes import has_recipe, recipe_names
from quicksand.disks.images.stored_image import StoredImage
from quicksand.disks.packages.names import PUBLISHED
from quicksand.qemu.binaries import QemuBinaries
from quicksand.qemu.provision import ensure_qemu

from quicksand_images import disk, fetching, in_vm, kernel, mmdebstrap
from quicksand_images.bases import system_facts
from quicksand_images.benches import Bench
from quicksand_images.fitting import find_equal, find_stored, stays
from quicksand_images.layers import build_layer, layer_digest
from quicksand_images.log import BuildLog, build_log
from quicksand_images.published import naming_published
from quicksand_images.recipe import ALPINE, DEPTH_MAX, Layer, Recipe, read_recipe
from quicksand_images.rootfs import WORK, RootTree, configuring_script, remove_build
from quicksand_images.shares import BASE_UNTIL, INSTALLING
from quicksand_images.sources import find_keyring, find_mirrors
from quicksand_images.toolbox import require_gnu_tar
from quicksand_images.workshop import find_bench

FORM = 2
"""A part of a recipe's digest; raised when the same recipe gives other files. 2: the kernel is a
bzImage; before it was the ELF file inside."""

logger = logging.getLogger("quicksand")

_IN_VM = (
    "this user can make no namespaces here, so the system is installed in a virtual machine: that "
    "takes 3 to 15 minutes, and one with KVM; so it does with the package uidmap and a line for "
    "this user in /etc/subuid and in /etc/subgid"
)

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
    arch: Architecture | str | None = None,
    store: ImageStore | None = None,
    any_recipe: bool = False,
    any_base: bool = False,
) -> StoredImage:
    """Return the image ``name`` for guests of ``arch`` (see `read_recipe`) from the store. Build it
    if it is missing or damaged or, without ``any_recipe``, if its recipe has changed or, without
    ``any_base`` either, the contents of the image below it. ``progress`` reports that first.

    If another process is building it, take that result. Raises as `build_image`.
    """
    store = store or ImageStore(paths().images)
    if any_base and not any_recipe:
        recipe = await asyncio.to_thread(read_recipe, name, arch)
        any_recipe = isinstance(recipe, Layer) and await stays(recipe, store, progress)
    return await _ensure(name, store, progress, arch=arch, any_recipe=any_recipe, above=())


async def _ensure(
    name: str,
    store: ImageStore,
    progress: Progress | None,
    *,
    arch: Architecture | str | None,
    any_recipe: bool,
    above: tuple[str, ...],
) -> StoredImage:
    async def find(digest: str | None) -> StoredImage | None:
        image = await asyncio.to_thread(find_stored, store, name, recipe.arch)
        fits = image is not None and not image.errors and digest in (None, image.recipe)
        return image if fits else None

    recipe = await asyncio.to_thread(read_recipe, name, arch)
    image = await find(None) if any_recipe else None
    course = Course(progress)
    if image is None:
        with naming_published(*above, name, arch=recipe.arch):
            base = await _base_of(recipe, store, course, any_recipe=any_recipe, above=above)
            wanted = None if any_recipe else _digest_of(recipe, base)
            image = await find(wanted)
            if image is None and isinstance(recipe, Layer):
                assert base is not None
                image = await find_equal(recipe, base, store, progress)
            if image is None:
                told = course.part()
                async with building(name, _space_of(recipe), store, told) as (place, log):
                    image = await find(wanted) or await _build_any(recipe, base, store, place, log)
    await asyncio.to_thread(make_ahead, image)
    return image


async def build_image(
    recipe: Path | str,
    *,
    arch: Architecture | str | None = None,
    progress: Progress | None = None,
    store: ImageStore | None = None,
    in_sandbox: bool = False,
) -> StoredImage:
    """Build an image from a recipe, given as a file or a name, for guests of ``arch`` (see
    `read_recipe`), and make it the current version. One for another architecture than this host's
    is kept beside it, for sandboxes that request it. If it is a layer, the image below it is built
    or installed first if it is missing.

    Programs of apt and e2fsprogs that this host lacks run in a sandbox of another image, which is
    installed if there is none; with ``in_sandbox`` all of them do.

    Builds of the same name wait for each other. A failure or a cancellation leaves the store
    unchanged. Raises ImageNotFound, ImageError (RecipeError), HostError (ToolError, DiskSpaceError,
    …), and MachineError or AgentError from a build in a VM.
    """
    loaded, course = await asyncio.to_thread(read_recipe, recipe, arch), Course(progress)
    store = store or ImageStore(paths().images)
    # A recipe of the user's own is not published by anybody.
    names = [loaded.name] if str(recipe) == loaded.name else []
    with naming_published(*names, arch=loaded.arch):
        base = await _base_of(loaded, store, course, any_recipe=True, above=())
        async with building(loaded.name, _space_of(loaded), store, course.part()) as (place, log):
            image = await _build_any(loaded, base, store, place, log, in_sandbox=in_sandbox)
    await asyncio.to_thread(make_ahead, image)
    return image


async def _base_of(
    recipe: Recipe | Layer,
    store: ImageStore,
    course: Course,
    *,
    any_recipe: bool,
    above: tuple[str, ...],
) -> StoredImage | None:
    """Return the image below a layer, building or installing it if it is missing; None for a whole
    system. Raises ImageNotFound if it is unknown, and as `build_image`."""
    if not isinstance(recipe, Layer):
        return None
    above = (*above, recipe.name)
    if recipe.base in above or len(above) > DEPTH_MAX:
        raise ImageError(
            f"{' on '.join((*above, recipe.base))}: an image cannot be based on itself, or "
            "on so many others"
        )
    arch = recipe.arch
    there = await asyncio.to_thread(find_stored, store, recipe.base, arch)
    if has_recipe(recipe.base) and (there is None or there.errors or not any_recipe):
        told = course.part(until=BASE_UNTIL)
        there = await _ensure(
            recipe.base, store, told, arch=arch, any_recipe=any_recipe, above=above
        )
    elif there is None and recipe.base in PUBLISHED:
        told = course.part(INSTALLING, until=BASE_UNTIL)
        found = await fetching.install_package(recipe.base, store, arch=arch, progress=told)
        there = found[-1].image
    if there is None:
        raise ImageNotFound(
            f"Image not found: {recipe.base!r}, the base of {recipe.name!r}, is neither here nor "
            "is there a recipe of that name",
            hint=f"build {recipe.base!r} first; there are recipes for {', '.join(recipe_names())}",
        )
    if there.errors:
        raise ImageError(f"the base {there.name!r} is damaged: {'; '.join(there.errors)}")
    return there


def _digest_of(recipe: Recipe | Layer, base: StoredImage | None) -> str:
    """Return the digest of a recipe and of the image below it. Raises OSError."""
    if not isinstance(recipe, Layer):
        return recipe_digest(recipe)
    assert base is not None
    return layer_digest(recipe, base.digest)


def _space_of(recipe: Recipe | Layer) -> int:
    """Return the free bytes that a build needs."""
    return recipe.build_bytes if isinstance(recipe, Layer) else recipe.disk.build_bytes


async def _build_any(
    recipe: Recipe | Layer,
    base: StoredImage | None,
    store: ImageStore,
    place: Path,
    log: BuildLog,
    *,
    in_sandbox: bool = False,
) -> StoredImage:
    async def find(apt: bool) -> Bench:
        return await find_bench(recipe.name, place, store, log, apt=apt, in_sandbox=in_sandbox)

    if not isinstance(recipe, Layer):
        bench = await find(recipe.system.distribution != ALPINE)
        return await _build(recipe, store, place, log, bench)
    assert base is not None
    return await build_layer(recipe, base, store, place, log, find_bench=find)


def make_ahead(image: StoredImage) -> None:
    """Make what the first start would make from the kernel. That start reports if this fails."""
    with best_effort("make the kernel for starts", paths().engine_log, QuicksandError):
        start_kernel(image.kernel, paths().cache)


@contextlib.asynccontextmanager
async def building(
    name: str, build_bytes: int, store: ImageStore, progress: Progress | None
) -> AsyncIterator[tuple[Path, BuildLog]]:
    """Yield a directory in which to build the image ``name``, and the log of the build, while
    holding the lock of the name. Raises DiskSpaceError if less than ``build_bytes`` are free."""
    root = await asyncio.to_thread(make_private_dir, store.root)
    while (lock := try_named_lock(path := root / f".{name}.lock")) is None:
        if progress is not None:
            progress("waiting for another build of this image", 0, 0)
        await asyncio.sleep(_LOCK_POLL_S)
    try:
        await _sweep(root, name)
        place = root / f".building-{name}-{secrets.token_hex(4)}"
        with map_os_errors(place):
            make_marked(place)
            _require_space(place, build_bytes)
            # Processes with other user ids, in a user namespace, pass through it, too.
            place.chmod(0o755)
        try:
            with build_log(name, progress) as log:
                yield place, log
        except asyncio.CancelledError:
            if progress is not None:
                progress("ending, and removing what was begun", 0, 0)
            raise
        except ToolError as error:
            if any(words in error.output for words in _FULL):
                raise DiskSpaceError(
                    f"no space left while building the image {name!r} in {root}",
                    hint="free some disk space and try again",
                ) from error
            raise
        finally:
            await in_thread_to_the_end(lambda: remove_build(place))
            # A machine that had not ended yet could still write to the files of a killed build.
            await _sweep(root, name)
    finally:
        give_back(path, lock)


async def _sweep(root: Path, name: str) -> None:
    """Remove the remains of killed builds of an image. The caller holds the lock of the name, so no
    other build is under way."""
    # Not those of an image whose name only begins in that way.
    for stale in own_directories(root, re.compile(rf"\.building-{re.escape(name)}-[0-9a-f]{{8}}")):
        await in_thread_to_the_end(partial(remove_build, stale))


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
    recipe: Recipe, store: ImageStore, place: Path, log: BuildLog, bench: Bench
) -> StoredImage:
    say = log.stage
    binaries = await ensure_qemu(log.aside, arch=recipe.arch.value)
    await require_gnu_tar()
    await asyncio.to_thread(require_case, place)
    started = time.time()
    tree = await _make_tree(recipe, place, binaries, bench, log)
    staging = place / "staging"
    staging.mkdir(mode=0o755)
    say("making kernel and initrd", 0, 0)
    facts = await asyncio.to_thread(_make_boot_files, recipe, tree.path, staging)
    epoch = await asyncio.to_thread(_finish_tree, recipe, tree, started)
    uuid = content_uuid(recipe, facts["packages"], epoch)
    say("making the file system", 0, 0)
    raw = place / "disk.raw"
    async with bench.opened(apt=False) as opened:
        makers = opened.makers
        await disk.make_ext4(tree, raw, recipe.disk, tools=makers, uuid=uuid, epoch=epoch)
    say("compressing the disk", 0, 0)
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
        "system": system_facts(recipe.system),
        "packages_of": ALPINE if recipe.system.distribution == ALPINE else "",
        **facts,
        "files": {
            "disk": {"name": "disk.qcow2"},
            "kernel": {"name": "kernel"},
            "initrd": {"name": "initrd"},
        },
    }
    return await in_thread_to_the_end(lambda: publish(recipe, store, staging, manifest))


def publish(
    recipe: Recipe, store: ImageStore, staging: Path, manifest: dict[str, Any]
) -> StoredImage:
    """Put the finished files into the store. An image for another processor than this host's does
    not take the place of one for this host's. Raises as `ImageStore.publish`."""
    return store.publish(staging, manifest, current=recipe.arch is Architecture.host())


async def _make_tree(
    recipe: Recipe, place: Path, binaries: QemuBinaries, bench: Bench, log: BuildLog
) -> RootTree:
    """Make the root file system in the fastest way that this host allows."""
    if recipe.system.distribution == ALPINE:
        async with bench.opened(apt=False) as opened:
            makers = opened.makers
            return await fetching.make_alpine_tree(recipe, place, binaries, makers, log)
    # mmdebstrap runs programs of the new system, which this processor must understand.
    is_possible = bench.has_apt and recipe.arch is Architecture.host()
    builder = await mmdebstrap.find_builder(place, log.aside) if is_possible else None
    if builder is None:
        if is_possible:
            logger.warning(_IN_VM)
        return await in_vm.make_tree(recipe, place, bench=bench, binaries=binaries, log=log)
    keyring = await find_keyring(recipe.system, place)
    mirrors = await asyncio.to_thread(find_mirrors, recipe.system)
    return await mmdebstrap.make_tree(
        recipe, builder, place, keyring=keyring, mirrors=mirrors, log=log
    )


def require_case(place: Path) -> None:
    """Raise HostError if the file system ignores case in names: a system has names that differ only
    in that."""
    probe = place / "case"
    with map_os_errors(probe):
        probe.touch()
        is_same = probe.with_name("CASE").exists()
        probe.unlink()
    if is_same:
        raise HostError(
            f"the file system of {place.parent} does not tell names apart that differ in case, "
            "which a system is full of",
            hint="set QUICKSAND_DATA_DIR to a disk with a case-sensitive file system",
        )


def _make_boot_files(recipe: Recipe, tree: Path, staging: Path) -> dict[str, Any]:
    """Write the kernel and the initrd to ``staging``; return their entries in the manifest."""
    work = tree / WORK
    release = (work / "release").read_text(encoding="ascii").strip()
    kernel_package = (work / "kernel-package").read_text(encoding="utf-8")
    modules = tree / "usr" / "lib" / "modules" / release
    if not modules.is_dir():  # Alpine's /usr is not merged
        modules = tree / "lib" / "modules" / release
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


def _finish_tree(recipe: Recipe, tree: RootTree, started: float) -> int:
    """Remove files that only the build needed, make times repeatable; return the newest time."""
    place = tree.path.parent
    remove(place, part=f"{tree.path.name}/{WORK}")
    for name in ("dev", "run", "tmp"):
        for entry in (tree.path / name).iterdir():
            remove(place, part=f"{tree.path.name}/{name}/{entry.name}")
    for lock in ("var/lib/apt/lists/lock", "var/cache/apt/archives/lock"):
        (tree.path / lock).unlink(missing_ok=True)
    if recipe.system.distribution != ALPINE:
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

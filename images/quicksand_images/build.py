"""Building an image: recipe -> root file system -> kernel, initrd and disk -> the image store."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, UUID, uuid5

from quicksand.errors import DiskSpaceError
from quicksand.host.files import map_os_errors, try_lock
from quicksand.host.paths import make_private_dir, paths
from quicksand.host.tools import Progress, ToolError
from quicksand.images.cpio import build_cpio
from quicksand.images.qcow2 import check_qcow2
from quicksand.images.store import ImageStore, StoredImage
from quicksand.qemu.provision import ensure_qemu

from quicksand_images import disk, kernel
from quicksand_images.recipe import Recipe, load_recipe
from quicksand_images.rootfs import WORK, RootTree, make_tree, remove_build

SPACE_NEEDED = 1536 * 1024 * 1024
"""Bytes: the unpacked system, the file system and the result, at one time."""

_LOCK_POLL_S = 0.2
_FULL = ("No space left on device", "Disk quota exceeded")
_POLICY = """\
#!/bin/sh
# No init looks after daemons here, so installing one does not start it. `service NAME start` does.
exit 101
"""

T = TypeVar("T")


async def ensure_image(
    name: str, progress: Progress | None = None, *, store: ImageStore | None = None
) -> StoredImage:
    """The image ``name`` from the store, built if it is missing, damaged or of an older recipe.

    If another process is building it, its result is taken. Raises as `build_image` does.
    """
    store = store or ImageStore(paths().images)
    recipe = await asyncio.to_thread(load_recipe, name)
    wanted = recipe_digest(recipe)
    image = await asyncio.to_thread(store.get, name)
    if image is not None and not image.errors and image.recipe == wanted:
        return image
    async with _building(recipe.name, store, progress) as place:
        image = await asyncio.to_thread(store.get, name)
        if image is not None and not image.errors and image.recipe == wanted:
            return image
        return await _build(recipe, store, place, progress)


async def build_image(
    recipe: Path | str, *, progress: Progress | None = None, store: ImageStore | None = None
) -> StoredImage:
    """Build an image from a recipe (a file or the name of one of ours) and make it the current one.

    One build of a name at a time; others wait. After a failure or cancellation the store is as it
    was before. Raises ImageNotFound, ImageError, HostError (ToolError, DiskSpaceError, …).
    """
    loaded = await asyncio.to_thread(load_recipe, recipe)
    store = store or ImageStore(paths().images)
    async with _building(loaded.name, store, progress) as place:
        return await _build(loaded, store, place, progress)


@contextlib.asynccontextmanager
async def _building(name: str, store: ImageStore, progress: Progress | None) -> AsyncIterator[Path]:
    """A directory to build in, beside the result; one at a time for a name."""
    root = await asyncio.to_thread(make_private_dir, store.root)
    while (lock := try_lock(root / f".{name}.lock")) is None:
        if progress is not None:
            progress("waiting for another build of this image", 0, 0)
        await asyncio.sleep(_LOCK_POLL_S)
    try:
        # Whoever left these was killed: the lock is ours.
        for stale in root.glob(f".building-{name}-*"):
            await asyncio.to_thread(remove_build, stale)
        place = root / f".building-{name}-{secrets.token_hex(4)}"
        with map_os_errors(place):
            place.mkdir(mode=0o755)
            _require_space(place)
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
            await _in_thread_to_the_end(lambda: remove_build(place))
    finally:
        os.close(lock)


def _require_space(place: Path) -> None:
    free = shutil.disk_usage(place).free
    if free < SPACE_NEEDED:
        place.rmdir()
        raise DiskSpaceError(
            f"building an image needs {SPACE_NEEDED >> 20} MiB in {place.parent}, "
            f"{free >> 20} MiB are free",
            hint="free some disk space, or set QUICKSAND_DATA_DIR to another disk",
        )


async def _build(
    recipe: Recipe, store: ImageStore, place: Path, progress: Progress | None
) -> StoredImage:
    say = progress or (lambda stage, done, total: None)
    binaries = await ensure_qemu(progress, arch=recipe.arch.value)
    tools = await disk.require_filesystem_tools(place, progress)
    started = time.time()
    tree = await make_tree(recipe, place, progress=progress)
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
        **facts,
        "files": {
            "disk": {"name": "disk.qcow2"},
            "kernel": {"name": "kernel"},
            "initrd": {"name": "initrd"},
        },
    }
    return await _in_thread_to_the_end(lambda: store.publish(staging, manifest))


def _make_boot_files(recipe: Recipe, tree: Path, staging: Path) -> dict[str, Any]:
    """Write kernel and initrd to ``staging``; return the manifest's facts about them."""
    work = tree / WORK
    release = (work / "release").read_text(encoding="ascii").strip()
    kernel_package = (work / "kernel-package").read_text(encoding="utf-8")
    modules = tree / "usr" / "lib" / "modules" / release
    with map_os_errors(staging):
        (staging / "kernel").write_bytes(kernel.start_file((work / "bzimage").read_bytes()))
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
    """Remove what only the build needed and make times repeatable. Returns the newest time."""
    shutil.rmtree(tree.path / WORK)
    for name in ("dev", "run", "tmp"):
        for entry in (tree.path / name).iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    policy = tree.path / "usr" / "sbin" / "policy-rc.d"
    policy.write_text(_POLICY, encoding="ascii")
    policy.chmod(0o755)
    epoch = disk.newest_time(tree.path, started)
    disk.clamp_times(tree.path, epoch)
    return epoch


def recipe_digest(recipe: Recipe) -> str:
    """Identity of what a recipe asks for, the script that finishes the system included."""
    script = Path(__file__).with_name("customize.sh").read_bytes()
    return hashlib.sha256(repr(recipe).encode() + script).hexdigest()


def content_uuid(recipe: Recipe, packages: dict[str, str], epoch: int) -> UUID:
    """The file system's identity: equal for equal contents."""
    text = "\n".join([recipe.name, str(epoch), *(f"{k} {v}" for k, v in sorted(packages.items()))])
    return uuid5(NAMESPACE_URL, f"quicksand-image:{text}")


async def _in_thread_to_the_end(function: Callable[[], T]) -> T:
    """Run a short step in a thread; a cancellation takes effect when it has ended, not halfway."""
    task = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise

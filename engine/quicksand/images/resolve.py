"""From the name of an image to its files: a path, the store, or an installed package."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from quicksand.errors import ImageError, ImageNotFound, QuicksandError
from quicksand.host.arch import Architecture
from quicksand.host.paths import Paths
from quicksand.images.qcow2 import check_qcow2
from quicksand.images.store import ImageStore, StoredImage

GROUP = "quicksand.images"
"""Entry-point group of image packages; the name is part of the specification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedImage:
    """The files that a guest boots from."""

    name: str
    chain: tuple[Path, ...]
    """chain[0] is the root base qcow2, the rest overlays, bottom to top. Never written to."""
    kernel: Path
    initrd: Path
    guest_arch: Architecture
    digest: str = ""
    """Identity of all files; "" where nothing vouches for them."""
    version: str = ""
    cmdline: str = ""


@runtime_checkable
class ImageProvider(Protocol):
    """What an image package registers (`quicksand.images` entry points)."""

    name: str

    def resolve(self, arch: str | None = None) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """A line of `quicksand-tui images`."""

    name: str
    source: str
    """"store" or "package"."""
    version: str = ""
    digest: str = ""
    arch: str = ""
    size: int | None = None
    """Allocated bytes, None if unknown."""
    created: float | None = None
    error: str = ""
    """Why it cannot be used, or ""."""


class ImageResolver:
    """Finds images by name. Holds no state but where to look."""

    def __init__(self, paths: Paths) -> None:
        self.store = ImageStore(paths.images)

    def resolve(self, name: str, arch: Architecture) -> ResolvedImage:
        """The image called ``name`` for guests of ``arch``, its disks checked by our own parser.

        Raises ImageNotFound (near names are suggested) or ImageError for a damaged one.
        """
        image = self._find(name, arch)
        if image.guest_arch is not arch:
            raise ImageError(
                f"the image {name!r} is for {image.guest_arch.value}, not for {arch.value}",
                hint=f"leave arch away or set it to {image.guest_arch.value!r}",
            )
        for path in (*image.chain, image.kernel, image.initrd):
            if not path.is_file():
                raise ImageError(f"the image {name!r} is incomplete: {path} does not exist")
        for number, disk in enumerate(image.chain):
            # The block graph is given to QEMU whole, so what an overlay names as its backing file
            # is never opened; a base must name none.
            check_qcow2(disk, allow_backing=number > 0)
        # By one name, whichever way they were found: that of the header above (layout.layer_name).
        return replace(image, chain=tuple(path.resolve() for path in image.chain))

    def _find(self, name: str, arch: Architecture) -> ResolvedImage:
        if "/" in name or name.endswith(".qcow2"):
            return _from_path(Path(name).expanduser(), arch)
        stored = self.store.get(name)
        if stored is not None:
            return _from_store(stored)
        for candidate in (name, f"quicksand-{name}"):
            for entry in _packages():
                if entry.name == candidate:
                    return _from_package(entry, arch)
        raise self._not_found(name)

    def _not_found(self, name: str) -> ImageNotFound:
        names = [info.name for info in self.list()]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        if near:
            hint = "did you mean " + " or ".join(repr(n) for n in near) + "?"
        elif names:
            hint = "there are " + ", ".join(sorted(names))
        else:
            hint = "there are none yet: `quicksand-tui images build debian` makes the default one"
        return ImageNotFound(f"Image not found: {name!r}; {hint}", hint=hint)

    def list(self) -> list[ImageInfo]:
        """Every image, also the broken ones. Never raises for one of them."""
        found = [_stored_info(image) for image in self.store.list()]
        seen = {info.name for info in found}
        for entry in _packages():
            if entry.name not in seen:
                found.append(_package_info(entry))
        return sorted(found, key=lambda info: info.name)


def _packages() -> list[EntryPoint]:
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
            hint=f"`quicksand-tui images build {image.name}` makes it anew",
        )
    return ResolvedImage(
        name=image.name,
        chain=(image.disk,),
        kernel=image.kernel,
        initrd=image.initrd,
        guest_arch=Architecture.parse(image.arch),
        digest=image.digest,
        version=image.version,
        cmdline=image.cmdline,
    )


def _from_path(path: Path, arch: Architecture) -> ResolvedImage:
    """A directory of the store's form, or a qcow2 with its .kernel and .initrd beside it."""
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
    """Ask an image package. Its code is foreign: whatever it raises is shown as its error."""
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

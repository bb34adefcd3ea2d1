"""Finds the files of an image by its name: a path, the store, or an installed package.

Some images of the published packages have a prefix in their names, and are found without it, too;
so an image "agent" is also "quicksand-agent".
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound, QuicksandError
from quicksand.base.paths import Paths, expand
from quicksand.base.regular import open_file
from quicksand.base.remedies import Remedy, Words
from quicksand.disks.images import provider
from quicksand.disks.images.boot_files import check_kernel_arch
from quicksand.disks.images.disk_headers import check_qcow2, require_sane_snapshots
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.recipes import has_recipe, recipe_names
from quicksand.disks.images.stored_image import StoredImage
from quicksand.disks.packages.contents import OverlayImage
from quicksand.disks.packages.names import PUBLISHED, also_called, plain
from quicksand.things.image_info import ImageInfo

if TYPE_CHECKING:
    from quicksand.disks.packages.installed import Package

BUNDLE_SUFFIX = ".quicksand"
"""The end of a bundle's name (specification, "Image Bundle Format")."""

PACKED = (b"\x28\xb5\x2f\xfd", b"\x1f\x8b")
"""The first bytes of files that are compressed with Zstandard (RFC 8878) or gzip (RFC 1952)."""

TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257
TAR_MAGIC_END = TAR_MAGIC_AT + len(TAR_MAGIC)
"""The mark of a tar, and its place in the file (POSIX, ustar interchange format)."""

DEPTH_MAX = 8
"""The most packages that may lie on each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedImage(provider.ResolvedImage):
    """The files from which a guest boots, with nothing left open."""

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
            # QEMU gets the whole block graph from us, so the backing file named by an upper layer
            # is never opened; the lowest layer must not name one.
            check_qcow2(disk, allow_backing=number > 0)
            if not image.digest:
                require_sane_snapshots(disk, str(disk))
        # After the disks, because their errors say more.
        for path in (image.kernel, image.initrd):
            _require_file(name, path)
        check_kernel_arch(name, image.kernel, arch)
        # Resolve links, since headers of upper layers name their base so (layout.layer_name).
        return replace(image, chain=tuple(path.resolve() for path in image.chain))

    def knows(self, name: str, arch: Architecture | None = None) -> bool:
        """Whether ``name`` is a path, or an image in the store or a package, usable or not; with
        ``arch``, not if the store has it for other architectures only."""
        if is_file(name):
            return True
        if (stored := self._get(name, arch)) is not None:
            return bool(stored.errors) or arch is None or stored.arch == arch.value
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
        """Return the image of that name in the store, with the prefix or without: its current
        version or, if that is not for ``arch``, the newest usable one that is."""
        found = (self.store.get(one, arch) for one in also_called(name))
        return next((one for one in found if one is not None), None)

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
            raise ImageError(
                f"the image {package.image!r} is based on itself, or on too many others"
            )
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
                f"the image {above[-1]!r} is based on the image {image.base!r} with the digest "
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
        unpacked = [one for one in self.store.unpacked() if one.name == name]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        if not near:
            near = difflib.get_close_matches(name, sorted({*recipe_names(), *PUBLISHED}), n=2)
        if plain(name) in PUBLISHED:
            hint = Words(
                Remedy("install", name=plain(name)),
                " gets it",
                python=f"it is published as the package quicksand-{plain(name)}",
            )
            hint = Words(hint, "; ", _how_to_name(unpacked)) if unpacked else hint
        elif unpacked:
            hint = _how_to_name(unpacked)
        elif near:
            hint = "did you mean " + " or ".join(repr(n) for n in near) + "?"
        elif names:
            hint = "there are " + ", ".join(names)
        else:
            build = Remedy("build_image", name="debian")
            hint = Words("there are none yet: ", build, " makes the default one")
        return ImageNotFound(Words(f"Image not found: {name!r}; ", hint), hint=hint)

    def list(self, *, every_arch: bool = False) -> list[ImageInfo]:
        """List all images by name, those in the store with ``every_arch`` once for each
        architecture. A broken one carries its error; this never raises."""
        stored = self.store.list()
        if every_arch:
            stored = [one for image in stored for one in self.store.of_all_archs(image)]
        found = [_stored_info(image) for image in stored]
        found += [_unpacked_info(image) for image in self.store.unpacked()]
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
                return info  # known only to its code, which runs when its image is used
            image = self._from_package(package, Architecture.host(), ())
            size = sum(path.stat().st_blocks * 512 for path in image.chain)
        except (QuicksandError, OSError) as error:
            return replace(info, error=str(error))
        return replace(info, arch=image.guest_arch.value, size=size)


def is_file(name: str) -> bool:
    """Whether ``name`` is the path of an image rather than a name."""
    return "/" in name or name.endswith((".qcow2", BUNDLE_SUFFIX))


def is_bundle(name: str) -> bool:
    """Whether ``name`` is the path of a bundle, which may be missing or damaged: a path with a
    bundle's suffix that is not a directory, or a file that begins like a bundle. Blocks for I/O."""
    if not is_file(name):
        return False
    path = expand(name)
    if path.name.endswith(BUNDLE_SUFFIX):
        return not path.is_dir()
    try:
        with open_file(path) as file:
            begin = file.read(TAR_MAGIC_END)
    except (OSError, ValueError):
        return False  # whoever opens it reports the error
    return begin.startswith(PACKED) or begin[TAR_MAGIC_AT:] == TAR_MAGIC


def _how_to_name(unpacked: Sequence[StoredImage]) -> str:
    names = " or ".join(f"{image.versioned!r} (of {image.bundle})" for image in unpacked)
    return f"images of bundles have a digest in their names: {names}"


def _unpacked_info(image: StoredImage) -> ImageInfo:
    return replace(_stored_info(image), name=image.versioned, source="bundle")


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


def _how_to_mend(image: StoredImage) -> Words | str:
    if has_recipe(image.name):
        return Words(Remedy("build_image", name=image.name), " makes it anew")
    if image.package is not None:
        removed, installed = (
            Remedy("remove_image", name=image.name),
            Remedy("install", name=image.name),
        )
        return Words(removed, " removes it, and ", installed, " gets it anew")
    return "make or import it again"


def _from_store(image: StoredImage) -> ResolvedImage:
    if image.errors:
        raise ImageError(
            f"the image {image.name!r} is damaged: {'; '.join(image.errors)}",
            hint=_how_to_mend(image),
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
        return _from_directory(path)
    if not path.exists():
        raise ImageNotFound(f"Image not found: {str(path)!r} does not exist")
    path = path.absolute()
    if is_bundle(str(path)):
        raise ImageError(
            f"{path} is a bundle, and only a new sandbox can start from it as it is",
            hint="start one: then the image in it is here, and its name ends with @ and a digest; "
            "or import the bundle",
        )
    return ResolvedImage(
        name=path.stem,
        chain=(path,),
        kernel=path.with_suffix(".kernel"),
        initrd=path.with_suffix(".initrd"),
        guest_arch=arch,
    )


def _from_directory(path: Path) -> ResolvedImage:
    try:
        return _from_store(ImageStore.load(path))
    except ImageNotFound as error:
        if not path.name.endswith(BUNDLE_SUFFIX):
            raise
        raise ImageNotFound(
            f"{path} is a directory, and a bundle is one file",
            hint="if a bundle was unpacked there, use the file that it came in",
        ) from error


def _ask(package: Package, arch: Architecture) -> ResolvedImage:
    """Ask the code of an image package. It is not ours: all its errors become an ImageError."""
    name = package.entry.name
    try:
        found = package.load_provider(arch)
        told_arch = getattr(found, "guest_arch", None)
        fields: Mapping[str, Any] = {
            "name": str(found.name),
            "chain": tuple(Path(p).absolute() for p in found.chain),
            "kernel": Path(found.kernel).absolute(),
            "initrd": Path(found.initrd).absolute(),
            "guest_arch": arch if told_arch is None else Architecture.parse(told_arch),
        }
    except Exception as error:
        raise ImageError(
            f"the image package {name!r} is broken: its code says {type(error).__name__}: {error}",
            hint=error.advice if isinstance(error, QuicksandError) else "",
        ) from error
    if not fields["chain"]:
        raise ImageError(f"the image package {name!r} names no disk")
    return ResolvedImage(**fields)

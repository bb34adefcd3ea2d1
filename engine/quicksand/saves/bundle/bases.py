"""The image below a save or a sandbox: found for an export, added to the store by an import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.error_text import mib_text
from quicksand.base.errors import BundleError, ImageError, SaveError
from quicksand.base.files import read_json
from quicksand.base.remedies import Remedy, Words
from quicksand.disks.images.image_store import BUNDLE, ImageStore
from quicksand.disks.images.image_store import MANIFEST as IMAGE_MANIFEST
from quicksand.disks.images.recipes import has_recipe
from quicksand.disks.images.resolve import ImageResolver, ResolvedImage
from quicksand.disks.images.stored_image import (
    INITRD_MAX,
    KERNEL_MAX,
    PARTS,
    StoredImage,
    file_name,
    image_digest,
    sha256_file,
)
from quicksand.disks.images.stored_image import KEY as PACKAGE
from quicksand.disks.packages.names import PUBLISHED, plain
from quicksand.saves.bundle.hostile_parts import DiskWatch, check_disk, check_layer
from quicksand.saves.bundle.manifest import (
    IMAGE_FILES,
    Bundle,
    BundleBase,
    Member,
    image_names,
    image_part,
)
from quicksand.saves.bundle.receiving import Members

PART_MAX = {"image.kernel": KERNEL_MAX, "image.initrd": INITRD_MAX}

_OURS = {
    *("schema_version", "name", "version", "digest", "arch", "recipe", "cmdline", "files"),
    *(PACKAGE, BUNDLE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBase:
    """An image that a bundle names or contains."""

    base: BundleBase
    files: Mapping[str, tuple[Path, Member]] = field(default_factory=dict)
    """Path and description by the name in a bundle, in that order; empty if the image itself is not
    here."""


def describe(image: StoredImage) -> FoundBase:
    """Describe an image of the store. Raises OSError, ValueError."""
    about = read_json(image.root / IMAGE_MANIFEST)
    base = BundleBase(
        name=image.name,
        version=image.version,
        digest=image.digest,
        arch=Architecture.parse(image.arch).value,
        recipe=image.recipe,
        cmdline=image.cmdline,
        about={key: value for key, value in about.items() if key not in _OURS},
    )
    files: dict[str, tuple[Path, Member]] = {}
    for name in image_names(len(image.chain)):
        facts = image.files[_part_of(name)]
        member = Member(name=name, size=int(facts["size"]), sha256=str(facts["sha256"]))
        files[name] = (image.root / str(facts["name"]), member)
    return FoundBase(base=base, files=files)


def describe_outside(image: ResolvedImage) -> FoundBase:
    """Describe an image outside the store, computing its digest. Raises SaveError for a package
    with more than one layer, OSError."""
    if image.digest:
        return describe(ImageStore.load(image.chain[0].parent))
    if len(image.chain) != 1:
        raise too_many_layers(image.name, len(image.chain))
    places = {"disk": image.chain[0], "kernel": image.kernel, "initrd": image.initrd}
    files = {}
    for name, part in IMAGE_FILES.items():
        path = places[part]
        member = Member(name=name, size=path.stat().st_size, sha256=sha256_file(path))
        files[name] = (path, member)
    parts = {part: {"sha256": files[name][1].sha256} for name, part in IMAGE_FILES.items()}
    base = BundleBase(
        name=image.name,
        version="",
        digest=image_digest(parts, image.cmdline),
        arch=image.guest_arch.value,
        cmdline=image.cmdline,
    )
    return FoundBase(base=base, files=files)


def too_many_layers(name: str, layers: int) -> SaveError:
    """The error of an image of several layers that is not in the store."""
    return SaveError(
        f"the image {name!r} is a package of {layers} layers that is not in the image store",
        hint=Words(
            Words(
                Remedy("install", name=name),
                " puts it there",
                python=f"`quicksand.install({name!r})` puts it there",
            ),
            "; then export it again",
        ),
    )


def require_base(store: ImageStore, base: BundleBase) -> StoredImage:
    """Return the base of a thin bundle. Raises BundleError saying how to get it."""
    image = store.find_version(base.name, base.digest)
    if image is not None:
        return image
    there = store.get(base.name)
    has = f"; the {base.name!r} here has the digest {there.digest[:12]}" if there else ""
    full = Words("have it exported with --full", python="have it exported in full")
    hint = Words(full, ", which brings the image")
    if has_recipe(base.name):
        hint = Words(hint, "; ", Remedy("build_image", name=base.name), " may make the same one")
    elif plain(base.name) in PUBLISHED:
        install = Remedy("install", name=plain(base.name))
        python = f"; the package quicksand-{plain(base.name)} may have the same one"
        hint = Words(hint, Words("; ", install, " may get the same one", python=python))
    raise BundleError(f"the bundle needs the image {base}, which is not here{has}", hint=hint)


def _part_of(name: str) -> str:
    part = image_part(name)
    assert part is not None
    return part


def check_part_size(name: str, size: int) -> None:
    """Raise ValueError if a kernel or initrd claims an impossible size in bytes."""
    if size > PART_MAX.get(name, size):
        raise ValueError(f"{name} has {mib_text(size)}, more than {PART_MAX[name] >> 20}")


def check_files(bundle: Bundle) -> None:
    """Raise ValueError unless the files of the base in a bundle fit the base's digest."""
    for file in bundle.image_files:
        check_part_size(file.name, file.size)
    parts = {_part_of(file.name): {"sha256": file.sha256} for file in bundle.image_files}
    base = bundle.base
    if image_digest(parts, base.cmdline, base.recipe) != base.digest:
        raise ValueError("the digest of its base does not fit the files")


class IncomingBase:
    """The base of a bundle, which is already in the store or comes with the bundle."""

    def __init__(self, store: ImageStore, bundle: Bundle, *, named: bool = False) -> None:
        """``named``: the same image under another name is not accepted. Raises BundleError if a
        thin bundle's base is not here, ValueError if a full one's base cannot be right."""
        self._store = store
        self._bundle = bundle
        self._made: Path | None = None
        self.image: StoredImage | None = None
        """The image in the store; None until a base that comes with the bundle is published."""
        if bundle.is_full:
            check_files(bundle)
            image = store.find_version(bundle.base.name, bundle.base.digest)
            is_other = image is not None and image.root.parent.name != bundle.base.name
            self.image = None if named and is_other else image
        else:
            self.image = require_base(store, bundle.base)
        if self.image is not None and self.image.arch != bundle.base.arch:
            raise ValueError(f"it is for {bundle.base.arch}, and its base for {self.image.arch}")
        self._check_sizes()
        self.is_new = self.image is None

    def _check_sizes(self) -> None:
        """Raise ValueError if files that are already here have other sizes in the bundle, since
        their digests must then differ."""
        if self.image is None:
            return
        for member in self._bundle.image_files:
            if member.size != self.image.files[_part_of(member.name)]["size"]:
                raise ValueError(f"{member.name} is damaged: its size is not that of its digest")

    def receive(self, receiver: Members, made: Path) -> None:
        """Read the files of the base from the bundle, into the directory ``made`` of the image
        store unless the base is there. Raises ValueError, BundleError, HostError."""
        for member in self._bundle.image_files:
            if not self.is_new:
                receiver.skip(member)
                continue
            self._made = made
            part = _part_of(member.name)
            path = made / file_name(part)
            if part == "disk":
                receiver.write(member, path, watch=DiskWatch(member.name, member.size))
                check_disk(path, member.name)
            elif part in PARTS:
                receiver.write(member, path)
            else:
                watch = DiskWatch(member.name, member.size, allow_backing=True)
                receiver.write(member, path, watch=watch)
                if check_layer(path, member.name).backing_file is None:
                    raise ValueError(f"{member.name} is a whole disk, and no layer")

    def publish(self, *, opened: str = "", current: bool = False) -> StoredImage:
        """Add the base to the image store; it becomes the current version if that is requested, or
        if the image has none and the bundle is not just ``opened`` by a start. Raises ImageError,
        HostError."""
        if self.image is None:
            assert self._made is not None, "receive it first"
            base = self._bundle.base
            parts = [_part_of(file.name) for file in self._bundle.image_files]
            self.image = publish_image(
                self._store, self._made, base, parts=parts, current=current, opened=opened
            )
        return self.image


def publish_image(
    store: ImageStore,
    made: Path,
    base: BundleBase,
    *,
    parts: Iterable[str] = PARTS,
    current: bool,
    opened: str = "",
) -> StoredImage:
    """Publish the files in ``made``, which are these ``parts``, in the image store. ``opened`` is
    the file name of a bundle that a start unpacks. Raises ImageError, HostError."""
    created = base.about.get("created")
    known = isinstance(created, int | float) and not isinstance(created, bool)
    manifest: dict[str, Any] = {
        **{key: value for key, value in base.about.items() if key not in (PACKAGE, BUNDLE)},
        **({BUNDLE: opened} if opened else {}),
        "name": base.name,
        "version": base.version,
        "arch": base.arch,
        "recipe": base.recipe,
        "cmdline": base.cmdline,
        "created": created if known else 0,
        "files": {part: {"name": file_name(part)} for part in parts},
    }
    image = store.publish(made, manifest, current=current)
    if image.errors or image.digest != base.digest:
        raise ImageError(
            f"the image {base.name!r} has a damaged version at {image.root}",
            hint=Words(
                Remedy("remove_image", name=base.name),
                " removes it; then import again",
                python="remove it, then import again",
            ),
        )
    return image


def find_base(resolver: ImageResolver, name: str, digest: str, arch: Architecture) -> FoundBase:
    """Find the image of a save or sandbox. Raises ImageError, SaveError, OSError."""
    if digest:
        image = resolver.store.find_version(name, digest)
        if image is not None:
            return describe(image)
        # A thin bundle can name an image that is not here.
        return FoundBase(base=BundleBase(name=name, version="", digest=digest, arch=arch.value))
    return describe_outside(resolver.resolve(name, arch))

"""One version of an image, as it lies in the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quicksand.disks.images.image_files import layers_of
from quicksand.disks.images.origin import Origin

DIGEST_SHOWN = 12
"""Hexadecimal digits of a digest that make the directory's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """One version of an image in the store."""

    root: Path
    name: str
    version: str = ""
    digest: str = ""
    arch: str = ""
    created: float | None = None
    """Unix time of the newest file it was built from, so equal sources give equal times."""
    built: float | None = None
    """Unix time at which it was put into the store."""
    recipe: str = ""
    """The digest of its recipe, "" if unknown."""
    cmdline: str = ""
    """Additional words for the kernel's command line."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Values that it suggests for options that the user does not give (`suggested`)."""
    container: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the container image from which it was made; empty if there is none."""
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By part ("disk", "kernel", "initrd", "layer1" …): name, size in bytes and sha256."""
    package: Origin | None = None
    """The package from which it was installed; None if it was built or imported."""
    bundle: str = ""
    """The file name of the bundle from which a start has unpacked it; "" if it was imported, built
    or installed."""
    errors: tuple[str, ...] = ()
    """The reasons why it cannot be used."""

    @property
    def versioned(self) -> str:
        """The name of this very version, NAME@DIGEST."""
        return f"{self.name}@{self.digest[:DIGEST_SHOWN]}"

    @property
    def disk(self) -> Path:
        """Its disk, or the lowest layer of that (`chain`)."""
        return self._path("disk")

    @property
    def chain(self) -> tuple[Path, ...]:
        """All layers of its disk, the lowest first."""
        return tuple(self._path(part) for part in layers_of(self.files))

    @property
    def kernel(self) -> Path:
        return self._path("kernel")

    @property
    def initrd(self) -> Path:
        return self._path("initrd")

    @property
    def size(self) -> int:
        """Bytes that all files take on the disk."""
        if not self.root.is_dir():
            return 0
        return sum(path.stat().st_blocks * 512 for path in self.root.iterdir())

    def _path(self, part: str) -> Path:
        return self.root / str(self.files[part]["name"])


def with_errors(image: StoredImage) -> StoredImage:
    """Return the image with the faults of its files."""
    errors = []
    for found in image.files.values():
        path = image.root / str(found["name"])
        if path.is_symlink():
            errors.append(f"{path.name} is a symbolic link")
        elif not path.is_file():
            errors.append(f"{path.name} is missing")
        elif path.stat().st_size != found["size"]:
            errors.append(
                f"{path.name} is {path.stat().st_size} bytes long, not {found['size']}: truncated?"
            )
    if not errors:
        return image
    return StoredImage(
        **{f: getattr(image, f) for f in StoredImage.__slots__ if f != "errors"},
        errors=tuple(errors),
    )

"""Image packages that are installed in this Python environment, read by their files.

The published packages import a library that is not here, and run pip when their image is requested
and missing. So no code of a package is imported as long as its files tell the place of its image.
Only for a package that has no such files, and does not build on that library, is its code called
(`load_provider`), as `quicksand.ImageProvider` describes: that is the interface for packages that
make or find their image themselves, and whoever installs one in this environment agrees to run it.
Where our own re-exports stand in for that library (docs/user-guide/published-core.md), other
packages built on it are called, too; the published ones have their image in files, or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.regular import open_file
from quicksand.base.remedies import Remedy, Words
from quicksand.disks.packages import contents
from quicksand.disks.packages.contents import BaseImage, OverlayImage, find_image
from quicksand.disks.packages.names import GROUP, PUBLISHED, SHOWN_MAX, normalised, plain

LIBRARY = "quicksand-core"
"""The package on which the published image packages build."""

LABEL = "+quicksand.tui."
"""The part of a version by which our re-exports of `LIBRARY` differ from the published ones
(compat/quicksand-core)."""


class Directory:
    """The files of the images of an installed package (`contents.Files`)."""

    def __init__(self, root: Path, place: str) -> None:
        """``root`` is where packages are installed, ``place`` the directory of the images in it."""
        self.root = root
        self._place = place

    def names(self) -> Collection[str]:
        found = []
        for at in (self._place, f"{self._place}{contents.OVERLAYS}/"):
            try:
                with os.scandir(self.root / at) as entries:
                    found += [at + entry.name for entry in entries if entry.is_file()]
            except OSError:
                continue  # there is no such directory
        return found

    def read(self, name: str, limit: int) -> bytes:
        try:
            with open_file(self.root / name) as file:
                data = file.read(limit + 1)
        except OSError as error:
            raise ImageError(f"{self.root / name} cannot be read: {error.strerror}") from error
        if len(data) > limit:
            raise ImageError(f"{self.root / name} has more than {limit} bytes")
        return data


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package that announces an image."""

    entry: EntryPoint

    @property
    def image(self) -> str:
        """The name of its image."""
        return plain(self.entry.name)

    @property
    def version(self) -> str:
        found = self._distribution
        return "" if found is None else found.version

    @property
    def _distribution(self) -> Distribution | None:
        return self.entry.dist

    def find(self, arch: Architecture) -> tuple[BaseImage | OverlayImage, Path] | None:
        """Find its image for guests of ``arch``, and the directory to which its file names are
        relative; None if its files have no image. Raises ImageError."""
        found = self._distribution
        if found is None:
            return None
        said = contents.EntryPoint(name=self.entry.name, module=self.entry.module)
        root = Path(str(found.locate_file("")))
        image = find_image(Directory(root, said.directory), said, arch)
        return None if image is None else (image, root)

    def is_stub(self) -> bool:
        """Whether the package has no image except in files: it is one of the published packages, or
        its code needs a library that is not here."""
        found = self._distribution
        requires = [] if found is None else found.requires or []
        if not any(_name_in(text) == LIBRARY for text in requires):
            return False
        return self.image in PUBLISHED or not _has_our_library()

    def require_no_stub(self) -> None:
        """Raise ImageError if it is one of the published packages without its image."""
        if self.is_stub():
            raise ImageError(
                f"the package of the image {self.image!r} is installed without its image",
                hint=Words(
                    Remedy("install", name=self.image),
                    " gets that",
                    python="install the image with the command line",
                ),
            )

    def load_provider(self, arch: Architecture) -> Any:
        """Call its code for its image: the last resort. Raises all errors of that code."""
        provider = self.entry.load()
        provider = provider() if isinstance(provider, type) else provider
        return provider.resolve(arch.debian)


def image_packages() -> list[Package]:
    """The installed packages with an image of their own."""
    return [Package(entry) for entry in entry_points(group=GROUP)]


def _has_our_library() -> bool:
    try:
        return LABEL in version(LIBRARY)
    except PackageNotFoundError:
        return False


def _name_in(requirement: str) -> str:
    """The normalised name at the beginning of a requirement (PEP 508)."""
    text = requirement.strip()[:SHOWN_MAX]
    end = next((at for at, char in enumerate(text) if not (char.isalnum() or char in "-_.")), None)
    return normalised(text[:end])

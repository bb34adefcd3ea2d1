"""Bases of layers, and the packages on them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quicksand.base.error_text import reason_of
from quicksand.base.errors import ImageError
from quicksand.base.fields import Fields
from quicksand.base.files import map_os_errors, read_json
from quicksand.base.sharing import share_file
from quicksand.disks.images.image_store import MANIFEST, ImageStore
from quicksand.disks.images.recipes import has_recipe
from quicksand.disks.images.stored_image import StoredImage
from quicksand_disks import DiskFileError
from quicksand_disks.ext4 import read_from_disk

from quicksand_images.apk import DATABASE, REPOSITORIES, Package, parse_packages, parse_repositories
from quicksand_images.recipe import Layer, System, read_packages, read_recipe
from quicksand_images.tables import Table

STATUS = "/var/lib/dpkg/status"
DATABASE_MAX = 64 * 1024 * 1024
"""Bytes of dpkg's status of a base; a desktop's has 2 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A base, with further facts from its manifest."""

    image: StoredImage
    system: System | None
    """The source of its packages; None if unknown."""
    packages: Mapping[str, str]
    python: Mapping[str, str]
    status: bytes | None
    """dpkg's status of its packages; None without dpkg."""
    apks: Sequence[Package] | None
    """apk's database of its packages; None without apk."""
    repositories: Sequence[str]
    """The repositories of the base's apk."""


def hold_base(image: StoredImage, place: Path) -> StoredImage:
    """Return the image with links to its files in ``place``, since it may be removed meanwhile.
    Raises ImageError, ImageNotFound, DiskSpaceError, PathError."""
    with map_os_errors(place):
        place.mkdir(mode=0o700)
        for name in (MANIFEST, *(str(found["name"]) for found in image.files.values())):
            share_file(image.root / name, place / name)
    return ImageStore.load(place)


def look_at(image: StoredImage) -> Base:
    """Read the facts in a base's manifest. Raises ImageError."""
    path = image.root / MANIFEST
    try:
        manifest = read_json(path)
        told = Fields({"packages": {}, "python": {}, **manifest}, "bad manifest")
        lists = [told.fields(key) for key in ("packages", "python")]
        found = manifest.get("system")
        system = None if found is None else _parse_system(path, found)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ImageError(f"{path} is damaged: {reason_of(error)}") from error
    if system is None and image.package is None and has_recipe(image.name):
        # Images that were built before manifests had it.
        recipe = read_recipe(image.name, image.arch)
        system = None if isinstance(recipe, Layer) else recipe.system
    status, database, repositories = (
        _read(image, path) for path in (STATUS, DATABASE, REPOSITORIES)
    )
    apks = None if database is None else parse_packages([database])
    packages, python = ({name: str(value) for name, value in one.items()} for one in lists)
    return Base(
        image=image,
        system=system,
        packages=packages or {package.name: package.version for package in apks or ()},
        python=python,
        status=status,
        apks=apks,
        repositories=parse_repositories((repositories or b"").decode("utf-8", "replace")),
    )


def _parse_system(path: Path, value: object) -> System:
    """Read the result of `system_facts` in the manifest ``path``, as strictly as a recipe: it may
    come from elsewhere. Raises ImageError."""
    if not isinstance(value, dict):
        raise ImageError(f"{path} is damaged: system is no table")
    return read_packages(Table(path, "", value, "system"))


def system_facts(system: System) -> dict[str, Any]:
    """Return the facts for an image's manifest about the source of its packages."""
    return {**asdict(system), "components": list(system.components), "packages": []}


def _read(image: StoredImage, path: str) -> bytes | None:
    """Read a file of an image; None if there is none, or if we cannot read that kind of disk."""
    with contextlib.suppress(DiskFileError):
        return read_from_disk(image.chain, path, most=DATABASE_MAX)
    return None

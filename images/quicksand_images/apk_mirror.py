"""Fetches packages of Alpine.

The guest's own apk installs them, without a network, from a directory that looks like a repository
and has the mirror's signed index. It verifies signatures, and chooses by itself. The host only
finds out which packages apk may want; these may be too many, and apk names missing ones. For a
layer the keys are those of its base; for a whole system they are in the recipe, and the host
verifies everything, too, since it unpacks the guest's first programs itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound
from quicksand.base.files import map_os_errors
from quicksand.base.progress import Progress
from quicksand.base.sharing import share_file
from quicksand.disks.packages.sources import Web
from quicksand_wheels.links import Link, shown
from quicksand_wheels.sources import certificates

from quicksand_images.apk import ARCHES, REPOSITORIES, REPOSITORIES_MAX, Limits, Package, may_want
from quicksand_images.apk_file import APK_MAX, INDEX, INDEX_MAX, is_right, read_index
from quicksand_images.packages import hold, package_cache

if TYPE_CHECKING:
    from quicksand_images.apk_keys import TrustedKeys

_STAGE = "downloading packages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """The result of a fetch."""

    offers: list[Package]
    """All packages of the mirrors."""
    packages: list[Package]
    """The packages that apk may want."""
    alone: list[Package]
    """Packages that were requested without those that they need."""
    places: Mapping[str, Path]
    """The directories of the repositories."""

    def path(self, package: Package) -> Path:
        """Return the file of a package that was fetched."""
        return self.places[package.repository] / package.file


async def fetch_apks(
    names: Sequence[str],
    installed: Sequence[Package],
    repositories: Sequence[str],
    arch: Architecture,
    target: Path,
    progress: Progress,
    *,
    keys: TrustedKeys | None = None,
    alone: Sequence[str] = (),
) -> Mirrored:
    """Fill the new directory ``target`` with repositories from which ``names`` can be installed,
    and a file `repositories` with the names of their directories. With ``keys`` everything must be
    signed by one of them, and the used ones are put into `keys`. ``alone`` are packages that are
    fetched without those that they need.

    Raises ImageNotFound, ImageError for a package that differs from the index, is not signed, or is
    too large, HostError.
    """
    if len(repositories) > REPOSITORIES_MAX:
        raise ImageError(
            f"{REPOSITORIES} of the base names {len(repositories)} repositories, more than "
            f"{REPOSITORIES_MAX}"
        )
    cache = await asyncio.to_thread(package_cache, f"alpine-{arch.debian}")
    places = {
        repository: target / str(at) / ARCHES[arch]
        for at, repository in enumerate(dict.fromkeys(repositories))
    }
    with map_os_errors(target):
        if keys is not None:
            (target / "keys").mkdir(parents=True)
        async with Web(certificates=certificates()) as web:
            offers = await _read_lists(places, web, keys, target / "keys", progress)
            wanted = may_want(names, offers, installed)
            found = Mirrored(
                offers=offers,
                packages=wanted,
                alone=[_named(name, offers) for name in alone],
                places=places,
            )
            everything = [*wanted, *(one for one in found.alone if one not in wanted)]
            lock = await hold(cache)
            try:
                for at, package in enumerate(everything):
                    progress(_STAGE, at, len(everything))
                    path = await _fetch(package, arch, cache, web, keys)
                    await asyncio.to_thread(share_file, path, found.path(package))
            finally:
                os.close(lock)
        (target / "repositories").write_text("".join(f"{at}\n" for at in range(len(places))))
    return found


async def _read_lists(
    places: Mapping[str, Path],
    web: Web,
    keys: TrustedKeys | None,
    keys_place: Path,
    progress: Progress,
) -> list[Package]:
    """Fetch the index of each repository; return the packages in all of them."""
    offers: list[Package] = []
    limits = Limits()
    for repository, place in places.items():
        progress("fetching the lists of packages", len(offers), 0)
        place.mkdir(parents=True)
        index = place / INDEX
        url = f"{repository}/{place.name}/{INDEX}"
        await web.fetch(Link(file=INDEX, url=url), index, most=INDEX_MAX)
        if keys is not None:
            name, text = await asyncio.to_thread(keys.require_signed, index, shown(url))
            (keys_place / name).write_text(text, encoding="ascii")
        offers += await asyncio.to_thread(read_index, index, repository, limits)
    return offers


def _named(name: str, offers: Sequence[Package]) -> Package:
    found = next((offer for offer in offers if offer.name == name), None)
    if found is None:
        raise ImageNotFound(f"the mirrors have no package {name!r}")
    return found


async def _fetch(
    package: Package, arch: Architecture, cache: Path, web: Web, keys: TrustedKeys | None
) -> Path:
    """Return the package in the cache, after fetching it if it is missing or damaged."""
    path = cache / package.file
    if path.is_file() and await asyncio.to_thread(_fits, path, package, keys):
        return path
    url = f"{package.repository}/{ARCHES[arch]}/{package.file}"
    unfinished = path.with_name(f".{path.name}")
    try:
        unfinished.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        link = Link(file=package.file, url=url, size=package.size)
        await web.fetch(link, unfinished, most=APK_MAX)
        if not await asyncio.to_thread(is_right, unfinished, package):
            raise ImageError(f"{shown(url)} is not the package that the index says")
        if keys is not None:
            await asyncio.to_thread(keys.require_signed, unfinished, shown(url), metadata=True)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _fits(path: Path, package: Package, keys: TrustedKeys | None) -> bool:
    """Whether a package of the cache is usable; it may come from a mirror with other keys."""
    if not is_right(path, package):
        return False
    try:
        if keys is not None:
            keys.require_signed(path, path.name, metadata=True)
    except ImageError:
        return False
    return True

"""Fetches packages of Alpine for a layer.

The guest's own apk installs them, without a network, from a directory that looks like a repository
and has the mirror's signed index. So it verifies signatures by the keys that the base has, and
chooses by itself. The host only has to find out what apk may want; that may be too much, and what
is missing apk names.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.files import map_os_errors
from quicksand.base.progress import Progress
from quicksand.base.sharing import share_file
from quicksand.disks.packages.pages import Link, shown
from quicksand.disks.packages.pip_settings import certificates
from quicksand.disks.packages.web import Web

from quicksand_images.apk import (
    APK_MAX,
    ARCHES,
    INDEX,
    INDEX_MAX,
    OFFERS_MAX,
    REPOSITORIES,
    REPOSITORIES_MAX,
    Package,
    is_right,
    may_want,
    parse_packages,
    read_index,
)
from quicksand_images.packages import hold, package_cache

_STAGE = "downloading packages"


async def fetch_apks(
    names: Sequence[str],
    installed: Sequence[Package],
    repositories: Sequence[str],
    arch: Architecture,
    target: Path,
    progress: Progress,
) -> list[Package]:
    """Fill the new directory ``target`` with repositories from which ``names`` can be installed,
    and a file `repositories` with the names of their directories; return the packages.

    Raises ImageNotFound, ImageError for a package that is not what the index says or for more than
    anybody needs, HostError.
    """
    if len(repositories) > REPOSITORIES_MAX:
        raise ImageError(
            f"{REPOSITORIES} of the base names {len(repositories)} repositories, more than "
            f"{REPOSITORIES_MAX}"
        )
    cache = await asyncio.to_thread(package_cache, f"alpine-{arch.debian}")
    places = {repository: target / str(at) for at, repository in enumerate(repositories)}
    offers: list[Package] = []
    with map_os_errors(target):
        async with Web(certificates=certificates()) as web:
            for repository, place in places.items():
                progress("fetching the lists of packages", len(offers), 0)
                (place / ARCHES[arch]).mkdir(parents=True)
                index = place / ARCHES[arch] / INDEX
                link = Link(file=INDEX, url=f"{repository}/{ARCHES[arch]}/{INDEX}")
                await web.download(link, index, most=INDEX_MAX)
                text = await asyncio.to_thread(read_index, index, repository)
                left = OFFERS_MAX - len(offers)
                offers += await asyncio.to_thread(parse_packages, text, repository, most=left)
            chosen = await asyncio.to_thread(may_want, names, offers, installed)
            lock = await hold(cache)
            try:
                for at, package in enumerate(chosen):
                    progress(_STAGE, at, len(chosen))
                    path = await _fetch(package, arch, cache, web)
                    place = places[package.repository] / ARCHES[arch] / package.file
                    await asyncio.to_thread(share_file, path, place)
            finally:
                os.close(lock)
        (target / "repositories").write_text("".join(f"{p.name}\n" for p in places.values()))
    return chosen


async def _fetch(package: Package, arch: Architecture, cache: Path, web: Web) -> Path:
    """Return the package in the cache, which it is fetched to if it is not there, or damaged."""
    path = cache / package.file
    if path.is_file() and await asyncio.to_thread(is_right, path, package):
        return path
    url = f"{package.repository}/{ARCHES[arch]}/{package.file}"
    unfinished = path.with_name(f".{path.name}")
    try:
        unfinished.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        link = Link(file=package.file, url=url, size=package.size)
        await web.download(link, unfinished, most=APK_MAX)
        if not await asyncio.to_thread(is_right, unfinished, package):
            raise ImageError(f"{shown(url)} is not the package that the index says")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path

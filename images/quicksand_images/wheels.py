"""Fetches the Python packages of a layer: wheels for the guest's Python, from the index that pip
uses on this host, each compared with the digest that the index states."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound
from quicksand.base.files import map_os_errors
from quicksand.base.progress import Progress
from quicksand.base.sharing import share_file
from quicksand.disks.images.stored_image import sha256_file
from quicksand.disks.packages.names import normalised
from quicksand.disks.packages.sources import Web, find_links, usual_index
from quicksand_wheels import RefusedError
from quicksand_wheels.links import Link
from quicksand_wheels.sources import certificates
from quicksand_wheels.wheel import parse_wheel_name

from quicksand_images.packages import hold, package_cache

_MACHINES = {Architecture.X86_64: "x86_64", Architecture.ARM64: "aarch64"}
"""Architectures as platforms of wheels name them."""

_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""Older names of platforms by the minor version of glibc (PEP 600)."""

_VERSION = re.compile(r"(?:[0-9]+:)?([0-9]+)\.([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestPython:
    """The Python of a base."""

    python: tuple[int, int]
    platforms: tuple[str, ...]
    """The platforms whose wheels it takes, the best first."""

    def tags(self) -> list[Tag]:
        """Return all tags that fit, the best first."""
        name = f"cp{self.python[0]}{self.python[1]}"
        return [
            *cpython_tags(self.python, platforms=self.platforms),
            *compatible_tags(self.python, interpreter=name, platforms=self.platforms),
        ]


def guest_python(packages: Mapping[str, str], arch: Architecture) -> GuestPython:
    """Return the Python among the ``packages`` of a base (names and versions). Raises ImageError if
    there is none."""
    found = _VERSION.match(packages.get("python3", ""))
    if found is None:
        raise ImageError("the base has no python3, which Python packages need")
    return GuestPython(
        python=(int(found[1]), int(found[2])), platforms=tuple(_platforms(packages, arch))
    )


def _platforms(packages: Mapping[str, str], arch: Architecture) -> Iterator[str]:
    machine = _MACHINES[arch]
    for package, kind, least in (("libc6", "manylinux", 5), ("musl", "musllinux", 0)):
        found = _VERSION.match(packages.get(package, ""))
        if found is None:
            continue
        for minor in range(int(found[2]), least - 1, -1):
            yield f"{kind}_{found[1]}_{minor}_{machine}"
            if kind == "manylinux" and minor in _OLD_NAMES:
                yield f"{_OLD_NAMES[minor]}_{machine}"
    yield f"linux_{machine}"


async def fetch_wheels(
    wanted: Sequence[str], guest: GuestPython, target: Path, progress: Progress | None = None
) -> None:
    """Put the wheels ``wanted`` ("uv==0.13.9") into the directory ``target``.

    Raises ImageNotFound if the index has none that fits, ImageError for one with another digest,
    HostError, ConfigError.
    """
    cache = await asyncio.to_thread(package_cache, "wheels")
    source, ranks = usual_index(), {tag: at for at, tag in enumerate(guest.tags())}
    async with Web(certificates=certificates()) as web:
        for text in wanted:
            requirement = Requirement(text)
            links = await find_links(source, normalised(requirement.name), web)
            link = choose(links, requirement, ranks)
            if link is None:
                raise ImageNotFound(
                    f"{source.label} has no wheel of {text} for Python "
                    f"{guest.python[0]}.{guest.python[1]} on {guest.platforms[0]}"
                )
            lock = await hold(cache)
            try:
                path = await _fetch(link, cache, web, progress)
            finally:
                os.close(lock)
            with map_os_errors(target):
                await asyncio.to_thread(share_file, path, target / link.file)


def choose(links: Sequence[Link], wanted: Requirement, ranks: Mapping[Tag, int]) -> Link | None:
    """Return the wheel whose tags fit best, among those with a digest; None if none fits."""
    best: tuple[int, Link] | None = None
    for link in links:
        try:
            name = parse_wheel_name(link.file)
        except RefusedError:
            continue  # an index has other files, too
        fitting = [ranks[tag] for tag in name.tags if tag in ranks]
        if not fitting or not link.sha256 or name.version not in wanted.specifier:
            continue
        if best is None or min(fitting) < best[0]:
            best = (min(fitting), link)
    return best[1] if best else None


async def _fetch(link: Link, cache: Path, web: Web, progress: Progress | None) -> Path:
    """Return the wheel in the cache, after fetching it if it is missing."""
    path = cache / f"{link.sha256[:16]}-{link.file}"
    if path.is_file() and await asyncio.to_thread(sha256_file, path) == link.sha256:
        return path
    unfinished = path.with_name(f".{path.name}")
    with map_os_errors(path):
        unfinished.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        try:
            await web.fetch(link, unfinished, progress)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return path

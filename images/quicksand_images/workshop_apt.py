"""apt in the sandbox of a build (`workshop.py`): it chooses, verifies signatures and downloads
there. The files come to this host's cache after a comparison with the signed lists' digests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from quicksand.base.arch import Architecture
from quicksand.base.errors import HostError
from quicksand.base.files import map_os_errors
from quicksand.base.regular import create
from quicksand.base.sharing import share_file
from quicksand.guest.guest_files import GuestFiles
from quicksand.qemu import debs

from quicksand_images import sources
from quicksand_images.packages import Packages, apt_config, package_cache, parse_offers
from quicksand_images.recipe import System

HELPER = "/usr/lib/apt/apt-helper"
AT_ONCE = 20
"""Packages that are downloaded by one command."""


class Place(Protocol):
    """A workshop."""

    files: GuestFiles

    async def run(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, *, cwd: str = ...
    ) -> str:
        """Run a program there."""
        ...


@dataclass(frozen=True, slots=True)
class PackagesThere(Packages):
    """apt of a workshop. Methods raise AgentError as well."""

    place: Place
    there: PurePosixPath
    """Its private directory."""

    async def download_alone(self, names: Iterable[str], target: Path) -> list[Path]:
        found = []
        for name in names:
            listed = await self._run("apt-get", "download", "--print-uris", name)
            place = target / name
            place.mkdir(parents=True)
            for path in await self._get(parse_offers(listed), ()):
                with map_os_errors(place):
                    share_file(path, place / path.name)
                found.append(place / path.name)
        return found

    def _nothing(self) -> str:
        return f"{self.there}/nothing"

    async def _fetch(self, offers: Sequence[re.Match[str]], words: Sequence[str]) -> None:
        missing = [offer for offer in offers if not (self.archives / offer["file"]).exists()]
        for at in range(0, len(missing), AT_ONCE):
            some = missing[at : at + AT_ONCE]
            triples: list[str] = []
            for offer in some:
                triples += (offer["uri"], f"{self.there}/got/{offer['file']}")
                triples.append(f"SHA256:{offer['sha256']}")
            await self._run(HELPER, "download-file", *triples)
            for offer in some:
                await self._bring(offer)

    async def _bring(self, offer: re.Match[str]) -> None:
        """Copy a package to the cache. Raises HostError, OSError."""
        source, size = f"{self.there}/got/{offer['file']}", int(offer["size"])
        unfinished = self.archives / f".{offer['file']}"
        unfinished.unlink(missing_ok=True)
        try:
            with create(unfinished) as file:
                done = 0
                async for piece in self.place.files.stream(source):
                    done += len(piece)
                    if done > size:
                        raise HostError(f"the package {offer['file']} is larger than its list says")
                    await asyncio.to_thread(file.write, piece)
            unfinished.replace(self.archives / offer["file"])
        finally:
            unfinished.unlink(missing_ok=True)
        await self.place.files.remove(source)

    async def _run(self, *words: str, cwd: Path | None = None) -> str:
        assert cwd is None
        env = {"APT_CONFIG": f"{self.there}/apt.conf"}
        return await self.place.run(words, env, cwd=str(self.there))


async def open_there(
    place: Place, system: System, arch: Architecture, root: Path, work: str, status: bytes
) -> PackagesThere:
    """As `packages.open_packages`, with the apt of a workshop, which also finds its keys. Raises
    HostError, OSError."""
    (root / "taken").mkdir(parents=True)
    archives = await asyncio.to_thread(package_cache, f"{system.distribution}-{arch.debian}")
    there = PurePosixPath(work, "apt")
    for name in ("lists/partial", "nothing/partial", "archives/partial", "got"):
        await place.files.mkdir(f"{there}/{name}", parents=True)
    keyring = await _find_keyring(place, system, there)
    mirrors = await asyncio.to_thread(sources.find_mirrors, system)
    inside = sources.Mirrors(
        main=sources.from_inside(mirrors.main), security=sources.from_inside(mirrors.security)
    )
    lines = sources.source_lines(system, Path(keyring), inside)
    await place.files.write(f"{there}/status", status)
    await place.files.write(f"{there}/sources.list", "".join(f"{line}\n" for line in lines))
    await place.files.write(f"{there}/acquire.conf", await _reaching())
    await place.files.write(f"{there}/apt.conf", apt_config(arch, there, there / "archives"))
    return PackagesThere(root, archives, place, there)


async def _find_keyring(place: Place, system: System, there: PurePosixPath) -> str:
    """Return the path there of the keys of ``system``: the recipe's, this host's, or those that the
    sandbox has or gets. Raises HostError."""
    if system.keys:
        await place.files.write(f"{there}/keys.asc", system.keys)
        return f"{there}/keys.asc"
    ours = sources.KEYRINGS / f"{system.keyring}.gpg"
    if ours.is_file():
        await place.files.write(f"{there}/keys.gpg", await asyncio.to_thread(ours.read_bytes))
        return f"{there}/keys.gpg"
    for attempt in range(2):
        if attempt:
            await place.run(["apt-get", "-q", "update"])
            await place.run(["apt-get", "-q", "-y", "install", system.keyring])
        for suffix in (".gpg", ".pgp", ".asc"):
            path = f"/usr/share/keyrings/{system.keyring}{suffix}"
            if await place.files.exists(path):
                return path
    raise HostError(f"the package {system.keyring} holds no keys")


async def _reaching() -> str:
    """Return the proxies of this host's apt, if it has one, as lines for an apt.conf(5)."""
    if not debs.is_apt_host():
        return ""
    lines = (await sources.reaching_mirrors()).splitlines()
    # A setting that names a file, such as a certificate, names one of this host.
    return "".join(
        f"{sources.from_inside(line)}\n"
        for line in lines
        if "Proxy" in line and "Detect" not in line
    )

"""Downloads packages of Debian and Ubuntu with apt and a private root directory: apt chooses them
and verifies signatures and digests. It needs no root.

Downloads go to a directory of the cache, where those of a killed build stay.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from quicksand.base.arch import Architecture
from quicksand.base.errors import HostError
from quicksand.base.files import map_os_errors, try_lock
from quicksand.base.paths import paths
from quicksand.base.sharing import share_file
from quicksand.base.threads import in_thread_to_the_end
from quicksand.base.tools import run_tool
from quicksand.disks.images.build_cache import LOCK, downloads_dir
from quicksand.disks.images.stored_image import sha256_file

from quicksand_images.recipe import System
from quicksand_images.sources import Mirrors, reaching_mirrors, source_lines

_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}
_LOCK_POLL_S = 0.2
_OFFER = re.compile(
    r"^'(?P<uri>\S+)' (?P<file>[^/\s]+\.deb) (?P<size>[0-9]{1,15}) SHA256:(?P<sha256>\w+)$"
)
"""A line of `apt-get --print-uris`."""


@dataclass(frozen=True, slots=True)
class Packages:
    """apt in a private directory. Of the host's settings it uses only those for reaching mirrors.
    Methods raise ToolError."""

    root: Path
    archives: Path
    """The directory for downloads, which other builds also use."""

    async def update(self) -> None:
        """Fetch the package lists. Raises ToolError, also for a wrong signature."""
        await self._run("apt-get", "--error-on=any", "update")

    async def download_base(self) -> list[Path]:
        """Download the essential packages and apt, with dependencies; return the files."""
        # In a system without packages, an upgrade installs just these (mmdebstrap does the same).
        return await self._download("dist-upgrade")

    async def download(self, names: Sequence[str], *, upgrade: bool = False) -> list[Path]:
        """Download ``names`` and the packages that they need and the system lacks; with ``upgrade``
        also those of `download_base`. Return the files."""
        command = "dist-upgrade" if upgrade else "install"
        return await self._download(command, *(f"{name}+" for name in names))

    async def download_alone(self, names: Iterable[str], target: Path) -> list[Path]:
        """Download ``names`` without dependencies into ``target``; return the files."""
        found = []
        for name in names:
            place = target / name
            place.mkdir(parents=True)
            await self._run("apt-get", "download", name, cwd=place)
            found += list(place.glob("*.deb"))
        return found

    async def dependency(self, name: str, pattern: str) -> str:
        """Return the dependency of ``name`` that matches the regular expression ``pattern``, or
        ``name`` if none does."""
        text = await self._run("apt-cache", "depends", "--important", name)
        match = re.search(rf"^ *Depends: ({pattern})$", text, re.MULTILINE)
        return match[1] if match else name

    async def _download(self, *words: str) -> list[Path]:
        """Have apt download what a command would install; return links to the files."""
        # With an empty directory it lists all of them, including those in the cache.
        nothing = f"Dir::Cache::archives={self._nothing()}"
        listed = await self._run("apt-get", "-o", nothing, "--yes", "--print-uris", *words)
        return await self._get(parse_offers(listed), words)

    def _nothing(self) -> str:
        """Return an empty directory."""
        return str(self.root / "nothing")

    async def _get(self, offers: Sequence[re.Match[str]], words: Sequence[str]) -> list[Path]:
        """Bring the packages ``offers``, which the command ``words`` would install, into the cache;
        return links to the files."""
        lock = await hold(self.archives)
        try:
            await in_thread_to_the_end(lambda: self._drop_damaged(offers))
            await self._fetch(offers, words)
            return await in_thread_to_the_end(lambda: self._take(offers))
        finally:
            os.close(lock)

    async def _fetch(self, offers: Sequence[re.Match[str]], words: Sequence[str]) -> None:
        """Download those of ``offers`` that the cache lacks."""
        await self._run("apt-get", "--yes", "--download-only", *words)

    def _drop_damaged(self, offers: Sequence[re.Match[str]]) -> None:
        """Remove packages from the cache that differ from the signed lists: apt would compare only
        sizes."""
        with map_os_errors(self.archives):
            for offer in offers:
                path = self.archives / offer["file"]
                if path.is_file() and sha256_file(path) != offer["sha256"]:
                    path.unlink()

    def _take(self, offers: Sequence[re.Match[str]]) -> list[Path]:
        taken = []
        for offer in offers:
            source, target = self.archives / offer["file"], self.root / "taken" / offer["file"]
            with map_os_errors(source):
                if not source.is_file() or sha256_file(source) != offer["sha256"]:
                    raise HostError(f"the package {source.name} is not what its list says")
                if not target.exists():
                    share_file(source, target)
            taken.append(target)
        return sorted(taken)

    async def _run(self, *words: str, cwd: Path | None = None) -> str:
        env = {**_QUIET, "APT_CONFIG": str(self.root / "apt.conf")}
        return await run_tool(words, env=env, cwd=cwd)


def parse_offers(listed: str) -> list[re.Match[str]]:
    """Return the packages that `apt-get --print-uris` lists, with their uri, file, size and
    sha256."""
    return [found for line in listed.splitlines() if (found := _OFFER.match(line))]


async def hold(place: Path) -> int:
    """Take the lock of a directory in the cache; return its descriptor. Raises PathError,
    DiskSpaceError."""
    while True:
        with map_os_errors(place):
            if (lock := try_lock(place / LOCK)) is not None:
                return lock
        await asyncio.sleep(_LOCK_POLL_S)


def package_cache(kind: str) -> Path:
    """Return the directory of the cache with packages of a kind. Raises PathError."""
    return downloads_dir(paths().cache, kind)


async def open_packages(
    system: System,
    arch: Architecture,
    root: Path,
    *,
    keyring: Path,
    mirrors: Mirrors,
    status: bytes = b"",
) -> Packages:
    """Set up the new directory ``root`` for the packages of ``system``. ``status`` is dpkg's status
    of those already there. Raises HostError, OSError."""
    for name in ("lists/partial", "taken", "nothing/partial"):
        (root / name).mkdir(parents=True)
    archives = await asyncio.to_thread(package_cache, f"{system.distribution}-{arch.debian}")
    (archives / "partial").mkdir(exist_ok=True)
    (root / "status").write_bytes(status)
    (root / "sources.list").write_text(
        "".join(f"{line}\n" for line in source_lines(system, keyring, mirrors)), encoding="utf-8"
    )
    (root / "acquire.conf").write_text(await reaching_mirrors(), encoding="utf-8")
    (root / "apt.conf").write_text(apt_config(arch, root, archives), encoding="utf-8")
    return Packages(root, archives)


def apt_config(arch: Architecture, root: PurePath, archives: PurePath) -> str:
    """Return the apt.conf(5) of a private directory ``root``. Raises HostError for a path that apt
    cannot have."""
    if any(character in f"{root}{archives}" for character in '"\n'):
        raise HostError(
            f"apt cannot work in {str(root)!r} with {str(archives)!r}",
            hint="set QUICKSAND_DATA_DIR and QUICKSAND_CACHE_DIR to plainer paths",
        )
    settings = {
        "Dir::Etc::main": root / "acquire.conf",
        "Dir::Etc::parts": root / "nothing",
        "Dir::Etc::sourcelist": root / "sources.list",
        "Dir::Etc::sourceparts": root / "nothing",
        "Dir::Etc::preferences": root / "nothing/preferences",
        "Dir::Etc::preferencesparts": root / "nothing",
        "Dir::Etc::trusted": root / "nothing/trusted",
        "Dir::Etc::trustedparts": root / "nothing",
        "Dir::State": root,
        "Dir::State::lists": root / "lists",
        "Dir::State::status": root / "status",
        "Dir::State::extended_states": root / "extended_states",
        "Dir::Cache": root,
        "Dir::Cache::archives": archives,
        "Dir::Log": root,
        "APT::Architecture": arch.debian,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Acquire::ForceHash": "SHA256",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Debug::NoLocking": "true",
    }
    lines = [f'{key} "{value}";' for key, value in settings.items()]
    architectures = ["#clear APT::Architectures;", f'APT::Architectures:: "{arch.debian}";']
    return "\n".join([*lines, *architectures]) + "\n"

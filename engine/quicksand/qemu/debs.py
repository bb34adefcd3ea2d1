"""Gets Debian and Ubuntu packages: installs them as root, or unpacks them without root."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import HostError
from quicksand.base.progress import Progress
from quicksand.base.tools import ToolError, run_tool

LISTS = Path("/var/lib/apt/lists")
STATUS = Path("/var/lib/dpkg/status")
LISTS_FRESH_S = 7 * 24 * 3600.0
"""Seconds. Older lists may name files that mirrors have dropped."""

_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}
_RELATIONS = (
    "--no-recommends",
    "--no-suggests",
    "--no-conflicts",
    "--no-breaks",
    "--no-replaces",
    "--no-enhances",
)
_PACKAGE_FIELD = re.compile(r"^Package: (\S+)$", re.MULTILINE)
_INSTALLED = re.compile(r"^Status: \S+ ok installed$", re.MULTILINE)


def is_apt_host() -> bool:
    """Whether this host has the programs that this module runs."""
    return all(shutil.which(program) for program in ("apt-get", "apt-cache", "dpkg-deb"))


def is_root() -> bool:
    return os.geteuid() == 0


async def install(packages: Sequence[str], progress: Progress | None = None) -> None:
    """Install packages on this host. Needs root. Raises ToolError."""
    say = _sayer(progress, 2)
    if not lists_are_fresh():
        say("updating the lists of packages", 0)
        await run_tool(["apt-get", "update", "-q"], env=_QUIET)
    say(f"installing {', '.join(packages)}", 1)
    await run_tool(
        ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages], env=_QUIET
    )


async def unpack(
    packages: Sequence[str], root: Path, *, ignoring: str = "", progress: Progress | None = None
) -> str:
    """Unpack ``packages``, with the dependencies that this host lacks, below ``root``.

    Installed packages whose names match the regular expression ``ignoring`` count as missing.
    Returns the version of the first package. Raises ToolError or HostError and may then leave
    ``root`` half filled.
    """
    with tempfile.TemporaryDirectory(prefix="quicksand-apt-") as name:
        files = await download(packages, Path(name), ignoring=ignoring, progress=progress)
        for number, file in enumerate(files):
            if progress is not None:
                progress("unpacking packages", number, len(files))
            await run_tool(["dpkg-deb", "-x", file, root])
        first = next((f for f in files if f.name.startswith(f"{packages[0]}_")), None)
        if first is None:
            raise HostError(f"the package {packages[0]} was not downloaded")
        version = await run_tool(["dpkg-deb", "-f", first, "Version"])
    await asyncio.to_thread(mend_links, root)
    return version.strip()


async def download(
    packages: Sequence[str], place: Path, *, ignoring: str = "", progress: Progress | None = None
) -> list[Path]:
    """Download ``packages``, with the dependencies that this host lacks, into the empty directory
    ``place``; return the files. ``ignoring`` as of `unpack`. Raises ToolError, OSError."""
    say = _sayer(progress, 3)
    apt = await asyncio.to_thread(_private_apt, place, ignoring)
    if not lists_are_fresh():
        say("updating the lists of packages", 0)
        await apt.use_own_lists()
    say("downloading packages", 1)
    return await apt.download(packages)


def lists_are_fresh() -> bool:
    """Whether the host has package lists younger than LISTS_FRESH_S."""
    newest = max((p.stat().st_mtime for p in LISTS.glob("*Packages*")), default=0.0)
    return time.time() - newest < LISTS_FRESH_S


def filter_status(status: str, ignoring: str) -> str:
    """Return dpkg's status file without the packages whose names match ``ignoring``."""
    if not ignoring:
        return status
    pattern = re.compile(ignoring)
    kept = [
        paragraph
        for paragraph in status.split("\n\n")
        if (name := _PACKAGE_FIELD.search(paragraph)) and not pattern.fullmatch(name[1])
    ]
    return "\n\n".join(kept) + "\n" if kept else ""


def installed_packages(status: str) -> set[str]:
    """Return the names of the installed packages in dpkg's status file."""
    return {
        name[1]
        for paragraph in status.split("\n\n")
        if (name := _PACKAGE_FIELD.search(paragraph)) and _INSTALLED.search(paragraph)
    }


def parse_depends(output: str) -> list[str]:
    """Return the packages in the output of `apt-cache depends --recurse`: its unindented lines."""
    names = {line.split(":")[0] for line in output.splitlines() if line[:1].isalnum()}
    return sorted(names)


def mend_links(root: Path) -> None:
    """Redirect absolute links below ``root`` to targets below ``root``, if those exist. Raises
    OSError."""
    for directory, directories, files in os.walk(root):
        for name in (*directories, *files):
            link = Path(directory, name)
            if not link.is_symlink():
                continue
            target = link.readlink()
            inside = root / str(target).lstrip("/")
            if target.is_absolute() and os.path.lexists(inside):
                link.unlink()
                link.symlink_to(os.path.relpath(inside, directory))


@dataclass(slots=True)
class _Apt:
    """apt with a private cache and, if the host's package lists are too old, private lists."""

    place: Path
    options: list[str]
    installed: set[str]

    async def use_own_lists(self) -> None:
        (self.place / "lists" / "partial").mkdir(parents=True)
        own = ["-o", f"Dir::State::lists={self.place / 'lists'}"]
        await run_tool(["apt-get", *self.options, *own, "update"])
        self.options += own

    async def download(self, packages: Sequence[str]) -> list[Path]:
        """Download ``packages`` with the dependencies that the host lacks; return the files."""
        try:
            # apt's solver chooses among alternatives as an installation would.
            only_download = ("-y", "--no-install-recommends", "--download-only", "install")
            await run_tool(["apt-get", *self.options, *only_download, *packages], env=_QUIET)
        except ToolError:
            await self._download_each(packages)
        return sorted((self.place / "archives").glob("*.deb"))

    async def _download_each(self, packages: Sequence[str]) -> None:
        """Download every dependency that is not installed, alternatives included. This works where
        the solver finds a conflict, such as a library from another archive."""
        command = ["apt-cache", *self.options, "depends", "--recurse", *_RELATIONS, *packages]
        names: Iterable[str] = parse_depends(await run_tool(command))
        missing = [name for name in names if name not in self.installed]
        await run_tool(
            ["apt-get", *self.options, "download", *missing], cwd=self.place / "archives"
        )


def _private_apt(place: Path, ignoring: str) -> _Apt:
    text = STATUS.read_text(encoding="utf-8", errors="replace") if STATUS.exists() else ""
    text = filter_status(text, ignoring)
    status = place / "status"
    status.write_text(text, encoding="utf-8")
    (place / "archives" / "partial").mkdir(parents=True)
    settings = {
        "Dir::State::status": status,
        "Dir::Cache": place,
        "Dir::Cache::archives": place / "archives",
        "Debug::NoLocking": 1,
        # apt's own user cannot write to the private directory.
        "APT::Sandbox::User": "root",
    }
    options = ["-q"]
    for key, value in settings.items():
        options += ["-o", f"{key}={value}"]
    return _Apt(place=place, options=options, installed=installed_packages(text))


def _sayer(progress: Progress | None, total: int) -> Callable[[str, int], None]:
    def say(stage: str, done: int) -> None:
        if progress is not None:
            progress(stage, done, total)

    return say

"""Downloads the packages of a new system with apt and a private root directory: apt chooses them
and verifies signatures and digests. It needs no root."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import HostError
from quicksand.base.tools import run_tool

from quicksand_images.recipe import Recipe
from quicksand_images.sources import Mirrors, reaching_mirrors, source_lines

_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}


@dataclass(frozen=True, slots=True)
class Packages:
    """apt in a private directory. Of the host's settings it uses only how to reach mirrors. Methods
    raise ToolError."""

    root: Path

    async def update(self) -> None:
        """Fetch the package lists. Raises ToolError, also for a wrong signature."""
        await self._run("apt-get", "--error-on=any", "update")

    async def download_base(self) -> list[Path]:
        """Download the essential packages and apt, with dependencies; return the files."""
        # In a system without packages, an upgrade installs just these (mmdebstrap does the same).
        return await self._download("dist-upgrade")

    async def download(self, names: Sequence[str]) -> list[Path]:
        """Download what `download_base` does, and ``names`` with dependencies; return the files."""
        return await self._download("dist-upgrade", *(f"{name}+" for name in names))

    async def download_alone(self, names: Sequence[str], target: Path) -> list[Path]:
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
        await self._run("apt-get", "--yes", "--download-only", *words)
        return sorted((self.root / "archives").glob("*.deb"))

    async def _run(self, *words: str, cwd: Path | None = None) -> str:
        env = {**_QUIET, "APT_CONFIG": str(self.root / "apt.conf")}
        return await run_tool(words, env=env, cwd=cwd)


async def open_packages(recipe: Recipe, root: Path, *, keyring: Path, mirrors: Mirrors) -> Packages:
    """Set up the new directory ``root`` for the packages of ``recipe``. Raises HostError,
    OSError."""
    for name in ("lists/partial", "archives/partial", "nothing"):
        (root / name).mkdir(parents=True)
    (root / "status").touch()
    (root / "sources.list").write_text(
        "".join(f"{line}\n" for line in source_lines(recipe, keyring, mirrors)), encoding="utf-8"
    )
    (root / "acquire.conf").write_text(await reaching_mirrors(), encoding="utf-8")
    (root / "apt.conf").write_text(_config(recipe, root), encoding="utf-8")
    return Packages(root)


def _config(recipe: Recipe, root: Path) -> str:
    if '"' in str(root) or "\n" in str(root):
        raise HostError(
            f"apt cannot work in {str(root)!r}", hint="set QUICKSAND_DATA_DIR to a plainer path"
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
        "Dir::Cache::archives": root / "archives",
        "Dir::Log": root,
        "APT::Architecture": recipe.arch.debian,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Debug::NoLocking": "true",
    }
    lines = [f'{key} "{value}";' for key, value in settings.items()]
    architectures = ["#clear APT::Architectures;", f'APT::Architectures:: "{recipe.arch.debian}";']
    return "\n".join([*lines, *architectures]) + "\n"

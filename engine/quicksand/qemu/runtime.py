"""Plain functions that tell scripts about this host: its QEMU and its accelerator. The engine
itself uses qemu/binaries.py and qemu/accelerator.py."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.blocking import run_and_wait
from quicksand.base.errors import ConfigError, QuicksandError
from quicksand.base.paths import paths
from quicksand.qemu.accelerator import AcceleratorStatus, find_accelerator, native_accelerator
from quicksand.qemu.binaries import QemuBinaries, find_binaries
from quicksand.qemu.provision import ensure_qemu
from quicksand.records.config import Accelerator


class OS(StrEnum):
    """An operating system of hosts."""

    LINUX = "linux"
    MACOS = "darwin"
    DARWIN = "darwin"
    """`MACOS`, under the specification's name."""
    WINDOWS = "windows"

    @classmethod
    def host(cls) -> OS:
        """Return this host's operating system. Raises ConfigError if it is another one."""
        name = "windows" if sys.platform == "win32" else sys.platform
        try:
            return cls(name)
        except ValueError:
            raise ConfigError(f"{sys.platform} is no system that quicksand runs on") from None

    @property
    def os_type(self) -> OS:
        """Itself; the specification uses this name for the kind of a platform's ``os``."""
        return self


class MachineType(StrEnum):
    """QEMU's machine type for an architecture."""

    Q35 = "q35"
    VIRT = "virt"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """A QEMU that is new enough."""

    qemu_binary: Path
    """qemu-system-ARCH."""
    qemu_img: Path | None
    version: str
    origin: str
    """The place from which it comes: "system", "unpacked by setup", …"""
    data_dir: Path | None = None
    """The directory with its firmware, if QEMU must be told."""
    module_dir: Path | None = None
    """The directory with its modules, if QEMU must be told (QEMU_MODULE_DIR)."""

    @property
    def runtime_dir(self) -> Path:
        """The directory of `qemu_binary`."""
        return self.qemu_binary.parent

    @classmethod
    def of(cls, found: QemuBinaries) -> RuntimeInfo:
        """Return the public facts of a QEMU."""
        modules = found.env.get("QEMU_MODULE_DIR")
        return cls(
            qemu_binary=found.system,
            qemu_img=found.img,
            version=found.version_text,
            origin=found.origin,
            data_dir=found.data_dirs[0] if found.data_dirs else None,
            module_dir=None if modules is None else Path(modules),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformConfig:
    """The defaults for VMs on this host."""

    os: OS
    arch: Architecture
    machine_type: MachineType
    accelerator: Accelerator | None
    """The hardware accelerator that this kind of host can have; `detect_accelerator` finds out
    whether it works."""

    @property
    def cache_dir(self) -> Path:
        """The directory for files that can be made again."""
        return paths().cache

    @property
    def images_dir(self) -> Path:
        """The directory of the image store."""
        return paths().images

    def detect_accelerator(self) -> AcceleratorStatus:
        """`quicksand.detect_accelerator` for guests of this architecture."""
        return detect_accelerator(self.arch)

    def get_accelerator(self) -> Accelerator:
        """The accelerator for guests of this architecture."""
        return self.detect_accelerator().accelerator


def get_runtime(arch: str | PlatformConfig | None = None) -> RuntimeInfo:
    """The QEMU for guests of ``arch`` or of a platform, by default this host's. Raises
    QemuNotFound, QemuTooOld, ConfigError for an unknown architecture."""
    return RuntimeInfo.of(find_binaries(_arch(arch).value))


def ensure_runtime(arch: str | None = None) -> RuntimeInfo:
    """`get_runtime`, after getting a QEMU if there is none that works, as the command ``setup``
    does: by the system's package manager as root, else from the distribution's packages, unpacked
    in the user's data directory. It blocks, for minutes if much must be fetched.

    Raises QemuNotFound, QemuTooOld or another HostError, ConfigError for an unknown architecture.
    """
    wanted = _arch(arch).value
    return RuntimeInfo.of(run_and_wait(lambda: ensure_qemu(arch=wanted)))


def install_qemu() -> None:
    """Get a QEMU for guests of this host's architecture, if there is none that works. Blocks and
    raises as `ensure_runtime`."""
    ensure_runtime()


def is_runtime_available(arch: str | None = None) -> bool:
    """Whether there is a QEMU that `get_runtime` would return."""
    try:
        get_runtime(arch)
    except QuicksandError:
        return False
    return True


def detect_accelerator(arch: str | None = None) -> AcceleratorStatus:
    """The fastest accelerator that works for guests of ``arch``, and why no faster one does.

    The first call after a boot of the host runs a probe, which takes 0.1 s, or 4 s if the
    accelerator hangs. Raises QemuNotFound, QemuTooOld, ConfigError for an unknown architecture.
    """
    wanted = _arch(arch)
    binaries = find_binaries(wanted.value)
    return run_and_wait(lambda: find_accelerator(binaries, wanted))


def get_accelerator() -> Accelerator:
    """The accelerator for guests of this host's architecture. Raises as `detect_accelerator`."""
    return detect_accelerator().accelerator


def get_machine_type(arch: str | None = None) -> MachineType:
    """QEMU's machine type for guests of ``arch``, by default this host's. Raises ConfigError for an
    unknown architecture."""
    return MachineType.Q35 if _arch(arch) is Architecture.X86_64 else MachineType.VIRT


def get_platform_config(arch: str | None = None) -> PlatformConfig:
    """The defaults of this host for guests of ``arch``, by default its own. Raises ConfigError for
    an unknown system or architecture."""
    wanted = _arch(arch)
    return PlatformConfig(
        os=OS.host(),
        arch=wanted,
        machine_type=get_machine_type(wanted),
        accelerator=native_accelerator() if wanted is Architecture.host() else None,
    )


def _arch(name: str | PlatformConfig | None) -> Architecture:
    """The architecture of that name or platform, by default this host's. Raises ConfigError."""
    if isinstance(name, PlatformConfig):
        return name.arch
    return Architecture.host() if name is None else Architecture.parse(name)

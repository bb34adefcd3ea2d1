"""Plain functions that tell scripts what this host offers: which QEMU, which accelerator. The
engine itself uses qemu/binaries.py and qemu/accelerator.py."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, QuicksandError
from quicksand.qemu.accelerator import AcceleratorStatus, find_accelerator, native_accelerator
from quicksand.qemu.binaries import find_binaries
from quicksand.records.config import Accelerator


class OS(StrEnum):
    """An operating system of hosts."""

    LINUX = "linux"
    MACOS = "darwin"
    WINDOWS = "windows"

    @classmethod
    def host(cls) -> OS:
        """This host's operating system. Raises ConfigError if it is none of these."""
        name = "windows" if sys.platform == "win32" else sys.platform
        try:
            return cls(name)
        except ValueError:
            raise ConfigError(f"{sys.platform} is no system that quicksand runs on") from None

    @property
    def os_type(self) -> OS:
        """Itself; the specification calls the kind of a platform's ``os`` so."""
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
    """Where it comes from: "system", "unpacked by setup", …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformConfig:
    """The defaults for VMs on this host."""

    os: OS
    arch: Architecture
    machine_type: MachineType
    accelerator: Accelerator | None
    """The hardware accelerator that this kind of host can have; `detect_accelerator` finds out
    whether it works."""


def get_runtime(arch: str | None = None) -> RuntimeInfo:
    """The QEMU for guests of ``arch``, by default this host's. Raises QemuNotFound, QemuTooOld,
    ConfigError for an unknown architecture."""
    wanted = Architecture.parse(arch) if arch else Architecture.host()
    found = find_binaries(wanted.value)
    return RuntimeInfo(
        qemu_binary=found.system,
        qemu_img=found.img,
        version=found.version_text,
        origin=found.origin,
    )


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
    wanted = Architecture.parse(arch) if arch else Architecture.host()
    binaries = find_binaries(wanted.value)
    # In another thread, since an event loop may be running in this one.
    with ThreadPoolExecutor(1, "quicksand-probe") as thread:
        return thread.submit(lambda: asyncio.run(find_accelerator(binaries, wanted))).result()


def get_accelerator() -> Accelerator:
    """The accelerator for guests of this host's architecture. Raises as `detect_accelerator`."""
    return detect_accelerator().accelerator


def get_platform_config() -> PlatformConfig:
    """The defaults of this host. Raises ConfigError for an unknown system or architecture."""
    arch = Architecture.host()
    return PlatformConfig(
        os=OS.host(),
        arch=arch,
        machine_type=MachineType.Q35 if arch is Architecture.X86_64 else MachineType.VIRT,
        accelerator=native_accelerator(),
    )

"""What this host offers: which QEMU, which accelerator. Plain functions, for scripts; the engine
itself uses qemu/binaries.py and qemu/accelerator.py."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from quicksand.config import Accelerator
from quicksand.errors import ConfigError, QuicksandError
from quicksand.host.arch import Architecture
from quicksand.qemu.accelerator import AcceleratorStatus, find_accelerator, native_accelerator
from quicksand.qemu.binaries import find_binaries


class OS(StrEnum):
    """The host's system."""

    LINUX = "linux"
    MACOS = "darwin"
    WINDOWS = "windows"

    @classmethod
    def host(cls) -> OS:
        """This host's. Raises ConfigError on another one."""
        name = "windows" if sys.platform == "win32" else sys.platform
        try:
            return cls(name)
        except ValueError:
            raise ConfigError(f"{sys.platform} is no system that quicksand runs on") from None


class MachineType(StrEnum):
    """QEMU's machine for guests of an architecture."""

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
    """Where it is from: "system", "unpacked by setup", …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformConfig:
    """What a VM on this host is made with."""

    os: OS
    arch: Architecture
    machine_type: MachineType
    accelerator: Accelerator | None
    """The hardware accelerator that this kind of host can have; whether it works,
    `detect_accelerator` finds out."""


def get_runtime(arch: str | None = None) -> RuntimeInfo:
    """The QEMU for guests of ``arch``, this host's by default. Raises QemuNotFound, QemuTooOld."""
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
    """The fastest accelerator that works for guests of ``arch``, and why not a faster one.

    The first call after a boot of the host runs a probe: 0.1 s, or 4 s where the accelerator hangs.
    Raises QemuNotFound, QemuTooOld.
    """
    wanted = Architecture.parse(arch) if arch else Architecture.host()
    binaries = find_binaries(wanted.value)
    # In a thread of its own: there may be an event loop in this one.
    with ThreadPoolExecutor(1, "quicksand-probe") as thread:
        return thread.submit(lambda: asyncio.run(find_accelerator(binaries, wanted))).result()


def get_accelerator() -> Accelerator:
    """What guests of this host's architecture run on. Raises as `detect_accelerator` does."""
    return detect_accelerator().accelerator


def get_platform_config() -> PlatformConfig:
    """The defaults of this host. Raises ConfigError on a host of an unknown kind."""
    arch = Architecture.host()
    return PlatformConfig(
        os=OS.host(),
        arch=arch,
        machine_type=MachineType.Q35 if arch is Architecture.X86_64 else MachineType.VIRT,
        accelerator=native_accelerator(),
    )

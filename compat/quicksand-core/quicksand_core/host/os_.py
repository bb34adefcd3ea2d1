"""The host's operating system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from quicksand import OS, Accelerator, AcceleratorStatus, detect_accelerator
from quicksand.base.paths import paths
from quicksand.qemu.accelerator import native_accelerator

__all__ = [
    "OS",
    "Accelerator",
    "AcceleratorStatus",
    "BaseOSConfig",
    "DarwinConfig",
    "LinuxConfig",
    "OSConfig",
    "WindowsConfig",
]


class BaseOSConfig(ABC):
    """The facts about QEMU that depend on the host's operating system."""

    @property
    @abstractmethod
    def os_type(self) -> OS:
        """The operating system."""

    @property
    def binary_extension(self) -> str:
        """What the names of programs end with."""
        return ".exe" if self.os_type is OS.WINDOWS else ""

    @property
    def default_accelerator(self) -> Accelerator:
        """The accelerator that such a host can have."""
        name = "win32" if self.os_type is OS.WINDOWS else self.os_type.value
        return native_accelerator(name) or Accelerator.TCG

    @property
    def cache_dir(self) -> Path:
        """The directory of this user for what can be made again."""
        return paths().cache

    @property
    def images_dir(self) -> Path:
        """The directory of the image store."""
        return paths().images

    def detect_accelerator(self) -> AcceleratorStatus:
        """The accelerator that works on this host (`quicksand.detect_accelerator`)."""
        return detect_accelerator()


class LinuxConfig(BaseOSConfig):
    """Linux."""

    @property
    def os_type(self) -> OS:
        return OS.LINUX


class DarwinConfig(BaseOSConfig):
    """macOS."""

    @property
    def os_type(self) -> OS:
        return OS.DARWIN


class WindowsConfig(BaseOSConfig):
    """Windows."""

    @property
    def os_type(self) -> OS:
        return OS.WINDOWS


class OSConfig(BaseOSConfig):
    """This host: ``OSConfig()`` is one of the other classes. Raises ConfigError for a system on
    which quicksand does not run."""

    def __new__(cls) -> BaseOSConfig:  # type: ignore[misc] # as the original's does
        return _KINDS[OS.host()]()

    @property
    def os_type(self) -> OS:
        return OS.host()


_KINDS: dict[OS, type[BaseOSConfig]] = {
    OS.LINUX: LinuxConfig,
    OS.DARWIN: DarwinConfig,
    OS.WINDOWS: WindowsConfig,
}

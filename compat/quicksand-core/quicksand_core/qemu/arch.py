"""What depends on the architecture of guests."""

from __future__ import annotations

from abc import ABC, abstractmethod

from quicksand import Architecture, MachineType, get_machine_type

__all__ = [
    "ARM64Config",
    "Architecture",
    "ArchitectureConfig",
    "BaseArchitectureConfig",
    "MachineType",
    "X86_64Config",
]


class BaseArchitectureConfig(ABC):
    """An architecture and its machines."""

    @property
    @abstractmethod
    def arch_type(self) -> Architecture:
        """The architecture."""

    @property
    def machine_type(self) -> MachineType:
        """QEMU's machine type."""
        return get_machine_type(self.arch_type)

    @property
    def qemu_suffix(self) -> str:
        """What the name of its QEMU ends with."""
        return self.arch_type.value


class X86_64Config(BaseArchitectureConfig):  # noqa: N801 - the original's name
    """x86_64, also called amd64."""

    @property
    def arch_type(self) -> Architecture:
        return Architecture.X86_64


class ARM64Config(BaseArchitectureConfig):
    """arm64, also called aarch64."""

    @property
    def arch_type(self) -> Architecture:
        return Architecture.ARM64


class ArchitectureConfig(BaseArchitectureConfig):
    """That of this host: ``ArchitectureConfig()`` is one of the other classes. Raises ConfigError
    for an unknown architecture."""

    def __new__(cls) -> BaseArchitectureConfig:  # type: ignore[misc] # as the original's does
        is_x86 = Architecture.host() is Architecture.X86_64
        return X86_64Config() if is_x86 else ARM64Config()

    @property
    def arch_type(self) -> Architecture:
        return Architecture.host()

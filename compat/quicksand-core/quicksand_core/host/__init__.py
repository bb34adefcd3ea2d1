"""The host: its operating system and its processor."""

from quicksand_core.host import arch
from quicksand_core.host import os_ as os
from quicksand_core.host.arch import Architecture
from quicksand_core.host.host_memory import get_host_memory_bytes
from quicksand_core.host.os_ import (
    OS,
    Accelerator,
    AcceleratorStatus,
    BaseOSConfig,
    DarwinConfig,
    LinuxConfig,
    OSConfig,
    WindowsConfig,
)

__all__ = [
    "OS",
    "Accelerator",
    "AcceleratorStatus",
    "Architecture",
    "BaseOSConfig",
    "DarwinConfig",
    "LinuxConfig",
    "OSConfig",
    "WindowsConfig",
    "arch",
    "get_host_memory_bytes",
    "os",
]

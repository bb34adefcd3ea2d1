"""The names of the published quicksand-core, on the engine of quicksand-tui (see README.md)."""

import logging
from importlib.metadata import PackageNotFoundError, version

from quicksand_core import _beside

_beside.require_alone()

from quicksand_core import _types as types  # noqa: E402 - only now is it known whose names these are
from quicksand_core._types import (  # noqa: E402
    BaseImageInfo,
    BootTiming,
    Forward,
    Guest,
    Host,
    ImageProvider,
    Key,
    Mount,
    MountHandle,
    MountType,
    NetworkMode,
    PortForward,
    QuicksandGuestAgentMethod,
    ResolvedImage,
    SaveManifest,
)
from quicksand_core.host import (  # noqa: E402
    OS,
    Accelerator,
    AcceleratorStatus,
    Architecture,
    BaseOSConfig,
    DarwinConfig,
    LinuxConfig,
    OSConfig,
    WindowsConfig,
)
from quicksand_core.qemu.arch import (  # noqa: E402
    ArchitectureConfig,
    ARM64Config,
    BaseArchitectureConfig,
    MachineType,
    X86_64Config,
)
from quicksand_core.qemu.installer import ensure_runtime, install_qemu  # noqa: E402
from quicksand_core.qemu.platform import (  # noqa: E402
    PlatformConfig,
    RuntimeInfo,
    detect_accelerator,
    get_accelerator,
    get_machine_type,
    get_platform_config,
    get_runtime,
    is_runtime_available,
)
from quicksand_core.sandbox import (  # noqa: E402
    ExecuteResult,
    Sandbox,
    SandboxConfig,
    SandboxConfigParams,
    SandboxUser,
)

__all__ = [
    "OS",
    "ARM64Config",
    "Accelerator",
    "AcceleratorStatus",
    "Architecture",
    "ArchitectureConfig",
    "BaseArchitectureConfig",
    "BaseImageInfo",
    "BaseOSConfig",
    "BootTiming",
    "DarwinConfig",
    "ExecuteResult",
    "Forward",
    "Guest",
    "Host",
    "ImageProvider",
    "Key",
    "LinuxConfig",
    "MachineType",
    "Mount",
    "MountHandle",
    "MountType",
    "NetworkMode",
    "OSConfig",
    "PlatformConfig",
    "PortForward",
    "QuicksandGuestAgentMethod",
    "ResolvedImage",
    "RuntimeInfo",
    "Sandbox",
    "SandboxConfig",
    "SandboxConfigParams",
    "SandboxUser",
    "SaveManifest",
    "WindowsConfig",
    "X86_64Config",
    "detect_accelerator",
    "ensure_runtime",
    "get_accelerator",
    "get_machine_type",
    "get_platform_config",
    "get_runtime",
    "install_qemu",
    "is_runtime_available",
    "types",
]

try:
    __version__ = version("quicksand-core")
except PackageNotFoundError:  # it only lies in a directory
    __version__ = "0.0.0"

logging.getLogger("quicksand").addHandler(logging.NullHandler())

"""quicksand: sandboxes that are real Linux VMs. This module holds only the public names.

They are imported when first used, so that a command that only lists sandboxes loads no asyncio.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand.boot_timing import BootTiming
    from quicksand.config import Accelerator, NetworkMode, PortForward, SandboxConfig
    from quicksand.diskdiff.changes import ChangeKind, FileChange, FileType
    from quicksand.display.keys import Key
    from quicksand.errors import QuicksandError
    from quicksand.events import Event, EventKind
    from quicksand.execution import Command, ExecuteResult
    from quicksand.forwards import Forward, Guest, Host
    from quicksand.guest_files import GuestFile, GuestFiles
    from quicksand.guest_traffic import GuestTraffic
    from quicksand.host.arch import Architecture
    from quicksand.images.named import (
        AlpineDesktopSandbox,
        AlpineSandbox,
        DebianDesktopSandbox,
        DebianSandbox,
        UbuntuDesktopSandbox,
        UbuntuSandbox,
    )
    from quicksand.images.resolve import ImageProvider, ResolvedImage
    from quicksand.qemu.accelerator import AcceleratorStatus
    from quicksand.qemu.host_usage import HostUsage
    from quicksand.runtime import (
        OS,
        MachineType,
        PlatformConfig,
        RuntimeInfo,
        detect_accelerator,
        get_accelerator,
        get_platform_config,
        get_runtime,
        is_runtime_available,
    )
    from quicksand.sandbox import Sandbox, Snapshot
    from quicksand.sandbox_records import Entry, Status
    from quicksand.saves.manifest import SaveManifest
    from quicksand.saves.resolving import SaveWarning
    from quicksand.shell import Shell, ShellInfo
    from quicksand.snapshots.checkpoint import Checkpoint
    from quicksand.stats import GuestProcess, SandboxStats

__all__ = [
    "OS",
    "Accelerator",
    "AcceleratorStatus",
    "AlpineDesktopSandbox",
    "AlpineSandbox",
    "Architecture",
    "BootTiming",
    "ChangeKind",
    "Checkpoint",
    "Command",
    "DebianDesktopSandbox",
    "DebianSandbox",
    "Entry",
    "Event",
    "EventKind",
    "ExecuteResult",
    "FileChange",
    "FileType",
    "Forward",
    "Guest",
    "GuestFile",
    "GuestFiles",
    "GuestProcess",
    "GuestTraffic",
    "Host",
    "HostUsage",
    "ImageProvider",
    "Key",
    "MachineType",
    "Mount",
    "MountHandle",
    "NetworkMode",
    "PlatformConfig",
    "PortForward",
    "QuicksandError",
    "ResolvedImage",
    "RuntimeInfo",
    "Sandbox",
    "SandboxConfig",
    "SandboxStats",
    "SaveManifest",
    "SaveWarning",
    "Shell",
    "ShellInfo",
    "Snapshot",
    "Status",
    "UbuntuDesktopSandbox",
    "UbuntuSandbox",
    "detect_accelerator",
    "get_accelerator",
    "get_platform_config",
    "get_runtime",
    "is_runtime_available",
]

_HOMES = {
    "boot_timing": ("BootTiming",),
    "config": ("Accelerator", "NetworkMode", "PortForward", "SandboxConfig"),
    "diskdiff.changes": ("ChangeKind", "FileChange", "FileType"),
    "display.keys": ("Key",),
    "errors": ("QuicksandError",),
    "events": ("Event", "EventKind"),
    "execution": ("Command", "ExecuteResult"),
    "forwards": ("Forward", "Guest", "Host"),
    "guest_files": ("GuestFile", "GuestFiles"),
    "guest_traffic": ("GuestTraffic",),
    "host.arch": ("Architecture",),
    "images.named": (
        "AlpineDesktopSandbox",
        "AlpineSandbox",
        "DebianDesktopSandbox",
        "DebianSandbox",
        "UbuntuDesktopSandbox",
        "UbuntuSandbox",
    ),
    "images.resolve": ("ImageProvider", "ResolvedImage"),
    "qemu.accelerator": ("AcceleratorStatus",),
    "sandbox_records": ("Entry", "Status"),
    "runtime": (
        "OS",
        "MachineType",
        "PlatformConfig",
        "RuntimeInfo",
        "detect_accelerator",
        "get_accelerator",
        "get_platform_config",
        "get_runtime",
        "is_runtime_available",
    ),
    "mounts.mount": ("Mount",),
    "sandbox": ("Sandbox", "Snapshot"),
    "saves.manifest": ("SaveManifest",),
    "saves.resolving": ("SaveWarning",),
    "shell": ("Shell", "ShellInfo"),
    "snapshots.checkpoint": ("Checkpoint",),
    "qemu.host_usage": ("HostUsage",),
    "stats": ("GuestProcess", "SandboxStats"),
    "vm.mounts": ("MountHandle",),
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module and keep it (PEP 562)."""
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"quicksand.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'quicksand' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""quicksand: sandboxes that are real Linux VMs. This module holds only the public names.

They are imported when first used, so that a command that only lists sandboxes loads no asyncio.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand.base.arch import Architecture
    from quicksand.base.boot_timing import BootTiming
    from quicksand.base.errors import (
        AcceleratorError,
        AgentError,
        AgentProtocolError,
        AgentRefusedError,
        AgentUnreachableError,
        BootTimeoutError,
        BundleError,
        CheckpointNotFoundError,
        CommandFailedError,
        ConfigError,
        DiskSpaceError,
        DisplayError,
        DisplayTimeoutError,
        FleetError,
        FleetFullError,
        FleetHostNotFoundError,
        GuestFileExistsError,
        GuestFileNotFoundError,
        GuestIsADirectoryError,
        GuestNotADirectoryError,
        GuestPanicError,
        GuestPermissionError,
        HistoryError,
        HostError,
        ImageError,
        ImageNotFound,
        MachineError,
        MemoryBudgetError,
        MountError,
        NameTakenError,
        NoDisplayError,
        PathError,
        PortInUseError,
        QemuDiedError,
        QemuLacksDevice,
        QemuNotFound,
        QemuTooOld,
        QuicksandError,
        RemoteError,
        RemoteProtocolError,
        RemoteRefusedError,
        RemoteUnansweredError,
        RemoteUnreachableError,
        RevertedError,
        SandboxNotFoundError,
        SaveError,
        SaveNotFoundError,
        StateError,
        UnfitGuestError,
        UnknownOptionError,
        UnreachableError,
    )
    from quicksand.disks.diff.changes import ChangeKind, FileChange, FileType
    from quicksand.disks.diff.patch import Patch
    from quicksand.disks.diff.versions import FileVersions
    from quicksand.disks.images.provider import ImageProvider, ResolvedImage
    from quicksand.display.keys import Key
    from quicksand.fleet.batch import BatchResult
    from quicksand.fleet.fleet import Fleet
    from quicksand.fleet.interface import (
        FleetEvent,
        FleetEventKind,
        FleetHost,
        HostLack,
        HostState,
        Lack,
        Need,
        Reservation,
    )
    from quicksand.fleet.keeping.kept import KeptSandbox
    from quicksand.fleet.keeping.restart import Restart
    from quicksand.guest.connections import GuestConnection, GuestListener
    from quicksand.guest.datagrams import GuestDatagrams
    from quicksand.guest.directories import DirectoryWatch, WatchEvent, WatchKind
    from quicksand.guest.execution import Command, ExecuteResult
    from quicksand.guest.files import GuestFile, GuestFiles
    from quicksand.guest.shell import Shell, ShellInfo
    from quicksand.guest.traffic import GuestTraffic
    from quicksand.guest.users import Login, SandboxUser
    from quicksand.guest.watching import WatchedShell
    from quicksand.hosted.host import RemoteHost
    from quicksand.hosted.known import HostedSandbox
    from quicksand.hosted.save_moving import MovedSave
    from quicksand.life.events import Event, EventKind
    from quicksand.life.installation import install
    from quicksand.life.mounts import MountHandle
    from quicksand.life.stats import GuestProcess, SandboxStats
    from quicksand.named_images import (
        AlpineDesktopSandbox,
        AlpineSandbox,
        DebianDesktopSandbox,
        DebianSandbox,
        UbuntuDesktopSandbox,
        UbuntuSandbox,
    )
    from quicksand.qemu.accelerator import AcceleratorStatus
    from quicksand.qemu.host_usage import HostUsage
    from quicksand.qemu.runtime import (
        OS,
        MachineType,
        PlatformConfig,
        RuntimeInfo,
        detect_accelerator,
        ensure_runtime,
        get_accelerator,
        get_machine_type,
        get_platform_config,
        get_runtime,
        install_qemu,
        is_runtime_available,
    )
    from quicksand.records.config import Accelerator, NetworkMode, SandboxConfig
    from quicksand.records.forwards import Forward, Guest, Host
    from quicksand.records.mount import Mount, MountType
    from quicksand.records.params import SandboxConfigParams, SandboxOptions
    from quicksand.records.port_forwards import PortForward
    from quicksand.records.sandboxes import Entry, Status
    from quicksand.sandbox import Sandbox, Snapshot
    from quicksand.saves.manifest import SaveManifest
    from quicksand.saves.resolving import SaveWarning
    from quicksand.snapshots.checkpoint import Checkpoint
    from quicksand.snapshots.comparison import Difference

__all__ = [
    "OS",
    "Accelerator",
    "AcceleratorError",
    "AcceleratorStatus",
    "AgentError",
    "AgentProtocolError",
    "AgentRefusedError",
    "AgentUnreachableError",
    "AlpineDesktopSandbox",
    "AlpineSandbox",
    "Architecture",
    "BatchResult",
    "BootTimeoutError",
    "BootTiming",
    "BundleError",
    "ChangeKind",
    "Checkpoint",
    "CheckpointNotFoundError",
    "Command",
    "CommandFailedError",
    "ConfigError",
    "DebianDesktopSandbox",
    "DebianSandbox",
    "Difference",
    "DirectoryWatch",
    "DiskSpaceError",
    "DisplayError",
    "DisplayTimeoutError",
    "Entry",
    "Event",
    "EventKind",
    "ExecuteResult",
    "FileChange",
    "FileType",
    "FileVersions",
    "Fleet",
    "FleetError",
    "FleetEvent",
    "FleetEventKind",
    "FleetFullError",
    "FleetHost",
    "FleetHostNotFoundError",
    "Forward",
    "Guest",
    "GuestConnection",
    "GuestDatagrams",
    "GuestFile",
    "GuestFileExistsError",
    "GuestFileNotFoundError",
    "GuestFiles",
    "GuestIsADirectoryError",
    "GuestListener",
    "GuestNotADirectoryError",
    "GuestPanicError",
    "GuestPermissionError",
    "GuestProcess",
    "GuestTraffic",
    "HistoryError",
    "Host",
    "HostError",
    "HostLack",
    "HostState",
    "HostUsage",
    "HostedSandbox",
    "ImageError",
    "ImageNotFound",
    "ImageProvider",
    "KeptSandbox",
    "Key",
    "Lack",
    "Login",
    "MachineError",
    "MachineType",
    "MemoryBudgetError",
    "Mount",
    "MountError",
    "MountHandle",
    "MountType",
    "MovedSave",
    "NameTakenError",
    "Need",
    "NetworkMode",
    "NoDisplayError",
    "Patch",
    "PathError",
    "PlatformConfig",
    "PortForward",
    "PortInUseError",
    "QemuDiedError",
    "QemuLacksDevice",
    "QemuNotFound",
    "QemuTooOld",
    "QuicksandError",
    "RemoteError",
    "RemoteHost",
    "RemoteProtocolError",
    "RemoteRefusedError",
    "RemoteUnansweredError",
    "RemoteUnreachableError",
    "Reservation",
    "ResolvedImage",
    "Restart",
    "RevertedError",
    "RuntimeInfo",
    "Sandbox",
    "SandboxConfig",
    "SandboxConfigParams",
    "SandboxNotFoundError",
    "SandboxOptions",
    "SandboxStats",
    "SandboxUser",
    "SaveError",
    "SaveManifest",
    "SaveNotFoundError",
    "SaveWarning",
    "Shell",
    "ShellInfo",
    "Snapshot",
    "StateError",
    "Status",
    "UbuntuDesktopSandbox",
    "UbuntuSandbox",
    "UnfitGuestError",
    "UnknownOptionError",
    "UnreachableError",
    "WatchEvent",
    "WatchKind",
    "WatchedShell",
    "detect_accelerator",
    "ensure_runtime",
    "get_accelerator",
    "get_machine_type",
    "get_platform_config",
    "get_runtime",
    "install",
    "install_qemu",
    "is_runtime_available",
]

_HOMES = {
    "base.boot_timing": ("BootTiming",),
    "records.config": ("Accelerator", "NetworkMode", "SandboxConfig"),
    "records.port_forwards": ("PortForward",),
    "disks.diff.changes": ("ChangeKind", "FileChange", "FileType"),
    "disks.diff.patch": ("Patch",),
    "disks.diff.versions": ("FileVersions",),
    "display.keys": ("Key",),
    "base.errors": (
        "AcceleratorError",
        "AgentError",
        "AgentProtocolError",
        "AgentRefusedError",
        "AgentUnreachableError",
        "BootTimeoutError",
        "BundleError",
        "CheckpointNotFoundError",
        "CommandFailedError",
        "ConfigError",
        "DiskSpaceError",
        "DisplayError",
        "DisplayTimeoutError",
        "FleetError",
        "FleetFullError",
        "FleetHostNotFoundError",
        "GuestFileExistsError",
        "GuestFileNotFoundError",
        "GuestIsADirectoryError",
        "GuestNotADirectoryError",
        "GuestPanicError",
        "GuestPermissionError",
        "HistoryError",
        "HostError",
        "ImageError",
        "ImageNotFound",
        "MachineError",
        "MemoryBudgetError",
        "MountError",
        "NameTakenError",
        "NoDisplayError",
        "PathError",
        "PortInUseError",
        "QemuDiedError",
        "QemuLacksDevice",
        "QemuNotFound",
        "QemuTooOld",
        "QuicksandError",
        "RemoteError",
        "RemoteProtocolError",
        "RemoteRefusedError",
        "RemoteUnansweredError",
        "RemoteUnreachableError",
        "RevertedError",
        "SandboxNotFoundError",
        "SaveError",
        "SaveNotFoundError",
        "StateError",
        "UnfitGuestError",
        "UnknownOptionError",
        "UnreachableError",
    ),
    "fleet.batch": ("BatchResult",),
    "fleet.fleet": ("Fleet",),
    "fleet.keeping.kept": ("KeptSandbox",),
    "fleet.keeping.restart": ("Restart",),
    "fleet.interface": (
        "FleetEvent",
        "FleetEventKind",
        "FleetHost",
        "HostLack",
        "HostState",
        "Lack",
        "Need",
        "Reservation",
    ),
    "hosted.host": ("RemoteHost",),
    "hosted.known": ("HostedSandbox",),
    "hosted.save_moving": ("MovedSave",),
    "life.events": ("Event", "EventKind"),
    "life.installation": ("install",),
    "guest.connections": ("GuestConnection", "GuestListener"),
    "guest.datagrams": ("GuestDatagrams",),
    "guest.directories": ("DirectoryWatch", "WatchEvent", "WatchKind"),
    "guest.execution": ("Command", "ExecuteResult"),
    "records.forwards": ("Forward", "Guest", "Host"),
    "guest.files": ("GuestFile", "GuestFiles"),
    "guest.traffic": ("GuestTraffic",),
    "guest.users": ("Login", "SandboxUser"),
    "guest.watching": ("WatchedShell",),
    "base.arch": ("Architecture",),
    "named_images": (
        "AlpineDesktopSandbox",
        "AlpineSandbox",
        "DebianDesktopSandbox",
        "DebianSandbox",
        "UbuntuDesktopSandbox",
        "UbuntuSandbox",
    ),
    "disks.images.provider": ("ImageProvider", "ResolvedImage"),
    "qemu.accelerator": ("AcceleratorStatus",),
    "records.sandboxes": ("Entry", "Status"),
    "qemu.runtime": (
        "OS",
        "MachineType",
        "PlatformConfig",
        "RuntimeInfo",
        "detect_accelerator",
        "ensure_runtime",
        "get_accelerator",
        "get_machine_type",
        "get_platform_config",
        "get_runtime",
        "install_qemu",
        "is_runtime_available",
    ),
    "records.mount": ("Mount", "MountType"),
    "records.params": ("SandboxConfigParams", "SandboxOptions"),
    "sandbox": ("Sandbox", "Snapshot"),
    "saves.manifest": ("SaveManifest",),
    "saves.resolving": ("SaveWarning",),
    "guest.shell": ("Shell", "ShellInfo"),
    "snapshots.checkpoint": ("Checkpoint",),
    "snapshots.comparison": ("Difference",),
    "qemu.host_usage": ("HostUsage",),
    "life.stats": ("GuestProcess", "SandboxStats"),
    "life.mounts": ("MountHandle",),
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module and keep it (PEP 562)."""
    if name == "__version__":
        return import_module("quicksand.base.version").version_text()
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"quicksand.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'quicksand' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

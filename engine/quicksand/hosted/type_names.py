"""The types of the arguments and results of `Sandbox`'s methods, by the names in their
declarations: some modules import these only for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from quicksand_disks.changes import ChangeKind, FileChange, FileType
from quicksand_disks.comparing import FileVersions, PackageChange, Patch, Version

from quicksand.base.arch import Architecture
from quicksand.base.progress import BootTiming, Progress
from quicksand.guest.network import GuestTraffic
from quicksand.life.qmp_events import Event, EventKind
from quicksand.life.sandbox_display import Region
from quicksand.life.sandbox_mounts import MountHandle
from quicksand.life.sandbox_stats import SandboxStats
from quicksand.mounts.known_mounts import Written
from quicksand.mounts.shares import MountTraffic
from quicksand.qemu.host_usage import HostUsage
from quicksand.records.config import Accelerator, NetworkMode, SandboxConfig
from quicksand.records.mount import Mount
from quicksand.records.port_forwards import PortForward
from quicksand.saves.save_manifest import Base, Parent, SavedLayer, SaveManifest
from quicksand.snapshots.comparison import Difference
from quicksand.snapshots.recognition import ShellTail
from quicksand.things.checkpoint import Checkpoint

NAMES: MappingProxyType[str, Any] = MappingProxyType(
    {
        **{one.__name__: one for one in (Architecture, BootTiming, ChangeKind, FileChange)},
        **{one.__name__: one for one in (FileType, Patch, FileVersions, Version, GuestTraffic)},
        **{one.__name__: one for one in (Event, EventKind, MountHandle, SandboxStats)},
        **{one.__name__: one for one in (MountTraffic, Written, HostUsage, Accelerator)},
        **{one.__name__: one for one in (NetworkMode, SandboxConfig, Mount, PortForward)},
        **{one.__name__: one for one in (Base, Parent, SavedLayer, SaveManifest)},
        **{one.__name__: one for one in (Checkpoint, Difference, PackageChange, ShellTail)},
        **{"Any": Any, "Callable": Callable, "Mapping": Mapping, "Path": Path},
        **{"Image": Any, "Progress": Progress, "Region": Region, "Sequence": Sequence},
    }
)

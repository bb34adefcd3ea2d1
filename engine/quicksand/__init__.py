"""quicksand: sandboxes that are real Linux VMs. This module holds only the public names.

They are imported when first used, so that a command that only lists sandboxes loads no asyncio.
"""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand_disks.changes import ChangeKind as ChangeKind
    from quicksand_disks.changes import FileChange as FileChange
    from quicksand_disks.changes import FileType as FileType
    from quicksand_disks.comparing import FileVersions as FileVersions
    from quicksand_disks.comparing import PackageChange as PackageChange
    from quicksand_disks.comparing import PackageChangeKind as PackageChangeKind
    from quicksand_disks.comparing import Patch as Patch
    from quicksand_fleet import BatchResult as BatchResult
    from quicksand_fleet import Fleet as Fleet
    from quicksand_fleet import FleetEvent as FleetEvent
    from quicksand_fleet import FleetEventKind as FleetEventKind
    from quicksand_fleet import FleetHost as FleetHost
    from quicksand_fleet import HostLack as HostLack
    from quicksand_fleet import HostState as HostState
    from quicksand_fleet import KeptSandbox as KeptSandbox
    from quicksand_fleet import Lack as Lack
    from quicksand_fleet import Need as Need
    from quicksand_fleet import Reservation as Reservation
    from quicksand_fleet import Restart as Restart
    from quicksand_vnc import Key as Key

    from quicksand.base.arch import Architecture as Architecture
    from quicksand.base.progress import BootTiming as BootTiming
    from quicksand.base.version import __version__ as __version__
    from quicksand.disks.images.provider import ImageProvider as ImageProvider
    from quicksand.disks.images.provider import ResolvedImage as ResolvedImage
    from quicksand.errors import *
    from quicksand.guest.connections import GuestConnection as GuestConnection
    from quicksand.guest.connections import GuestDatagrams as GuestDatagrams
    from quicksand.guest.connections import GuestListener as GuestListener
    from quicksand.guest.directory_watch import DirectoryWatch as DirectoryWatch
    from quicksand.guest.directory_watch import WatchEvent as WatchEvent
    from quicksand.guest.directory_watch import WatchKind as WatchKind
    from quicksand.guest.execution import Command as Command
    from quicksand.guest.execution import ExecuteResult as ExecuteResult
    from quicksand.guest.guest_files import GuestFile as GuestFile
    from quicksand.guest.guest_files import GuestFiles as GuestFiles
    from quicksand.guest.shell import Shell as Shell
    from quicksand.guest.shell import ShellInfo as ShellInfo
    from quicksand.guest.shell import WatchedShell as WatchedShell
    from quicksand.guest.users import Login as Login
    from quicksand.guest.users import SandboxUser as SandboxUser
    from quicksand.hosted.codec import HostedSandbox as HostedSandbox
    from quicksand.hosted.remote_host import RemoteHost as RemoteHost
    from quicksand.hosted.save_moving import MovedSave as MovedSave
    from quicksand.life.installation import install as install
    from quicksand.life.qmp_events import Event as Event
    from quicksand.life.qmp_events import EventKind as EventKind
    from quicksand.life.sandbox_mounts import MountHandle as MountHandle
    from quicksand.life.sandbox_stats import GuestProcess as GuestProcess
    from quicksand.life.sandbox_stats import SandboxStats as SandboxStats
    from quicksand.named_images import AlpineDesktopSandbox as AlpineDesktopSandbox
    from quicksand.named_images import AlpineSandbox as AlpineSandbox
    from quicksand.named_images import DebianDesktopSandbox as DebianDesktopSandbox
    from quicksand.named_images import DebianSandbox as DebianSandbox
    from quicksand.named_images import UbuntuDesktopSandbox as UbuntuDesktopSandbox
    from quicksand.named_images import UbuntuSandbox as UbuntuSandbox
    from quicksand.qemu.accelerator import AcceleratorStatus as AcceleratorStatus
    from quicksand.qemu.host_usage import HostUsage as HostUsage
    from quicksand.qemu.runtime import OS as OS
    from quicksand.qemu.runtime import MachineType as MachineType
    from quicksand.qemu.runtime import PlatformConfig as PlatformConfig
    from quicksand.qemu.runtime import RuntimeInfo as RuntimeInfo
    from quicksand.qemu.runtime import detect_accelerator as detect_accelerator
    from quicksand.qemu.runtime import ensure_runtime as ensure_runtime
    from quicksand.qemu.runtime import get_accelerator as get_accelerator
    from quicksand.qemu.runtime import get_machine_type as get_machine_type
    from quicksand.qemu.runtime import get_platform_config as get_platform_config
    from quicksand.qemu.runtime import get_runtime as get_runtime
    from quicksand.qemu.runtime import install_qemu as install_qemu
    from quicksand.qemu.runtime import is_runtime_available as is_runtime_available
    from quicksand.records.config import Accelerator as Accelerator
    from quicksand.records.config import NetworkMode as NetworkMode
    from quicksand.records.config import SandboxConfig as SandboxConfig
    from quicksand.records.mount import Mount as Mount
    from quicksand.records.mount import MountType as MountType
    from quicksand.records.params import SandboxConfigParams as SandboxConfigParams
    from quicksand.records.params import SandboxOptions as SandboxOptions
    from quicksand.records.port_forwards import Forward as Forward
    from quicksand.records.port_forwards import Guest as Guest
    from quicksand.records.port_forwards import Host as Host
    from quicksand.records.port_forwards import PortForward as PortForward
    from quicksand.records.sandboxes import Entry as Entry
    from quicksand.sandbox import Sandbox as Sandbox
    from quicksand.sandbox import Snapshot as Snapshot
    from quicksand.saves.resolving import SaveWarning as SaveWarning
    from quicksand.saves.save_manifest import SaveManifest as SaveManifest
    from quicksand.snapshots.comparison import Difference as Difference
    from quicksand.things.checkpoint import Checkpoint as Checkpoint
    from quicksand.things.sandbox_facts import GuestTraffic as GuestTraffic
    from quicksand.things.status import Status as Status
else:
    # Names of packages beside the engine, such as quicksand_fleet, stand above for type checkers.
    __getattr__, __dir__ = on_demand(
        "quicksand.names", packages=("quicksand", "quicksand_disks", "quicksand_vnc")
    )

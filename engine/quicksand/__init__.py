"""quicksand: sandboxes that are real Linux VMs. The public names, nothing else."""

from quicksand.config import (
    Accelerator,
    BootTiming,
    NetworkMode,
    PortForward,
    SandboxConfig,
)
from quicksand.errors import QuicksandError
from quicksand.events import Event, EventKind
from quicksand.execution import Command, ExecuteResult
from quicksand.guest_files import GuestFile, GuestFiles
from quicksand.host.arch import Architecture
from quicksand.images.named import DebianSandbox
from quicksand.images.resolve import ImageProvider, ResolvedImage
from quicksand.qemu.accelerator import AcceleratorStatus, detect_accelerator
from quicksand.registry import Entry, Status
from quicksand.sandbox import Sandbox
from quicksand.shell import Shell, ShellInfo
from quicksand.stats import GuestProcess, HostUsage, SandboxStats

__all__ = [
    "Accelerator",
    "AcceleratorStatus",
    "Architecture",
    "BootTiming",
    "Command",
    "DebianSandbox",
    "Entry",
    "Event",
    "EventKind",
    "ExecuteResult",
    "GuestFile",
    "GuestFiles",
    "GuestProcess",
    "HostUsage",
    "ImageProvider",
    "NetworkMode",
    "PortForward",
    "QuicksandError",
    "ResolvedImage",
    "Sandbox",
    "SandboxConfig",
    "SandboxStats",
    "Shell",
    "ShellInfo",
    "Status",
    "detect_accelerator",
]

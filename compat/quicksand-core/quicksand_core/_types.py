"""Types and constants: the engine's, and those that only builders of image packages use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from quicksand import (
    Accelerator,
    BootTiming,
    ExecuteResult,
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
    ResolvedImage,
    SandboxConfig,
    SandboxConfigParams,
    SaveManifest,
)
from quicksand.guest.execution import StdinSource
from quicksand.records.config import DNS_IP, GATEWAY_IP, GUEST_IP, SHARE_IP, SHARE_PORT
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS

from quicksand_core._absent import refusing

__all__ = [
    "Accelerator",
    "BaseImageInfo",
    "BootTiming",
    "Endpoint",
    "EnvironmentVariables",
    "ExecuteResult",
    "FilePatterns",
    "Forward",
    "Guest",
    "Host",
    "ImageProvider",
    "KernelParams",
    "Key",
    "Mount",
    "MountHandle",
    "MountType",
    "NetworkConstants",
    "NetworkMode",
    "PortForward",
    "QuicksandGuestAgentMethod",
    "ResolvedImage",
    "SandboxConfig",
    "SandboxConfigParams",
    "SaveManifest",
    "StdinSource",
]

Endpoint = Host | Guest
"""An end of a forward."""


@dataclass
class BaseImageInfo:
    """A package's description of its base image, for the tools that build it."""

    name: str
    docker_dir: Path
    version: str


class QuicksandGuestAgentMethod(StrEnum):
    """The methods of the guest's agent that the specification has."""

    EXECUTE = "execute"
    EXECUTE_STREAM = "execute_stream"
    STDIN = "stdin"
    CANCEL = "cancel"
    PING = "ping"
    AUTHENTICATE = "authenticate"
    CREATE_USER = "create_user"
    DELETE_USER = "delete_user"


class FilePatterns:
    """The names of files of images, saves and sandboxes."""

    KERNEL_SUFFIX = ".kernel"
    INITRD_SUFFIX = ".initrd"
    OVERLAY = "overlay.qcow2"
    OVERLAYS_DIR = OVERLAYS
    MANIFEST = MANIFEST
    SAVE_EXT = ".tar.gz"
    SAVE_EXT_LEGACY = ".tar"
    CONSOLE_LOG = "console.log"


class KernelParams:
    """The settings that the agents of the published images read from the kernel's command line."""

    TOKEN = "quicksand_token"  # noqa: S105 - the name of a parameter
    PORT = "quicksand_port"
    SMB_PORT = "quicksand_smb_port"
    SMB_MOUNTS = "quicksand_smb_mounts"
    SMB_GATEWAY = "quicksand_smb_gateway"


class NetworkConstants:
    """Addresses of QEMU's user network, as guests see it."""

    LOCALHOST = "127.0.0.1"
    QEMU_SLIRP_GATEWAY = GATEWAY_IP
    QEMU_SLIRP_GUEST_IP = GUEST_IP
    QEMU_SLIRP_DNS = DNS_IP
    QEMU_SLIRP_NETMASK = "255.255.255.0"
    GUEST_SMB_PORT = SHARE_PORT
    GUESTFWD_SMB_IP = SHARE_IP
    GUESTFWD_SMB_PORT = SHARE_PORT


class EnvironmentVariables:
    """Environment variables of QEMU that the engine sets."""

    QEMU_MODULE_DIR = "QEMU_MODULE_DIR"


_AGENT = "requests to the agent are made by Sandbox.execute and Sandbox.request"

__getattr__ = refusing(
    __name__,
    AgentErrorBody=_AGENT,
    ExecuteParams=_AGENT,
    ExecuteResponseResult=_AGENT,
    GuestCommands="what the engine asks of a guest it asks of its agent, not by shell commands",
    MountOptions="how a directory is mounted is the engine's affair; use Sandbox.mount",
    NO_WINDOW_CREATIONFLAGS="it is for Windows, where quicksand-tui does not run",
    ResolvedAccelerator="use quicksand_core.detect_accelerator",
    Timeouts="the engine's limits are parameters: timeout, boot_timeout, grace",
)

"""The options of the specification's `Sandbox`, as a type for a subclass's keywords."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from quicksand.base.arch import Architecture
from quicksand.base.progress import Progress
from quicksand.records.config import Accelerator, NetworkMode
from quicksand.records.mount import Mount
from quicksand.records.port_forwards import PortForward


class SandboxConfigParams(TypedDict, total=False):
    """The options that a subclass of `Sandbox` with an image of its own passes on
    (``**options: Unpack[SandboxConfigParams]``). `SandboxConfig` has all that `Sandbox` takes."""

    arch: Architecture | str | None
    memory: str
    cpus: int
    mounts: Sequence[Mount]
    port_forwards: Sequence[PortForward]
    network_mode: NetworkMode
    extra_qemu_args: Sequence[str]
    boot_timeout: float
    accel: Accelerator | Literal["auto"] | None
    disk_size: str | None
    enable_display: bool


class HostPlaces(TypedDict, total=False):
    """The options that name directories of this host for files of a sandbox (`place_option`)."""

    memory_dir: str | Path | None


class MachineOptions(HostPlaces, total=False):
    """The fields of `SandboxConfig`, which describes them, except the image; as `Sandbox` takes
    them. A test compares both."""

    memory: str
    cpus: int
    network_mode: NetworkMode | Literal["none", "mounts_only", "mounts-only", "full"]
    arch: Architecture | str | None
    accel: Accelerator | Literal["auto", "kvm", "hvf", "whpx", "tcg"] | None
    disk_size: str | None
    boot_timeout: float
    port_forwards: Sequence[PortForward]
    mounts: Sequence[Mount]
    enable_display: bool
    vnc_port: int | None
    agent_http: bool
    extra_qemu_args: Sequence[str]


class SandboxOptions(MachineOptions, total=False):
    """All keywords of `Sandbox` but the image: those of the named images, such as `DebianSandbox`,
    and of your own subclasses with ``**options: Unpack[SandboxOptions]``."""

    name: str | None
    ephemeral: bool | None
    warm: bool
    build: bool | None
    save: str | None
    workspace: str | Path | None
    base_dir: str | Path | None
    trust: bool
    host: Any
    """A text, or a `RemoteHost`, which this room does not import."""
    fleet: Any
    """True, or a `Fleet`, which it does not import either."""
    restart: Any
    """True, or a `Restart`, likewise."""
    progress_callback: Progress | None


class ResumeOptions(MachineOptions, total=False):
    """The keywords of `Snapshot.resume`."""

    name: str | None
    ephemeral: bool | None
    warm: bool
    build: bool | None
    save: str | None
    workspace: str | Path | None
    trust: bool
    progress_callback: Progress | None

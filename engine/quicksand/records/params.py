"""The options of the specification's `Sandbox`, as a type for a subclass's keywords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from quicksand.base.arch import Architecture
from quicksand.records.config import Accelerator, NetworkMode
from quicksand.records.mount import Mount
from quicksand.records.port_forwards import PortForward


class SandboxConfigParams(TypedDict, total=False):
    """For ``**options: Unpack[SandboxConfigParams]`` in a subclass of `Sandbox` with an image of
    its own. `Sandbox` takes more; `SandboxConfig` has all."""

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

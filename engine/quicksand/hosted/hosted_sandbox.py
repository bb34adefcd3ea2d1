"""The local knowledge of a sandbox of another machine, and of the sandboxes that it has: each
answer brings it up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quicksand.base.progress import BootTiming
from quicksand.life.sandbox_mounts import MountHandle
from quicksand.records.config import SandboxConfig
from quicksand.things.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A sandbox as of its machine's last answer. The fields are the properties of `Sandbox`, and
    the results of its methods that do not wait."""

    id: str
    name: str
    config: SandboxConfig
    exists: bool = False
    """Whether the machine has the sandbox, running or not."""
    is_running: bool = False
    accelerator: str | None = None
    boot_timing: BootTiming | None = None
    qemu_command: Sequence[str] = ()
    port_forwards: Mapping[int, int] = field(default_factory=dict)
    udp_port_forwards: Mapping[int, int] = field(default_factory=dict)
    agent_token: str | None = field(default=None, repr=False)
    notices: Sequence[str] = ()
    active_mounts: Sequence[MountHandle] = ()
    checkpoints: Sequence[Checkpoint] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedSandbox:
    """A sandbox in the list of another machine."""

    id: str
    name: str
    status: str
    """A value of `Status`."""
    image: str
    created: float
    """Unix time."""

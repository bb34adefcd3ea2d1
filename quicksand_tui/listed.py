"""Sandboxes and images as the app lists them. No import of the engine here, and apart from
`snapshot`, for the first paint has none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quicksand_tui.past import NO_PAST, PastView
from quicksand_tui.snapshot import LIVE, State

if TYPE_CHECKING:
    from quicksand_tui.guest_network import TrafficRates


@dataclass(frozen=True, slots=True, kw_only=True)
class UseHistory:
    """What a sandbox took of the host, the latest reading last; readings are some seconds apart."""

    cpu: tuple[float, ...] = ()
    """Percent of one CPU."""
    memory: tuple[int, ...] = ()
    """Resident bytes."""
    disk: tuple[int, ...] = ()
    """Allocated bytes."""


NO_HISTORY = UseHistory()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxView:
    """One sandbox. All text is fit to be shown."""

    id: str
    """The row's key; exactly as the engine has it, never shown unsanitised."""
    name: str
    state: State
    image: str = ""
    created: float | None = None
    """Unix time."""
    started: float | None = None
    """Unix time of the present run."""
    memory_limit: int | None = None
    """Bytes."""
    memory_used: int | None = None
    """Resident bytes of QEMU; None while it does not run or is not known yet."""
    cpus: int | None = None
    cpu_percent: float | None = None
    """Of one CPU; None until there are two readings."""
    disk: int | None = None
    """Allocated bytes."""
    network: str = ""
    accel: str = ""
    accel_reason: str = ""
    """Why not a faster one."""
    ports: tuple[tuple[int, int], ...] = ()
    """(host, guest)."""
    error: str = ""
    """Why it is CRASHED or BROKEN."""
    discard: bool = False
    """It is removed when it stops."""
    past: PastView = NO_PAST
    """Its checkpoints."""
    history: UseHistory = field(default=NO_HISTORY, compare=False)
    traffic: TrafficRates | None = None
    """None unless its guest was asked, twice at least."""

    @property
    def key(self) -> str:
        return self.id

    @property
    def is_live(self) -> bool:
        return self.state in LIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """One image."""

    name: str
    version: str = ""
    arch: str = ""
    size: int | None = None
    """Allocated bytes."""
    created: float | None = None
    source: str = "store"
    error: str = ""
    """Why it cannot be used."""

    @property
    def key(self) -> str:
        return self.name

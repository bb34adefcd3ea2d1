"""What a guest tells of itself, fit to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand.guest_traffic import GuestTraffic


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """A process of a guest, as the guest tells it. All text is fit to be shown."""

    pid: int
    user: str
    rss: int
    """Bytes."""
    cpu_s: float
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestView:
    """What a guest says of itself."""

    memory_total: int
    memory_used: int
    disk_total: int
    disk_used: int
    load: float
    """Over one minute."""
    processes: int
    uptime_s: float
    traffic: GuestTraffic | None = None
    """None if it has no network, or does not tell."""
    busiest: tuple[ProcessView, ...] = ()
    """By CPU time, those that used most of it first."""

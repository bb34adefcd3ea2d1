"""How fast a guest receives and sends."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quicksand.guest_traffic import GuestTraffic

    from quicksand_tui.snapshot import Snapshot

READINGS_MAX = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficRates:
    """Bytes per second, and how much they were together before, the latest last."""

    received: float = 0.0
    sent: float = 0.0
    history: tuple[float, ...] = ()


class TrafficMeter:
    """Makes rates of readings."""

    def __init__(self) -> None:
        self._last: tuple[GuestTraffic, float] | None = None
        self._history: deque[float] = deque(maxlen=READINGS_MAX)
        self.rates: TrafficRates | None = None
        """None until there are two readings."""

    def add(self, traffic: GuestTraffic | None, now: float) -> None:
        """``now`` in seconds of any clock that only goes forward. Without ``traffic`` the rates are
        unknown until there are two readings again; the history goes on."""
        if traffic is None:
            self.rates = None
        before, self._last = self._last, None if traffic is None else (traffic, now)
        if before is None or traffic is None or now <= before[1]:
            return
        passed = now - before[1]
        received = (traffic.received - before[0].received) / passed
        sent = (traffic.sent - before[0].sent) / passed
        if received < 0 or sent < 0:
            return  # it went back to a checkpoint, or has booted
        self._history.append(received + sent)
        history = tuple(self._history)
        self.rates = TrafficRates(received=received, sent=sent, history=history)


def with_traffic(snapshot: Snapshot, rates: Mapping[str, TrafficRates]) -> Snapshot:
    """The snapshot with what is known of its sandboxes' networks."""
    if not rates:
        return snapshot
    views = tuple(
        replace(view, traffic=rates[view.id]) if view.id in rates else view
        for view in snapshot.sandboxes
    )
    return replace(snapshot, sandboxes=views)

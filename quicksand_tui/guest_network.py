"""What a guest says it has received and sent, and how fast: QEMU's user network counts nothing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

READINGS_MAX = 240
LOOPBACK = "lo"
RECEIVED_FIELD, SENT_FIELD = 0, 8
"""Of a line of /proc/net/dev (proc_pid_net(5)), behind the interface's name."""
COUNTER_MAX = 1 << 63
"""No guest has moved more bytes; larger numbers are made up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes since the guest booted."""

    received: int
    sent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficRates:
    """Bytes per second, and how much they were together before, the latest last."""

    received: float = 0.0
    sent: float = 0.0
    history: tuple[float, ...] = ()


def parse_traffic(data: bytes) -> Traffic | None:
    """Of the text of /proc/net/dev, all interfaces but the loopback; None if there is none."""
    received = sent = 0
    is_there = False
    for line in data.decode("ascii", "replace").splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if not colon or name.strip() == LOOPBACK or len(fields) <= SENT_FIELD:
            continue
        counters = fields[RECEIVED_FIELD], fields[SENT_FIELD]
        if all(field.isascii() and field.isdigit() and len(field) < 20 for field in counters):
            is_there = True
            received += int(counters[0])
            sent += int(counters[1])
    if not is_there or max(received, sent) > COUNTER_MAX:
        return None
    return Traffic(received=received, sent=sent)


class TrafficMeter:
    """Makes rates of readings."""

    def __init__(self) -> None:
        self._last: tuple[Traffic, float] | None = None
        self._history: deque[float] = deque(maxlen=READINGS_MAX)
        self.rates: TrafficRates | None = None
        """None until there are two readings."""

    def add(self, traffic: Traffic | None, now: float) -> None:
        """``now`` in seconds of any clock that only goes forward."""
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

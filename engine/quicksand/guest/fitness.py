"""Checks whether a guest may be a template or a spare: many others start from it, and would inherit
its faults."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from dataclasses import dataclass

from quicksand.base.errors import (
    AgentProtocolError,
    AgentRefusedError,
    QuicksandError,
    UnfitGuestError,
)
from quicksand.base.tick_rate import forget_tick_rate
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.values import text, whole
from quicksand.guest.guest_files import files_of
from quicksand.records.config import GATEWAY_IP, NetworkMode

START_TOLERANCE = 0.1
"""The share by which the clock may be wrong in the check of a start, which must be quick: wrong
guests were off by a third or more."""

TOLERANCE = 0.02
"""The same for guests that are made once and used often. Linux itself refuses to correct its first
estimate by more than a hundredth (arch/x86/kernel/tsc.c, tsc_refine_calibration_work)."""

WINDOW_S = 1.0
"""The least seconds that are compared for guests that are made once and used often."""

READINGS = 3
"""Readings, of which the fastest counts."""

READ_S = 20.0
POLL_S = 0.02
LIMIT_S = 30.0
"""Seconds after which a comparison ends, however inexact it still is."""


CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
OTHER_SOURCE = "acpi_pm"
"""ACPI's timer, by which QEMU counts the host's time. It is exact, and slower to read."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A guest's clock, which counts from its boot, at a moment of the host's monotonic clock."""

    host_s: float
    guest_s: float
    off_s: float
    """The seconds by which the two readings may be apart."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The seconds of the guest that pass in one second of the host."""

    value: float
    off: float
    """The amount by which the rate may be wrong."""

    def is_right(self, tolerance: float) -> bool:
        """Whether the clock is proven to be right."""
        return abs(self.value - 1) + self.off <= tolerance

    def is_wrong(self, tolerance: float) -> bool:
        """Whether the clock is proven to be wrong."""
        return abs(self.value - 1) - self.off > tolerance


async def read_clock(session: Session) -> Reading:
    """The guest's clock now. Raises AgentError."""
    found = [await _read(session) for _ in range(READINGS)]
    return min(found, key=lambda reading: reading.off_s)


async def _read(session: Session) -> Reading:
    before = time.monotonic()
    reply = await session.request("ping", {}, timeout=READ_S)
    after = time.monotonic()
    try:
        guest_s = whole(reply.get("uptime_ns")) / 1e9
    except ValueError as error:
        raise AgentProtocolError(f"the agent does not tell the guest's clock: {error}") from None
    return Reading((before + after) / 2, guest_s, (after - before) / 2)


async def compare(
    session: Session, since: Reading, tolerance: float, *, window_s: float = 0.0
) -> Rate:
    """Compare the guest's clock with the host's since the reading ``since``, at least ``window_s``
    seconds ago, until it is proven right or wrong within ``tolerance``, or until `LIMIT_S`. Raises
    AgentError."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        now = await read_clock(session)
        span_s = now.host_s - since.host_s
        rate = Rate((now.guest_s - since.guest_s) / span_s, (now.off_s + since.off_s) / span_s)
        is_proven = rate.is_right(tolerance) or rate.is_wrong(tolerance)
        if (is_proven and span_s >= window_s) or now.host_s >= deadline:
            return rate
        await asyncio.sleep(POLL_S)


async def put_right(session: Session, since: Reading) -> str:
    """Check the clock of a guest that has just booted, first read at ``since``. If it runs wrong,
    give the guest another clock. Returns a notice for the user, "" if the clock was right. Raises
    AgentError."""
    rate = await compare(session, since, START_TOLERANCE)
    if not rate.is_wrong(START_TOLERANCE):
        return ""
    with contextlib.suppress(QuicksandError):  # the next start's clock is checked, too
        await asyncio.to_thread(forget_tick_rate)
    command = f"echo {OTHER_SOURCE} > {CLOCK_SOURCE}"
    try:
        await session.request("execute", {"command": command, "timeout": COMMAND_S})
    except AgentRefusedError as error:
        if error.parameter != "shell":
            raise
        await files_of(session).write(CLOCK_SOURCE, OTHER_SOURCE)  # an image without a shell
    await session.request("set_time", {"unix_ns": time.time_ns()})
    again = await compare(session, await read_clock(session), START_TOLERANCE)
    told = f"the guest's clock ran {rate.value:.2f} times as fast as the host's"
    if again.is_wrong(START_TOLERANCE):
        return f"{told}, and still runs {again.value:.2f} times as fast; start it again"
    return f"{told}; it has got another clock ({OTHER_SOURCE}), which is right"


ENTROPY_MIN = 128
"""Bits that the kernel's random generator must have been given (random(4), entropy_avail). Since
Linux 5.18 it reports 256 once it has enough."""

MEMORY_MIN = 0.05
"""The share of its memory that the guest must have left."""

COMMAND_S = 20.0

FACTS = ("/proc/sys/kernel/random/entropy_avail", "/proc/meminfo", "/proc/net/route")

FACTS_MAX = 64 * 1024
"""Bytes of each that are read; /proc/meminfo has some 1500."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A guest's report about itself."""

    entropy: int
    memory: int
    """Its memory, and the free part of it, in kB."""
    available: int
    gateways: frozenset[str]
    """In hexadecimal, as /proc/net/route has them (proc_net(5))."""

    @classmethod
    def parse(cls, said: str) -> Facts:
        """From the contents of the files `FACTS`. Raises ValueError."""
        entropy, *lines = said.splitlines() or [""]
        rows = [line.split() for line in lines]
        memory = {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "kB"}
        routes = [row for row in rows if len(row) == 11 and row[1] == "00000000"]
        try:
            total, available = int(memory["MemTotal:"]), int(memory["MemAvailable:"])
        except KeyError as error:
            raise ValueError(f"/proc/meminfo has no {error}") from None
        return cls(int(entropy), total, available, frozenset(row[2] for row in routes))

    def complaint(self, network: NetworkMode) -> str:
        """The guest's fault, in words; "" if it is fit."""
        if self.entropy < ENTROPY_MIN:
            return f"its random generator has been given {self.entropy} bits only"
        if self.available < self.memory * MEMORY_MIN:
            return f"it has {self.available} kB of memory left, of {self.memory}"
        gateway = struct.unpack("=I", socket.inet_aton(GATEWAY_IP))[0]
        if network is not NetworkMode.NONE and f"{gateway:08X}" not in self.gateways:
            return f"its network has no route to {GATEWAY_IP}"
        return ""


async def _read_facts(session: Session) -> str:
    """The contents of FACTS. Raises AgentError, ValueError."""
    params = {"command": f"cat {' '.join(FACTS)}", "timeout": COMMAND_S}
    try:
        reply = await session.request("execute", params, timeout=2 * COMMAND_S)
    except AgentRefusedError as error:
        if error.parameter != "shell":
            raise
        files = files_of(session)  # one by one: an image need not have a shell
        read = [await files.read(path, length=FACTS_MAX) for path in FACTS]
        return b"".join(read).decode("utf-8", "replace")
    return text(reply.get("stdout"), 1 << 20)


async def require_fit(
    session: Session, since: Reading, network: NetworkMode, *, window_s: float = WINDOW_S
) -> None:
    """Check a guest's clock against the host's since the reading ``since``, at least ``window_s``
    seconds ago, and its random generator, memory and network. Raises UnfitGuestError if it is not
    fit, AgentError."""
    try:
        complaint = Facts.parse(await _read_facts(session)).complaint(network)
    except ValueError as error:
        complaint = f"it does not tell of itself what it should: {error}"
    if not complaint:
        rate = await compare(session, since, TOLERANCE, window_s=window_s)
        if not rate.is_right(TOLERANCE):
            complaint = (
                f"its clock runs {rate.value:.3f} times as fast as the host's, as exactly as could "
                f"be measured (±{rate.off:.3f})"
            )
    if complaint:
        raise UnfitGuestError(f"the guest is not fit to be used again: {complaint}")

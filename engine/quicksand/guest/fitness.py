"""Checks whether a guest may be a template or a spare: many others start from it, and would inherit
its faults."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from quicksand.base.errors import AgentRefusedError, UnfitGuestError
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.values import text
from quicksand.guest.clock import TOLERANCE, WINDOW_S, Reading, compare
from quicksand.guest.guest_files import files_of
from quicksand.records.config import GATEWAY_IP, NetworkMode

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

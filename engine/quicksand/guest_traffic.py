"""What a guest says it has received and sent: QEMU's user network counts nothing."""

from __future__ import annotations

from dataclasses import dataclass

from quicksand.errors import AgentRefusedError
from quicksand.guest_files import GuestFiles

NETWORK_FILE = "/proc/net/dev"
NETWORK_FILE_MAX = 64 * 1024
"""Bytes that are read of it: some hundred interfaces."""

LOOPBACK = "lo"
RECEIVED_FIELD, SENT_FIELD = 0, 8
"""Of one of its lines (proc_pid_net(5)), behind the interface's name."""

DIGITS_MAX = 19
COUNTER_MAX = 1 << 63
"""No guest has moved more bytes; larger numbers are made up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTraffic:
    """Bytes since the guest booted, of all interfaces but the loopback."""

    received: int
    sent: int


async def read_traffic(files: GuestFiles) -> GuestTraffic | None:
    """None if the guest does not tell. Raises as `GuestFiles.read`, but for a missing file."""
    try:
        return parse_traffic(await files.read(NETWORK_FILE, length=NETWORK_FILE_MAX))
    except AgentRefusedError:
        return None  # a guest without /proc/net


def parse_traffic(data: bytes) -> GuestTraffic | None:
    """Of the text of /proc/net/dev; None if there is no interface, or no sense in it."""
    received = sent = 0
    is_there = False
    for line in data.decode("ascii", "replace").splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if not colon or name.strip() == LOOPBACK or len(fields) <= SENT_FIELD:
            continue
        counters = fields[RECEIVED_FIELD], fields[SENT_FIELD]
        if all(_is_number(field) for field in counters):
            is_there = True
            received += int(counters[0])
            sent += int(counters[1])
    if not is_there or max(received, sent) > COUNTER_MAX:
        return None
    return GuestTraffic(received=received, sent=sent)


def _is_number(field: str) -> bool:
    return field.isascii() and field.isdigit() and len(field) <= DIGITS_MAX

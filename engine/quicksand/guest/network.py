"""A guest's network: the limits that this host sets to it, and the bytes that it reports as
received and sent. (QEMU's user network does not count.)"""

from __future__ import annotations

import ipaddress
from pathlib import Path

from quicksand.base.errors import AgentRefusedError
from quicksand.guest.guest_files import GuestFiles
from quicksand.records.config import NetworkMode
from quicksand.things.sandbox_facts import GuestTraffic

RESOLV_CONF = Path("/etc/resolv.conf")


def network_notices(mode: NetworkMode) -> tuple[str, ...]:
    """Return notes for the user of a guest with the network ``mode``. Blocks for I/O."""
    if mode is not NetworkMode.FULL or not (why := why_no_names()):
        return ()
    return (f"the guest finds no names by itself: {why}",)


def why_no_names() -> str:
    """Return why guests cannot resolve names; "" if they can. QEMU's network passes their queries
    only to the first IPv4 address of this file (libslirp, src/slirp.c, get_dns_addr)."""
    try:
        lines = RESOLV_CONF.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return f"{RESOLV_CONF} of this host cannot be read ({error.strerror})"
    words = [line.split() for line in lines]
    named = [line[1] for line in words if line[:1] == ["nameserver"] and line[1:]]
    if any(_is_ipv4(address) for address in named):
        return ""
    other = f"names only {', '.join(named[:3])}" if named else "names no resolver"
    return (
        f"{RESOLV_CONF} of this host {other}, and QEMU's network asks IPv4 resolvers only; "
        "`echo nameserver 9.9.9.9 > /etc/resolv.conf` in the guest names one"
    )


def _is_ipv4(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).version == 4
    except ValueError:
        return False


NETWORK_FILE = "/proc/net/dev"
NETWORK_FILE_MAX = 64 * 1024
"""Bytes that are read of it, enough for some hundred interfaces."""

LOOPBACK = "lo"
RECEIVED_FIELD, SENT_FIELD = 0, 8
"""Indexes of the fields behind the interface's name in a line (proc_pid_net(5))."""

DIGITS_MAX = 19
COUNTER_MAX = 1 << 63
"""The bound of a counter, in bytes; no guest has moved as many, so larger numbers are invented."""


async def read_traffic(files: GuestFiles) -> GuestTraffic | None:
    """Read the guest's counters; None if it has none. Raises what `GuestFiles.read` raises, except
    AgentRefusedError."""
    try:
        return parse_traffic(await files.read(NETWORK_FILE, length=NETWORK_FILE_MAX))
    except AgentRefusedError:
        return None  # a guest without /proc/net


def parse_traffic(data: bytes) -> GuestTraffic | None:
    """Parse /proc/net/dev; None if it lists no interface or makes no sense."""
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

"""Limits of a guest's network on this host: names."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from quicksand.records.config import NetworkMode

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

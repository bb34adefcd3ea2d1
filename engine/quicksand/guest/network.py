"""Limits of a guest's network on this host: names, and forwarded ports."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from pathlib import Path

from quicksand.base.errors import AgentRefusedError
from quicksand.guest.files import GuestFiles
from quicksand.records.config import NetworkMode

RESOLV_CONF = Path("/etc/resolv.conf")
SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6")
SOCKETS_MAX = 256 * 1024
"""Bytes that are read of each, enough for more than a thousand sockets."""
LISTENS = "0A"
"""The state TCP_LISTEN (proc_pid_net(5))."""
LOOPBACK_6 = "00000000000000000000000001000000"
"""::1, as the kernel writes it on processors with the lowest byte first."""


def network_notices(mode: NetworkMode) -> tuple[str, ...]:
    """Return notes for the user of a guest with the network ``mode``. Blocks for I/O."""
    if mode is not NetworkMode.FULL or not (why := why_no_names()):
        return ()
    return (f"the guest finds no names by itself: {why}",)


def why_no_names() -> str:
    """Why guests can resolve no names; "" if they can. QEMU's network passes their queries to the
    first IPv4 address of this file (libslirp, src/slirp.c, get_dns_addr), and to no other."""
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


async def unreached_ports(files: GuestFiles, ports: Collection[int]) -> list[int]:
    """Those of the guest's ``ports`` at which a program listens on its loopback only, where a
    forward does not lead: a connection is closed at once. Raises what `GuestFiles.read` raises,
    except AgentRefusedError."""
    tables = []
    for path in SOCKETS:
        try:
            tables.append((await files.read(path, length=SOCKETS_MAX)).decode("ascii", "replace"))
        except AgentRefusedError:
            continue  # a guest without IPv6
    return only_local(tables, ports)


def only_local(tables: Collection[str], ports: Collection[int]) -> list[int]:
    """The ``ports`` that have listeners in these tables, all of them on the loopback."""
    local: set[int] = set()
    open_: set[int] = set()
    for row in (line.split() for table in tables for line in table.splitlines()):
        if len(row) < 4 or row[3] != LISTENS:
            continue
        address, _, number = row[1].partition(":")
        try:
            port = int(number, 16)
        except ValueError:
            continue
        is_local = address == LOOPBACK_6 or (len(address) == 8 and address.endswith("7F"))
        (local if is_local else open_).add(port)
    return sorted((local - open_) & set(ports))

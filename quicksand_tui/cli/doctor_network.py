"""What `doctor` says of networks: what guests reach, names, forwarded ports."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.guest.network import unreached_ports, why_no_names
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Status
from quicksand.sandbox import Sandbox

if TYPE_CHECKING:
    from quicksand.records.sandboxes import Entry

GUEST_S = 3.0
"""Seconds to wait for a guest to answer."""


async def network_findings() -> list[tuple[str, str]]:
    """What the user should know, each with what can be done about it."""
    found = [
        (
            "with --network full a guest reaches what this host reaches, its own loopback services "
            "included (as 10.0.2.2)",
            "the default, mounts_only, lets a guest open no connection at all",
        )
    ]
    if why := await asyncio.to_thread(why_no_names):
        found.append(("guests find no names by themselves", why))
    entries = await asyncio.to_thread(Registry(paths()).list)
    running = [entry for entry in entries if entry.status is Status.RUNNING and entry.run]
    for more in await asyncio.gather(*(_unreached(entry) for entry in running)):
        found += more
    return found


async def _unreached(entry: Entry) -> list[tuple[str, str]]:
    """Forwarded ports of a sandbox that lead to no program, since it listens on the guest's own
    loopback; none of a guest that does not answer."""
    forwards = () if entry.run is None else entry.run.forwards
    if not forwards:
        return []
    try:
        with contextlib.closing(Sandbox.attach(entry.id)) as sandbox:
            async with asyncio.timeout(GUEST_S):
                ports = await unreached_ports(sandbox.files, [guest for _, guest in forwards])
    except (QuicksandError, TimeoutError):
        return []
    return [
        (
            f"{entry.name}: the guest's port {port} is forwarded, but its program listens on "
            "127.0.0.1 of the guest only, where no forward leads: connections are closed at once",
            "have it listen on 0.0.0.0",
        )
        for port in ports
    ]

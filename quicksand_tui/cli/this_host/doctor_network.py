"""The findings of `doctor` about networks: the reach of guests, and names."""

from __future__ import annotations

import asyncio

from quicksand.guest.network import why_no_names


async def network_findings() -> list[tuple[str, str]]:
    """Returns facts for the user, each with a remedy."""
    found = [
        (
            "with --network full a guest reaches what this host reaches, its own loopback services "
            "included (as 10.0.2.2)",
            "the default, mounts_only, lets a guest open no connection at all",
        )
    ]
    if why := await asyncio.to_thread(why_no_names):
        found.append(("guests find no names by themselves", why))
    return found

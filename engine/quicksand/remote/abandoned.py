"""Sockets of ours that were left by killed processes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from pathlib import Path

from quicksand.base.listing import own_sockets

ABANDONED_S = 60.0
"""Seconds after which an unanswered socket counts as left by a killed process."""


async def remove_abandoned(runtime: Path, names: re.Pattern[str]) -> None:
    """Remove sockets of ours with such names from the runtime directory if nobody answers them."""
    for path in own_sockets(runtime, names):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < ABANDONED_S:
                continue  # a process may be about to listen there
            try:
                _, writer = await asyncio.open_unix_connection(path)
            except ConnectionRefusedError:
                path.unlink()
            else:
                writer.close()

"""Sockets of ours that killed processes have left."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from pathlib import Path

from quicksand.base.listing import own_sockets

ABANDONED_S = 60.0
"""Seconds after which a socket that nobody answers was left by a process that was killed."""


async def remove_abandoned(runtime: Path, names: re.Pattern[str]) -> None:
    """Remove sockets of ours in the runtime directory that have such names, and that nobody
    answers."""
    for path in own_sockets(runtime, names):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < ABANDONED_S:
                continue  # somebody may be about to listen there
            try:
                _, writer = await asyncio.open_unix_connection(path)
            except ConnectionRefusedError:
                path.unlink()
            else:
                writer.close()

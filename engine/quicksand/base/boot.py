"""Identifies the present boot of the host."""

from __future__ import annotations

import time
from pathlib import Path


def boot_id() -> str:
    """Return a text that changes only with a reboot (random(4), boot_id); it can be a file name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"up-{round(time.time() - time.monotonic(), -2):.0f}"

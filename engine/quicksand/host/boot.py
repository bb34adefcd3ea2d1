"""Which boot of the host this is."""

from __future__ import annotations

import time
from pathlib import Path


def boot_id() -> str:
    """The same text until the host boots again; good for a file's name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"up-{round(time.time() - time.monotonic(), -2):.0f}"

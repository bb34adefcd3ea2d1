"""The host's memory."""

from __future__ import annotations

import os

__all__ = ["get_host_memory_bytes"]


def get_host_memory_bytes() -> int | None:
    """The bytes of memory that the host has; None if it does not tell (sysconf(3))."""
    try:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
    return size if size > 0 else None

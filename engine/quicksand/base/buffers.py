"""Large buffers."""

from __future__ import annotations

import contextlib
import mmap


def new_buffer(size: int) -> mmap.mmap:
    """Return ``size`` bytes of anonymous memory, page-aligned; in huge pages where the host has
    some, since to touch a thousand small ones first takes as long as to copy as much."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory

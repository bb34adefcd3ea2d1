"""Gives memory that the app has freed back to the system.

The C library keeps what was freed for later, and as many heaps as there are threads (malloc(3),
mallopt(3)). After comparing disks and drawing long lists that is some 20 MB of an app that may run
for days. Only glibc has these functions.

Before that, what was closed is freed: screens are circles of objects, and Python looks for such
among old objects only when there are a quarter more of them (gc, "set_threshold").
"""

from __future__ import annotations

import asyncio
import gc
from ctypes import CDLL

M_ARENA_MAX = -8
"""The parameter of mallopt(3) for the most heaps (glibc's malloc.h)."""
HEAPS = 2
EVERY_S = 60.0
"""Seconds between two times; one takes about a millisecond of another thread."""


async def give_back_for_ever() -> None:
    """Keep the number of heaps small from now on, and give back what is free now and then."""
    library = _c_library()
    if library is not None:
        library.mallopt(M_ARENA_MAX, HEAPS)
    while True:
        # Only after Python has looked at young objects: an app that rests makes none.
        if any(gc.get_count()[1:]):
            gc.collect()
        if library is not None:
            await asyncio.to_thread(library.malloc_trim, 0)
        await asyncio.sleep(EVERY_S)


def _c_library() -> CDLL | None:
    """Returns the C library of this process if it is glibc."""
    try:
        library = CDLL(None)
    except (OSError, TypeError):  # a system without dlopen of the program itself
        return None
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None

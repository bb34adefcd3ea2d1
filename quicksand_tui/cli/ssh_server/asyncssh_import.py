"""The import of asyncssh where somebody waits for it."""

from __future__ import annotations

import contextlib
import ctypes.util
from collections.abc import Iterator


@contextlib.contextmanager
def no_search_for_libraries() -> Iterator[None]:
    """Has no library of C found by its name within the block. When asyncssh is imported it looks
    for two, with algorithms that are not offered on a pipe, and where they are not installed Python
    has gcc and ld look for them: a dozen processes and 0.1 s for each connection."""
    find = ctypes.util.find_library
    ctypes.util.find_library = lambda name: None
    try:
        yield
    finally:
        ctypes.util.find_library = find

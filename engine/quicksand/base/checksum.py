"""CRC-32 as in zlib, by the fastest available module: isal and zlib-ng (PyPI) compute the same
values fourteen times as fast. Neither is required."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Any

FASTER = ("isal.isal_zlib", "zlib_ng.zlib_ng")


def find_crc32() -> Callable[..., int]:
    """The fastest function like `zlib.crc32`."""
    for name in FASTER:
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        found: Callable[..., int] = module.crc32
        if found(b"123456789") == 0xCBF43926:  # the check value of this CRC
            return found
    return zlib.crc32


crc32 = find_crc32()

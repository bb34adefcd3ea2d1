"""Imports asyncio without the parts that nobody here needs."""

from __future__ import annotations

import sys


def import_asyncio() -> None:
    """Imports asyncio without ssl, which takes 7 ms to load: asyncio does without it, as where
    Python has none. Others can still import it."""
    if "asyncio" not in sys.modules and "ssl" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment]
        try:
            import asyncio  # noqa: F401, PLC0415
        finally:
            del sys.modules["ssl"]

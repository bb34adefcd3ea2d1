"""Imports asyncio without what nobody here asks of it."""

from __future__ import annotations

import sys


def import_asyncio() -> None:
    """Imports asyncio without ssl, which takes 7 ms to load: asyncio does without it, as where
    Python has none. Whoever else wants it can import it."""
    if "asyncio" not in sys.modules and "ssl" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment]
        try:
            import asyncio  # noqa: F401, PLC0415
        finally:
            del sys.modules["ssl"]

"""The callback through which long work reports its progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, how much of it is done, and how much there is (bytes or steps).
If it raises, the work ends cleanly with that exception."""

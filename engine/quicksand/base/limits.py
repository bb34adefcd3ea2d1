"""Limits that the commands also show: they are read without the rest of the engine."""

from __future__ import annotations

CLONES_MAX = 1000
"""Clones that one call may make; a larger number is taken for a mistake."""

CLONES_AT_ONCE = 4
"""More clones that start at the same time would compete for the disk."""

SPARES_MAX = 16
"""The most spares of one machine. Each takes some 60 MiB of memory."""

BUTTONS = ("left", "middle", "right", "side", "extra")
"""The pointer's buttons (QEMU, InputButton), except those of its wheel."""

"""Sizes of memory, as people write them."""

from __future__ import annotations

from quicksand.records.machine_options import parse_size

__all__ = ["format_bytes", "parse_memory_size"]

_UNITS = "BKMGT"
"""Each 1024 times the one before."""


def parse_memory_size(value: str | int) -> int:
    """The bytes of a size such as "512M" or "1.5G"; a number alone is in MiB. Raises ConfigError (a
    ValueError)."""
    return parse_size(value, what="memory", default_unit="M")


def format_bytes(n: int) -> str:
    """A size in its largest unit: with one decimal below ten of it ("1.5G"), else without
    ("512M")."""
    power = min(max(n.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    amount = n / 1024**power
    return f"{amount:.{1 if power and amount < 10 else 0}f}{_UNITS[power]}"

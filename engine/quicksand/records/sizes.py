"""Sizes of memory and disks: reads and writes them as people do, and checks them."""

from __future__ import annotations

import re

from quicksand.base.error_text import gib_text
from quicksand.base.errors import ConfigError

MIB = 1024 * 1024

MEMORY_MIN = 64 * MIB
"""Bytes; with less, Debian's kernel does not start its first process."""

MEMORY_MAX = 1024 * 1024 * MIB
"""Bytes; QEMU's own CPU models have 40 bits of physical address (target/i386/cpu.h,
TCG_PHYS_ADDR_BITS)."""

DISK_SIZE_MAX = 4 * 1024**4
"""Bytes of the largest disk that an overlay of ours can map (disks/images/overlay.py)."""

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([KMGT])(?:i?B)?|(B))?\s*", re.IGNORECASE)
_UNITS = {"B": 1, "K": 1024, "M": MIB, "G": 1024 * MIB, "T": 1024 * 1024 * MIB}


def parse_memory(text: str | int) -> int:
    """Returns the bytes of a memory size. A number without a unit is in MiB, as for QEMU's -m.
    Raises ConfigError.

    >>> parse_memory("1.5G") == parse_memory("1536") == 1536 * 1024 * 1024
    True
    """
    size = parse_size(text, what="memory", default_unit="M")
    if size < MEMORY_MIN:
        raise ConfigError(f"memory {text!r} is too little", hint="64M is the least, 512M usual")
    if size > MEMORY_MAX:
        raise ConfigError(f"memory {text!r} is too much", hint="1T is the most, 512M usual")
    return size - size % MIB


def parse_disk_size(text: str | int) -> int:
    """Returns the bytes of a disk size such as "10G". Raises ConfigError."""
    size = parse_size(text, what="disk_size")
    if size > DISK_SIZE_MAX:
        raise ConfigError(f"disk_size {text!r} is too large", hint="4T is the most")
    return size


def check_disk_size(size: int, least: int, what: str) -> None:
    """Raises ConfigError if a disk of ``size`` bytes (0: not given) is requested on top of
    ``what``, whose disk has ``least`` bytes."""
    if 0 < size < least:
        raise ConfigError(
            f"a disk_size of {size} bytes is too small: the disk of {what} has {least} "
            f"({gib_text(least)})",
            hint="leave it out, or say a larger one",
        )


def parse_size(text: str | int, *, what: str, default_unit: str = "") -> int:
    """Returns the bytes of a size such as "512M", "1.5G", "512MiB". Raises ConfigError that names
    ``what``."""
    match = _SIZE.fullmatch(str(text)) if not isinstance(text, bool) else None
    if match is None:
        raise ConfigError(
            f"{what} {text!r} is not a size", hint='write it like "512M", "1.5G" or "2048"'
        )
    unit = (match[2] or match[3] or default_unit).upper()
    size = float(match[1]) * _UNITS.get(unit, 1)
    if not 0 < size < 2**60:
        raise ConfigError(f"{what} {text!r} is out of range")
    return int(size)


def write_size(size: int) -> str:
    """Returns the shortest text that `parse_size` reads as ``size`` bytes.

    >>> [write_size(parse_size(text, what="")) for text in ("1024M", "1.5G", "1000")]
    ['1G', '1536M', '1000B']
    """
    unit = next((unit for unit in "TGMK" if size % _UNITS[unit] == 0), "B")
    return f"{size // _UNITS[unit]}{unit}"

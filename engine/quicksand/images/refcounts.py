"""Which bytes of a qcow2 file belong to its image (QEMU docs/interop/qcow2.txt)."""

from __future__ import annotations

import os
import struct

from quicksand.images.qcow2 import INCOMPATIBLE_DIRTY

_HEAD = 104
_ORDER_OF_VERSION_2 = 4


def is_used(descriptor: int, start: int, end: int) -> bool:
    """Whether any cluster with bytes from ``start`` to before ``end`` is in use.

    The file's header has been checked by `check_qcow2`. Where refcounts cannot be relied on, since
    the image was not closed properly, all are. Raises ValueError, OSError.
    """
    head = os.pread(descriptor, _HEAD, 0).ljust(_HEAD, b"\0")
    version, bits = struct.unpack_from(">I12xI", head, 4)
    table, table_clusters = struct.unpack_from(">QI", head, 48)
    order = _ORDER_OF_VERSION_2
    if version == 3:
        features, order = struct.unpack_from(">Q16xI", head, 72)
        if features & INCOMPATIBLE_DIRTY:
            return True
    per_block = (8 << bits) >> order
    for cluster in range(start >> bits, (end + (1 << bits) - 1) >> bits):
        block, number = divmod(cluster, per_block)
        if block >= table_clusters << bits >> 3:
            return False
        place = int.from_bytes(_read(descriptor, table + 8 * block, 8)) & ~511
        if place and _count(descriptor, place, number, order):
            return True
    return False


def _count(descriptor: int, block: int, number: int, order: int) -> int:
    width, bit = 1 << order, number << order
    data = _read(descriptor, block + bit // 8, max(1, width // 8))
    return int.from_bytes(data) >> bit % 8 & ((1 << width) - 1)


def _read(descriptor: int, place: int, length: int) -> bytes:
    data = os.pread(descriptor, length, place)
    if len(data) != length:
        raise ValueError("its refcounts lie beyond its end")
    return data

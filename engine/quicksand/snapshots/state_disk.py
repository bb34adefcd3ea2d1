"""Makes the qcow2 file from which a running QEMU loads its devices' state.

QEMU can load a state without a restart only as an internal snapshot (QMP ``snapshot-load``), so the
state becomes the only content of a small file (QEMU docs/interop/qcow2.txt, version 3).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from quicksand.base.errors import HistoryError

CLUSTER_BITS = 12
CLUSTER = 1 << CLUSTER_BITS
REFCOUNT_ORDER = 4
"""References are counted in 16 bits."""
COUNTED = CLUSTER * 8 // (1 << REFCOUNT_ORDER)
"""Clusters whose references are counted in one cluster."""
STATE_MAX = 64 * 1024 * 1024
"""The most bytes of a state. States have 0.2 to 0.4 MiB, plus the pictures that a screen's device
holds: 8 MiB for a desktop of 1280 x 800."""
HEADER_BYTES = 104
_REFCOUNT_TABLE, _ACTIVE_L1, _SNAPSHOTS, _SNAPSHOT_L1, _L2 = 1, 2, 3, 4, 5
_ID = b"1"
_EXTRA_BYTES = 24
_NO_ICOUNT = 2**64 - 1


@dataclass(frozen=True, slots=True)
class StateDisk:
    data: bytes
    """The file."""
    state_at: int
    """The offset of the state in the file; it is contiguous."""


def make_state_disk(state: bytes, tag: str) -> StateDisk:
    """A disk of one cluster, with the internal snapshot ``tag`` whose VM state is ``state``. Raises
    HistoryError if that is too large."""
    if len(state) > STATE_MAX:
        raise HistoryError(f"the devices' state has {len(state)} bytes, more than {STATE_MAX}")
    used = -(-len(state) // CLUSTER)
    tables = -(-used * 8 // CLUSTER)
    counts = -(-(_L2 + tables + used) // (COUNTED - 1))  # their own clusters are counted, too
    counted_at = _L2 + tables
    first = counted_at + counts
    # The VM state lies behind the disk, whose one cluster is in the place of the first L2 table.
    l1_entries = 1 + tables
    out = bytearray((first + used) * CLUSTER)
    _put(out, 0, _header(l1_entries))
    _put(out, _REFCOUNT_TABLE, _places(counted_at, counts))
    _put(out, counted_at, struct.pack(">H", 1) * (first + used))
    _put(out, _SNAPSHOTS, _snapshot(tag, len(state), l1_entries))
    _put(out, _SNAPSHOT_L1, struct.pack(">Q", 0) + _places(_L2, tables))
    _put(out, _L2, _places(first, used))
    _put(out, first, state)
    return StateDisk(bytes(out), first * CLUSTER)


def _put(out: bytearray, cluster: int, data: bytes) -> None:
    out[cluster * CLUSTER : cluster * CLUSTER + len(data)] = data


def _places(first: int, count: int) -> bytes:
    """Entries of an L1 or L2 table for clusters that follow each other."""
    return struct.pack(f">{count}Q", *((first + n) * CLUSTER for n in range(count)))


def _header(l1_entries: int) -> bytes:
    return struct.pack(
        ">4sIQIIQIIQQIIQQQQII",
        b"QFI\xfb", 3,
        0, 0,  # no backing file
        CLUSTER_BITS,
        CLUSTER,  # the size of the disk
        0,  # not encrypted
        l1_entries, _ACTIVE_L1 * CLUSTER,
        _REFCOUNT_TABLE * CLUSTER, 1,
        1, _SNAPSHOTS * CLUSTER,
        0, 0, 0,  # no features
        REFCOUNT_ORDER, HEADER_BYTES,
    )  # fmt: skip


def _snapshot(tag: str, state_bytes: int, l1_entries: int) -> bytes:
    name = tag.encode("ascii")
    fixed = struct.pack(
        ">QIHHIIQII",
        _SNAPSHOT_L1 * CLUSTER, l1_entries,
        len(_ID), len(name),
        0, 0,  # when it was taken
        0,  # how long the VM had run
        state_bytes & 0xFFFFFFFF,  # replaced by the 64 bits below
        _EXTRA_BYTES,
    )  # fmt: skip
    return fixed + struct.pack(">QQQ", state_bytes, CLUSTER, _NO_ICOUNT) + _ID + name

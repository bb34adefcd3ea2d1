"""Writes qcow2 headers and empty overlays (QEMU docs/interop/qcow2.txt). Every start needs an
overlay, and running qemu-img for it would cost 20 ms."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from quicksand.base.errors import ConfigError, PathError
from quicksand.base.files import map_os_errors

CLUSTER_BITS = 16
CLUSTER = 1 << CLUSTER_BITS
L2_COVERS = CLUSTER * (CLUSTER // 8)
"""Bytes of the disk that one second-level table maps."""

SIZE_MAX = (CLUSTER // 8) * L2_COVERS
"""Bytes that a first-level table of one cluster can map (`DISK_SIZE_MAX` of records/sizes.py)."""

BACKING_NAME_MAX = 1023
"""Bytes of the backing file's name; QEMU opens no image with a longer one."""

REFCOUNT_ORDER = 4
"""Refcounts have 2 ** 4 bits."""

_MAGIC = 0x514649FB
_VERSION = 3
_HEADER_LENGTH = 104
_EXT_BACKING_FORMAT = 0xE2792ACA


def create_overlay(path: Path, *, backing: Path | None, size: int) -> None:
    """Write an empty overlay of ``size`` bytes over ``backing``; with None, a disk of zeros.

    The name of the backing file is for people and tools: the engine gives QEMU the block graph
    explicitly. Raises ConfigError for an impossible size, DiskSpaceError, PathError.
    """
    if not 0 < size <= SIZE_MAX:
        raise ConfigError(f"a disk of {size} bytes is not possible", hint="the most is 4T")
    size = -(-size // 512) * 512
    header = encode_header(
        size,
        encode_backing(backing),
        l1=(-(-size // L2_COVERS), 3 * CLUSTER),
        refcounts=(CLUSTER, 1),
    )
    with map_os_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.pwrite(descriptor, header, 0)
            os.pwrite(descriptor, struct.pack(">Q", 2 * CLUSTER), CLUSTER)
            # Clusters 0 to 3 (header, refcount table, refcount block, L1) are in use, once each.
            os.pwrite(descriptor, struct.pack(">4H", 1, 1, 1, 1), 2 * CLUSTER)
            os.ftruncate(descriptor, 4 * CLUSTER)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)


def encode_backing(backing: Path | None) -> bytes:
    """Encode the name of a backing file. Raises PathError if it is too long."""
    name = b"" if backing is None else os.fsencode(backing)
    if len(name) > BACKING_NAME_MAX:
        raise PathError(f"the path {backing} is longer than the {BACKING_NAME_MAX} bytes of qcow2")
    return name


def encode_header(
    size: int,
    backing: bytes,
    *,
    l1: tuple[int, int],
    refcounts: tuple[int, int],
    cluster_bits: int = CLUSTER_BITS,
) -> bytes:
    """Encode the header of a disk of ``size`` bytes, with its extensions and the backing name.

    ``l1`` is the number of first-level entries and their offset in bytes; ``refcounts`` is the
    offset in bytes of the refcount table and its number of clusters.
    """
    extensions = struct.pack(">II", 0, 0)
    if backing:
        kind = struct.pack(">II", _EXT_BACKING_FORMAT, 5) + b"qcow2".ljust(8, b"\0")
        extensions = kind + extensions
    header = struct.pack(
        ">IIQIIQIIQQIIQQQQII",
        _MAGIC,
        _VERSION,
        _HEADER_LENGTH + len(extensions) if backing else 0,
        len(backing),
        cluster_bits,
        size,
        0,  # no encryption
        *l1,
        *refcounts,
        0,  # no snapshots, and no table of them
        0,
        0,  # no features: incompatible, compatible, autoclear
        0,
        0,
        REFCOUNT_ORDER,
        _HEADER_LENGTH,
    )
    return header + extensions + backing

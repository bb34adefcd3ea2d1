"""Checks qcow2 files from elsewhere, in addition to the checks of `qcow2`: while they are written,
by the names in their headers, and by their tables of snapshots."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from quicksand.base.error_text import mib_text
from quicksand.base.errors import ImageError
from quicksand.base.regular import open_file
from quicksand.disks.images.qcow2 import (
    HEAD,
    L1_SIZE_MAX,
    VIRTUAL_SIZE_MAX,
    Qcow2Header,
    parse_header,
    unusable,
)

SNAPSHOTS_MAX = 64
"""The most internal snapshots of a layer: published packages may have left some, all unused."""

OVERHEAD = 64 * 1024 * 1024
"""The most bytes by which a disk's file may exceed what it can map: tables and freed clusters."""

SNAPSHOT_EXTRA_MAX = 1024
"""Bytes; QEMU's own limit (block/qcow2.h, QCOW_MAX_SNAPSHOT_EXTRA_DATA)."""

_PROTOCOL = re.compile(r"[^/]*:")
"""QEMU takes text before a colon, without a slash, for a protocol (block.c, path_has_protocol)."""

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
"""A Windows path, which does not name a protocol."""

_SNAPSHOT = struct.Struct(">QIHHIIQII")
"""An entry of the snapshot table (QEMU docs/interop/qcow2.txt)."""


class ForeignDisk:
    """Checks a qcow2 file while it is written, so that a bad one is refused by its first bytes and
    not after gigabytes. The header must be checked again when the file is complete."""

    def __init__(self, name: str, size: int, *, allow_backing: bool = False) -> None:
        """``name`` is the file's name in errors, ``size`` its declared bytes."""
        self._name = name
        self._size = size
        self._allow_backing = allow_backing
        self._head = b""
        self._header: Qcow2Header | None = None
        self._at = 0
        self._is_mapped: bool | None = None
        """Whether the first-level table has entries; None until all of it was read."""

    def look(self, data: bytes) -> None:
        """Check the next piece of the file. Raises ImageError."""
        if self._header is None:
            self._head += data
            if len(self._head) < min(HEAD, self._size):
                return
            data = self._head
            self._header = self._parse(data[:HEAD])
            self._head = b""
        if self._is_mapped is None:
            self._look_at_table(self._header, data)
        self._at += len(data)

    def _parse(self, head: bytes) -> Qcow2Header:
        try:
            header = parse_header(head, self._size, allow_backing=self._allow_backing)
        except (ValueError, struct.error) as error:
            raise unusable(self._name, error) from error
        # Twice, because the file keeps the space of deleted snapshots.
        self._require_below(2 * header.mapped_max * (1 + header.snapshots))
        return header

    def _look_at_table(self, header: Qcow2Header, data: bytes) -> None:
        start = header.l1_offset - self._at
        end = start + 8 * header.l1_size
        part = data[max(0, start) : max(0, end)]
        if part.count(0) != len(part):
            self._is_mapped = True
        elif end <= len(data):
            self._is_mapped = False
            if not header.snapshots:
                self._require_below(header.l1_offset + 8 * header.l1_size)

    def _require_below(self, size: int) -> None:
        if self._size > size + OVERHEAD:
            raise ImageError(
                f"{self._name} is refused: it has {mib_text(self._size)}, and its header leads to "
                f"{mib_text(size)} at the most"
            )


def check_backing_name(name: str | None) -> None:
    """Raise ValueError unless the name is an ordinary path of a qcow2 file. The engine ignores the
    names in headers, but other tools do not."""
    if name is None:
        return
    if _PROTOCOL.match(name) and not _DRIVE.match(name):
        raise ValueError(f"it names a protocol as its backing file ({name[:100]!r})")
    if not name.lower().endswith(".qcow2") or ".." in re.split(r"[\\/]", name):
        raise ValueError(f"it names a file as its backing file that is no layer ({name[:100]!r})")


def check_snapshots(path: Path) -> None:
    """Check the table of internal snapshots of a qcow2 file whose header was checked. Raises
    ValueError, struct.error, OSError."""
    with open_file(path) as file:
        size = file.seek(0, 2)
        file.seek(60)
        count, offset = struct.unpack(">IQ", file.read(12))
        if count > SNAPSHOTS_MAX:
            raise ValueError(f"it claims to hold {count} snapshots")
        for _ in range(count):
            file.seek(offset)
            l1_offset, l1_size, id_size, name_size, *_, state, extra = _SNAPSHOT.unpack(
                file.read(_SNAPSHOT.size)
            )
            tables = l1_size > L1_SIZE_MAX or l1_offset + 8 * l1_size > size
            if tables or extra > SNAPSHOT_EXTRA_MAX or state > size:
                raise ValueError("a snapshot in it claims an impossible size")
            more = file.read(extra)
            if len(more) >= 16 and any(
                value > most
                for value, most in zip(
                    struct.unpack(">QQ", more[:16]), (size, VIRTUAL_SIZE_MAX), strict=True
                )
            ):
                raise ValueError("a snapshot in it claims an impossible size")
            length = _SNAPSHOT.size + extra + id_size + name_size
            # The padding of the last entry may be missing.
            if offset + length > size:
                raise ValueError("its table of snapshots is cut off")
            offset += -(-length // 8) * 8


def require_sane_snapshots(path: Path, name: str) -> None:
    """As `check_snapshots`, but raises ImageError, with ``name`` as the file's name."""
    try:
        check_snapshots(path)
    except (ValueError, struct.error) as error:
        raise ImageError(f"{name} is refused: {error}") from error
    except OSError as error:
        raise ImageError(f"cannot read {path}: {error.strerror}") from error

"""What of a bundle could reach this host, and is refused: in its configuration, and in the headers
of its disks. All that is done by our own code, before any QEMU program sees a file."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from quicksand.config import NetworkMode, SandboxConfig
from quicksand.errors import BundleError, ImageError
from quicksand.images.qcow2 import L1_SIZE_MAX, VIRTUAL_SIZE_MAX, Qcow2Header, check_qcow2

SNAPSHOTS_MAX = 64
"""Snapshots within a layer: published packages may have left some, nobody goes back to them."""

SNAPSHOT_EXTRA_MAX = 1024
"""Bytes; QEMU's own limit (block/qcow2.h, QCOW_MAX_SNAPSHOT_EXTRA_DATA)."""

_PROTOCOL = re.compile(r"[^/]*:")
"""QEMU takes what stands before a colon, no slash before it, for a protocol (block.c,
path_has_protocol)."""

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
"""A path of Windows, which is none."""

_SNAPSHOT = struct.Struct(">QIHHIIQII")
"""An entry of the table of snapshots (QEMU docs/interop/qcow2.txt)."""


def check_config(config: SandboxConfig, other: Mapping[str, Any] | None = None) -> None:
    """Refuse what would give a file from elsewhere a say in what this host does. Raises
    BundleError."""
    reason = dangers(config, other)
    if reason:
        raise BundleError(
            f"the bundle {reason}",
            hint="if you know who made it, `import --trust` takes it all the same",
        )


def dangers(config: SandboxConfig, other: Mapping[str, Any] | None = None) -> str:
    """What nobody should let a file choose; "" if there is nothing of that kind."""
    if config.extra_qemu_args:
        words = " ".join(config.extra_qemu_args)
        return f"has QEMU arguments of its own, which can read and run anything here: {words[:200]}"
    if (other or {}).get("mounts"):
        return f"mounts directories of this host: {str((other or {})['mounts'])[:200]}"
    return ""


def warnings(config: SandboxConfig) -> Iterator[str]:
    """What is allowed, and yet should be known before a start."""
    if config.network_mode is NetworkMode.FULL:
        yield "its network mode is full: what runs in it reaches this host's own services"
    if config.port_forwards:
        ports = ", ".join(f"{f.host or 'any'} -> {f.guest}" for f in config.port_forwards)
        yield f"it forwards ports of this host: {ports}"


def check_layer(path: Path, name: str, *, snapshots: bool = False) -> Qcow2Header:
    """Check the header of a layer, ``name`` in the bundle. ``snapshots``: whether it may hold some.

    Raises BundleError.
    """
    header = check_disk(path, name, allow_backing=True)
    try:
        check_backing_name(header.backing_file)
        if header.snapshots and not snapshots:
            raise ValueError(f"it holds {header.snapshots} snapshots")
        _check_snapshots(path)
    except (ValueError, struct.error) as error:
        raise BundleError(f"{name} is refused: {error}") from error
    return header


def check_disk(path: Path, name: str, *, allow_backing: bool = False) -> Qcow2Header:
    """As `check_qcow2`, with the name that the file has in the bundle. Raises BundleError."""
    try:
        return check_qcow2(path, allow_backing=allow_backing)
    except ImageError as error:
        reason = error.__cause__ or error
        raise BundleError(f"{name} is not a usable qcow2 image: {reason}") from error


def check_backing_name(name: str | None) -> None:
    """The names in headers are never used by us; somebody else's tool may. Raises ValueError for
    one that is no ordinary path of a qcow2 image."""
    if name is None:
        return
    if _PROTOCOL.match(name) and not _DRIVE.match(name):
        raise ValueError(f"it names a protocol as its backing file ({name[:100]!r})")
    if not name.lower().endswith(".qcow2") or ".." in re.split(r"[\\/]", name):
        raise ValueError(f"it names a file as its backing file that is no layer ({name[:100]!r})")


def _check_snapshots(path: Path) -> None:
    with path.open("rb") as file:
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
            offset += -(-length // 8) * 8
            if offset > size:
                raise ValueError("its table of snapshots is cut off")

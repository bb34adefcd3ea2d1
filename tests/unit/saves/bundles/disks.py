"""Headers of qcow2 images that somebody has written by hand."""

from __future__ import annotations

import struct
from typing import Any

from tests.unit.disks.test_qcow2 import header


def backed(name: bytes, **fields: Any) -> bytes:
    content = bytearray(header(backing_offset=512, backing_size=len(name), **fields))
    content[512 : 512 + len(name)] = name
    return bytes(content)


def extension(kind: int, data: bytes) -> bytes:
    return struct.pack(">II", kind, len(data)) + data.ljust(-(-len(data) // 8) * 8, b"\0")


def snapshots(entry: bytes, count: int = 1) -> bytes:
    content = bytearray(header(snapshots=count, snapshots_offset=2 * 65536))
    content[2 * 65536 : 2 * 65536 + len(entry)] = entry
    return bytes(content)


def entry(**changes: int) -> bytes:
    values = {"l1_offset": 196608, "l1_size": 2, "id": 1, "name": 1, "state": 0, "extra": 16}
    values |= changes
    packed = struct.pack(
        ">QIHHIIQII",
        values["l1_offset"], values["l1_size"], values["id"], values["name"],
        0, 0, 0, values["state"], values["extra"],
    )  # fmt: skip
    return (
        packed + struct.pack(">QQ", values.get("state64", 0), values.get("disk", 1 << 20)) + b"1n"
    )

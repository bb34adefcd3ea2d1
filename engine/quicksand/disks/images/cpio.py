"""Writes cpio archives in the "newc" format, which the kernel unpacks as an initramfs (Linux
Documentation/driver-api/early-userspace/buffer-format.rst). Equal entries give equal bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_MAGIC = b"070701"
_TRAILER = "TRAILER!!!"
_NAME_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CpioEntry:
    """A file, directory, symbolic link or device node, owned by root, with time 0."""

    name: str
    """The path without a leading slash."""
    mode: int
    """Type and permission bits, as in st_mode."""
    data: bytes = b""
    """The content of a file, or the target of a symbolic link."""
    device: tuple[int, int] = (0, 0)
    """The major and minor number of a device node."""


def build_cpio(entries: Iterable[CpioEntry]) -> bytes:
    """Make an archive of ``entries`` in their order. Raises ValueError for a bad name."""
    parts = [
        part
        for number, entry in enumerate(entries, start=1)
        for part in _encode(entry, inode=number)
    ]
    parts += _encode(CpioEntry(name=_TRAILER, mode=0), inode=0)
    archive = b"".join(parts)
    return archive + bytes(-len(archive) % 512)


def _encode(entry: CpioEntry, *, inode: int) -> list[bytes]:
    name = entry.name.encode()
    if not name or name.startswith(b"/") or b"\0" in name or len(name) >= _NAME_MAX:
        raise ValueError(f"{entry.name!r} cannot be a name in an archive")
    links = 2 if entry.mode & 0o170000 == 0o040000 else 1
    fields = (
        inode,
        entry.mode,
        0,
        0,
        links,
        0,
        len(entry.data),
        0,
        0,
        *entry.device,
        len(name) + 1,
        0,
    )
    header = _MAGIC + b"".join(b"%08X" % field for field in fields) + name + b"\0"
    return [header, bytes(-len(header) % 4), entry.data, bytes(-len(entry.data) % 4)]

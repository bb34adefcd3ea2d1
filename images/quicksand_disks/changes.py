"""The differences between two disks, as callers see them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ChangeKind(StrEnum):
    """The kind of change of a path."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    TYPE_CHANGED = "type-changed"


class FileType(StrEnum):
    """The type of an inode."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    CHARACTER_DEVICE = "character-device"
    BLOCK_DEVICE = "block-device"
    FIFO = "fifo"
    SOCKET = "socket"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One path that differs. A moved file counts as one removed and one added."""

    path: str
    """Absolute. The guest chose it: bytes that are not UTF-8 become lone surrogates, as in
    `os.fsdecode`."""
    kind: ChangeKind
    type_before: FileType | None
    """None if the path was added."""
    type_after: FileType | None
    """None if the path was removed."""
    size_before: int | None
    """Bytes of a file's contents or a symbolic link's target; None for every other type."""
    size_after: int | None
    differs: tuple[str, ...] = ()
    """If CHANGED, some of "content", "target", "device", "mode", "owner", "mtime", "attributes"."""

"""What callers see of a difference between two disks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ChangeKind(StrEnum):
    """What happened to a path."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    TYPE_CHANGED = "type-changed"


class FileType(StrEnum):
    """What an inode is."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    CHARACTER_DEVICE = "character-device"
    BLOCK_DEVICE = "block-device"
    FIFO = "fifo"
    SOCKET = "socket"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One path that differs. A file that was moved is removed in one place and added in another."""

    path: str
    """From /. Bytes that are no UTF-8 are lone surrogates (as in `os.fsdecode`): a guest chose
    them."""
    kind: ChangeKind
    type_before: FileType | None
    """None if it was not there."""
    type_after: FileType | None
    """None if it is gone."""
    size_before: int | None
    """Bytes of a file's contents or of a link's target; None if there was none of these."""
    size_after: int | None
    differs: tuple[str, ...] = ()
    """Of what CHANGED: "content", "target", "device", "mode", "owner", "mtime", "attributes"."""

"""The values that a store takes and returns: plain classes without dataclasses, which load
slowly."""

from __future__ import annotations

import stat as _stat
import struct

from quicksand_smb.minimal_stdlib import Enum, IntEnum, auto

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os


class FileKind(Enum):
    FILE = auto()
    DIRECTORY = auto()
    SYMLINK = auto()
    FIFO = auto()
    SOCKET = auto()
    DEVICE = auto()
    """A device node of the host. It is listed and never opened."""


_KINDS = {
    _stat.S_IFREG: FileKind.FILE,
    _stat.S_IFDIR: FileKind.DIRECTORY,
    _stat.S_IFLNK: FileKind.SYMLINK,
    _stat.S_IFIFO: FileKind.FIFO,
    _stat.S_IFSOCK: FileKind.SOCKET,
}


class Disposition(IntEnum):
    """The CreateDisposition of [MS-SMB2] 2.2.13: what to do if the file exists, and if it does
    not."""

    SUPERSEDE = 0
    OPEN = 1
    CREATE = 2
    OPEN_IF = 3
    OVERWRITE = 4
    OVERWRITE_IF = 5


class Action(IntEnum):
    """The CreateAction of [MS-SMB2] 2.2.14."""

    SUPERSEDED = 0
    OPENED = 1
    CREATED = 2
    OVERWRITTEN = 3


class OpenOptions:
    """How to open a file.

    `read`, `write` and `append` concern data; without them the node can do everything else.
    `directory` demands a directory if True, and something else if False. `mode` holds the
    permission bits of a new file; set-id bits are dropped.
    """

    __slots__ = ("append", "directory", "disposition", "mode", "read", "write")

    def __init__(
        self,
        *,
        read: bool = False,
        write: bool = False,
        append: bool = False,
        disposition: Disposition = Disposition.OPEN,
        directory: bool | None = None,
        mode: int = 0o644,
    ) -> None:
        self.read = read
        self.write = write
        self.append = append
        self.disposition = disposition
        self.directory = directory
        self.mode = mode


class Limits:
    """The resources that a guest may use."""

    __slots__ = ("attribute_bytes", "attributes", "file_bytes", "nodes", "reserve", "reserve_names")

    def __init__(
        self,
        *,
        nodes: int = 4096,
        file_bytes: int = 1 << 40,
        reserve: int = 256 << 20,
        reserve_names: int = 1000,
        attributes: int = 128,
        attribute_bytes: int = 64 << 10,
    ) -> None:
        self.nodes = nodes
        """The most open files of one share."""
        self.file_bytes = file_bytes
        """The largest file in bytes. Holes count, since copying the file would fill them."""
        self.reserve = reserve
        """The bytes of the file system that stay free for the host, or a twentieth of a small
        one."""
        self.reserve_names = reserve_names
        """The inodes that stay free for the host, or a twentieth, where the file system counts
        them."""
        self.attributes = attributes
        """The most extended attributes of one file."""
        self.attribute_bytes = attribute_bytes
        """The longest value of an attribute in bytes."""


class Stat:
    """The state of a file. Sizes are in bytes, and times in nanoseconds since 1970 (UTC)."""

    __slots__ = ("accessed_ns", "allocated", "born_ns", "changed_ns", "device", "gid", "inode",
                 "kind", "mode", "nlink", "size", "uid", "written_ns")  # fmt: skip

    kind: FileKind
    mode: int
    """Permission and set-id bits (0o7777)."""
    inode: int
    device: int
    size: int
    allocated: int
    nlink: int
    uid: int
    gid: int
    accessed_ns: int
    written_ns: int
    changed_ns: int
    born_ns: int
    """The time of birth, or 0 where the file system does not tell it. It is never derived from
    other times, since clients take a file with another birth for another file."""

    def same_file(self, other: Stat) -> bool:
        """Tell whether both have the same inode."""
        return self.inode == other.inode and self.device == other.device


# struct statx, linux/stat.h: mask, nlink, uid, gid, mode, ino, size, blocks, then access, birth,
# change and modification as seconds and nanoseconds, and the device.
_STATX = struct.Struct("<I12xIIIH2xQQQ8xqI4xqI4xqI4xqI4x8xII").unpack_from
STATX_SIZE = 256
_STATX_BTIME = 0x800
_BLOCK = 512
"""The unit of st_blocks in bytes (stat(2))."""


def stat_from_statx(buffer: bytes | bytearray) -> Stat:
    """Decode the buffer of statx(2)."""
    found = Stat()
    (mask, found.nlink, found.uid, found.gid, mode, found.inode, found.size, blocks,
     accessed, accessed_ns, born, born_ns, changed, changed_ns, written, written_ns,
     major, minor) = _STATX(buffer)  # fmt: skip
    found.kind = _KINDS.get(mode & 0o170000, FileKind.DEVICE)
    found.mode = mode & 0o7777
    found.allocated = blocks * _BLOCK
    found.accessed_ns = accessed * 1_000_000_000 + accessed_ns
    found.born_ns = born * 1_000_000_000 + born_ns if mask & _STATX_BTIME else 0
    found.changed_ns = changed * 1_000_000_000 + changed_ns
    found.written_ns = written * 1_000_000_000 + written_ns
    found.device = major << 32 | minor
    return found


def stat_from_os(status: os.stat_result) -> Stat:
    """Convert the result of os.stat, where there is no statx."""
    found = Stat()
    found.kind = _KINDS.get(_stat.S_IFMT(status.st_mode), FileKind.DEVICE)
    found.mode = status.st_mode & 0o7777
    found.inode = status.st_ino
    found.device = status.st_dev
    found.size = status.st_size
    found.allocated = getattr(status, "st_blocks", 0) * _BLOCK
    found.nlink = status.st_nlink
    found.uid = status.st_uid
    found.gid = status.st_gid
    found.accessed_ns = status.st_atime_ns
    found.written_ns = status.st_mtime_ns
    found.changed_ns = status.st_ctime_ns
    found.born_ns = int(getattr(status, "st_birthtime", 0) * 1_000_000) * 1000
    return found


class Entry:
    """One name of a directory and its state. A symlink is not followed."""

    __slots__ = ("name", "stat")

    def __init__(self, name: str, stat: Stat) -> None:
        self.name = name
        self.stat = stat


class Space:
    """The space of a file system in bytes, and its inodes in `names` (0 where they are not
    counted)."""

    __slots__ = ("available", "block_size", "free", "free_names", "names", "total")

    def __init__(
        self, *, total: int, free: int, available: int, block_size: int, names: int, free_names: int
    ) -> None:
        self.total = total
        self.free = free
        self.available = available
        """The bytes available to the guest: the free ones less the host's reserve."""
        self.block_size = block_size
        self.names = names
        self.free_names = free_names

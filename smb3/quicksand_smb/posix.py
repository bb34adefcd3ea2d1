"""The POSIX extensions of SMB 3.1.1: owners, modes and kinds of files as on Unix.

Source: SMB3 POSIX extensions specification (samba.org), as Linux reads it (fs/smb/client/smb2pdu.h:
create_posix_rsp, smb2_posix_info, smb311_posix_qinfo, FILE_SYSTEM_POSIX_INFO).
"""

import os
import struct

from quicksand_smb.minimal_stdlib import Final
from quicksand_smb.store_types import FileKind, Space, Stat
from quicksand_smb.wire import Cursor

LEVEL: Final = 100
"""The information level of files, directories and file systems."""
NO_MODE: Final = -1
"""The mode of FIFOs, sockets and symlinks, for which Linux sends no permissions."""
_ANY_MODE: Final = 0xFFFF
"""`ACL_NO_MODE` (fs/smb/client/cifsglob.h), a value of 16 bits."""
_INFO: Final = struct.Struct("<QQQQQQIQII")
_LINKS: Final = struct.Struct("<III")
_SPACE: Final = struct.Struct("<IIQQQQQQ")

# The kind stands above the nine bits of permission and the three special ones.
_KINDS: Final = {
    FileKind.FILE: 0,
    FileKind.DIRECTORY: 1,
    FileKind.SYMLINK: 2,
    FileKind.DEVICE: 3,
    FileKind.FIFO: 5,
    FileKind.SOCKET: 6,
}
_REPARSE_TAGS: Final = {
    FileKind.SYMLINK: 0xA000000C,
    FileKind.FIFO: 0x80000024,
    FileKind.SOCKET: 0x80000023,
    FileKind.DEVICE: 0x80000025,
}


def reparse_tag(kind: FileKind) -> int:
    """Return the reparse tag of a kind ([MS-FSCC] 2.1.2.1), or 0 for files and directories."""
    return _REPARSE_TAGS.get(kind, 0)


def sid(authority: int, *parts: int) -> bytes:
    """Encode a security identifier ([MS-DTYP] 2.4.2.2)."""
    return struct.pack(f"<BB6s{len(parts)}I", 1, len(parts), authority.to_bytes(6, "big"), *parts)


def owner_sid(uid: int) -> bytes:
    return sid(22, 1, uid)


def group_sid(gid: int) -> bytes:
    return sid(22, 2, gid)


_ROOT: Final = owner_sid(0) + group_sid(0)


def seen_owners(stat: Stat) -> bytes:
    """Return the owner and group that a client with POSIX extensions sees. Files of the user who
    runs this server belong to root there, since git trusts no files of strangers."""
    mine = stat.uid == os.getuid()
    if mine and stat.gid == os.getgid():
        return _ROOT
    return owner_sid(0 if mine else stat.uid) + group_sid(
        0 if mine and stat.gid == os.getgid() else stat.gid
    )


def _links_and_mode(stat: Stat) -> bytes:
    mode = _KINDS[stat.kind] << 12 | stat.mode & 0o7777
    return _LINKS.pack(stat.nlink, reparse_tag(stat.kind), mode) + seen_owners(stat)


# The create context of a request carries the mode, and that of the response the owner
def decode_create(data: bytes) -> int:
    """Return the permissions of a new file, or `NO_MODE`."""
    wanted = Cursor(data).u32()
    return NO_MODE if wanted & _ANY_MODE == _ANY_MODE else wanted & 0o7777


def encode_create(stat: Stat) -> bytes:
    return _links_and_mode(stat)


def encode_info(
    stat: Stat, number: int, times: tuple[int, int, int, int], attributes: int
) -> bytes:
    """Encode a file with this number and without its name. `times` are FILETIMEs: created,
    accessed, written, changed."""
    return (
        _INFO.pack(
            *times, stat.size, stat.allocated, attributes, number, stat.device & 0xFFFFFFFF, 0
        )
        + _links_and_mode(stat)
    )  # fmt: skip


def encode_space(space: Space, serial: int) -> bytes:
    block = space.block_size or 4096
    return _SPACE.pack(
        block, block, space.total // block, space.free // block, space.available // block,
        space.names, space.free_names, serial,
    )  # fmt: skip

"""The POSIX extensions of SMB 3.1.1: owners, modes and kinds of files as Unix has them.

Source: SMB3 POSIX extensions specification (samba.org), as Linux reads it (fs/smb/client/smb2pdu.h:
create_posix_rsp, smb2_posix_info, smb311_posix_qinfo, FILE_SYSTEM_POSIX_INFO).
"""

import os
import struct

from quicksand_smb.light import Final
from quicksand_smb.values import Kind, Space, Stat
from quicksand_smb.wire import Cursor

LEVEL: Final = 100
"""The information level of files, directories and file systems."""
NO_MODE: Final = -1
"""Linux does not say with which permissions it makes pipes, sockets and links."""
_ANY_MODE: Final = 0xFFFF
"""`ACL_NO_MODE` (fs/smb/client/cifsglob.h), which has 16 bits."""
_INFO: Final = struct.Struct("<QQQQQQIQII")
_LINKS: Final = struct.Struct("<III")
_SPACE: Final = struct.Struct("<IIQQQQQQ")

# The kind stands above the nine bits of permission and the three special ones.
_KINDS: Final = {
    Kind.FILE: 0,
    Kind.DIRECTORY: 1,
    Kind.SYMLINK: 2,
    Kind.DEVICE: 3,
    Kind.FIFO: 5,
    Kind.SOCKET: 6,
}
_REPARSE_TAGS: Final = {
    Kind.SYMLINK: 0xA000000C,
    Kind.FIFO: 0x80000024,
    Kind.SOCKET: 0x80000023,
    Kind.DEVICE: 0x80000025,
}


def reparse_tag(kind: Kind) -> int:
    """[MS-FSCC] 2.1.2.1; 0 for files and directories."""
    return _REPARSE_TAGS.get(kind, 0)


def sid(authority: int, *parts: int) -> bytes:
    """[MS-DTYP] 2.4.2.2."""
    return struct.pack(f"<BB6s{len(parts)}I", 1, len(parts), authority.to_bytes(6, "big"), *parts)


def owner_sid(uid: int) -> bytes:
    return sid(22, 1, uid)


def group_sid(gid: int) -> bytes:
    return sid(22, 2, gid)


_ROOT: Final = owner_sid(0) + group_sid(0)


def seen_owners(stat: Stat) -> bytes:
    """What a client with POSIX extensions takes for a file's owner and group. What belongs to the
    user who runs this server is its root's: git trusts nothing that is a stranger's."""
    mine = stat.uid == os.getuid()
    if mine and stat.gid == os.getgid():
        return _ROOT
    return owner_sid(0 if mine else stat.uid) + group_sid(
        0 if mine and stat.gid == os.getgid() else stat.gid
    )


def _links_and_mode(stat: Stat) -> bytes:
    mode = _KINDS[stat.kind] << 12 | stat.mode & 0o7777
    return _LINKS.pack(stat.nlink, reparse_tag(stat.kind), mode) + seen_owners(stat)


# The create context of a request carries the mode, its answer the owner
def decode_create(data: bytes) -> int:
    """The permissions of what is to be made, or `NO_MODE`."""
    wanted = Cursor(data).u32()
    return NO_MODE if wanted & _ANY_MODE == _ANY_MODE else wanted & 0o7777


def encode_create(stat: Stat) -> bytes:
    return _links_and_mode(stat)


def encode_info(
    stat: Stat, number: int, times: tuple[int, int, int, int], attributes: int
) -> bytes:
    """A file, without its name, as that of this number. `times` are FILETIMEs: created, accessed,
    written, changed."""
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

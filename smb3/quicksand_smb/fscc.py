"""What is told of files, directories and file systems: the records of [MS-FSCC] 2.4 and 2.5.

Encoders by level, from what a store tells. A record of fixed size that does not fit is an error, a
longer one is cut ([MS-SMB2] 3.3.5.20.1).
"""

import struct

from quicksand_smb import posix
from quicksand_smb.light import Callable, Final, NamedTuple
from quicksand_smb.messages.create import Times
from quicksand_smb.values import Kind, Space, Stat
from quicksand_smb.wire import Cursor, ProtocolError, decode_text, encode_text, filetime, pad

# File attributes, [MS-FSCC] 2.6
READ_ONLY: Final = 0x1
HIDDEN: Final = 0x2
SYSTEM: Final = 0x4
DIRECTORY: Final = 0x10
ARCHIVE: Final = 0x20
NORMAL: Final = 0x80
TEMPORARY: Final = 0x100
SPARSE: Final = 0x200
REPARSE: Final = 0x400
KEPT: Final = HIDDEN | SYSTEM | ARCHIVE | TEMPORARY | SPARSE | 0x1000 | 0x2000
"""Attributes that a file of Unix has no place for: they are remembered beside it."""


class View:
    """A file as a client is to see it."""

    __slots__ = ("access", "allocated", "attributes", "is_deleted", "mode", "number", "path",
                 "position", "serial", "stat", "times")  # fmt: skip

    def __init__(
        self, stat: Stat, attributes: int, times: Times, *, allocated: int = 0, serial: int = 0
    ) -> None:
        self.stat = stat
        self.number = stat.inode
        self.attributes = attributes
        self.times = times
        self.allocated = allocated
        self.serial = serial
        self.path = "\\"
        r"""From the root of the share, with `\` before each name."""
        self.access = 0
        self.position = 0
        self.mode = 0
        self.is_deleted = False


def times_of(stat: Stat) -> Times:
    return (
        filetime(stat.born_ns) if stat.born_ns else 0,
        filetime(stat.accessed_ns),
        filetime(stat.written_ns),
        filetime(stat.changed_ns),
    )


def attributes_of(stat: Stat, kept: int) -> int:
    found = kept
    if stat.kind is Kind.DIRECTORY:
        return (found | DIRECTORY) & ~(NORMAL | SPARSE)
    if stat.kind is not Kind.FILE:
        found |= REPARSE
    elif not stat.mode & 0o222:
        found |= READ_ONLY
    return found or NORMAL


def _basic(view: View) -> bytes:
    return struct.pack("<QQQQII", *view.times, view.attributes, 0)


def _standard(view: View) -> bytes:
    is_directory = view.stat.kind is Kind.DIRECTORY
    return struct.pack(
        "<QQIBBH",
        view.allocated,
        size_of(view.stat),
        _links(view),
        view.is_deleted,
        is_directory,
        0,
    )


def _links(view: View) -> int:
    return view.stat.nlink - (view.is_deleted and view.stat.nlink > 0)


def size_of(stat: Stat) -> int:
    """Directories have no size on the wire."""
    return 0 if stat.kind is Kind.DIRECTORY else stat.size


def _internal(view: View) -> bytes:
    return struct.pack("<Q", view.number)


def _ea(view: View) -> bytes:
    return struct.pack("<I", posix.reparse_tag(view.stat.kind))


def _access(view: View) -> bytes:
    return struct.pack("<I", view.access)


def _position(view: View) -> bytes:
    return struct.pack("<Q", view.position)


def _mode(view: View) -> bytes:
    return struct.pack("<I", view.mode)


def _alignment(_: View) -> bytes:
    return bytes(4)


def _name(view: View) -> bytes:
    text = encode_text(view.path)
    return struct.pack("<I", len(text)) + text


def _normalized_name(view: View) -> bytes:
    text = encode_text(view.path[1:])
    return struct.pack("<I", len(text)) + text


_ALL: Final = struct.Struct("<QQQQII QQIBBH QII QIII")


def _all(view: View) -> bytes:
    """Most of the levels above in one; what a client asks for that wants to know a file."""
    stat = view.stat
    text = encode_text(view.path)
    return (
        _ALL.pack(
            *view.times, view.attributes, 0,
            view.allocated, size_of(stat), _links(view), view.is_deleted,
            stat.kind is Kind.DIRECTORY, 0,
            view.number, posix.reparse_tag(stat.kind), view.access,
            view.position, view.mode, 0, len(text),
        )
        + text
    )  # fmt: skip


# [MS-FSCC] 2.4.49
def encode_streams(streams: list[tuple[str, int, int]]) -> bytes:
    """Names, sizes and what they take on the disk."""
    encoded = b""
    for index, (name, size, allocated) in enumerate(streams):
        text = encode_text(name)
        record = struct.pack("<IQQ", len(text), size, allocated) + text
        if index == len(streams) - 1:
            return encoded + bytes(4) + record
        fill = pad(len(record) + 4)
        encoded += struct.pack("<I", len(record) + 4 + fill) + record + bytes(fill)
    return encoded


def _compression(view: View) -> bytes:
    return struct.pack("<QHBBB3x", size_of(view.stat), 0, 0, 0, 0)


def _network_open(view: View) -> bytes:
    return struct.pack(
        "<QQQQQQII", *view.times, view.allocated, size_of(view.stat), view.attributes, 0
    )


def _tag(view: View) -> bytes:
    return struct.pack("<II", view.attributes, posix.reparse_tag(view.stat.kind))


def _file_id(view: View) -> bytes:
    return struct.pack("<QQQ", view.serial, view.number, 0)


def _posix(view: View) -> bytes:
    return posix.encode_info(view.stat, view.number, view.times, view.attributes)


class Level(NamedTuple):
    encode: Callable[[View], bytes]
    least: int
    """Bytes of answer a client must have room for."""
    access: int = 0
    """What the handle must have been opened for."""


READ_ATTRIBUTES: Final = 0x80
FILE_LEVELS: Final[dict[int, Level]] = {
    4: Level(_basic, 40, READ_ATTRIBUTES),
    5: Level(_standard, 24),
    6: Level(_internal, 8),
    7: Level(_ea, 4),
    8: Level(_access, 4),
    14: Level(_position, 8),
    16: Level(_mode, 4),
    17: Level(_alignment, 4),
    18: Level(_all, 104, READ_ATTRIBUTES),
    28: Level(_compression, 16, READ_ATTRIBUTES),
    34: Level(_network_open, 56, READ_ATTRIBUTES),
    35: Level(_tag, 8, READ_ATTRIBUTES),
    48: Level(_normalized_name, 8),
    59: Level(_file_id, 24),
    posix.LEVEL: Level(_posix, 80),
}


# [MS-FSCC] 2.4: what one entry of a directory says, after the offset of the next
def _dates(view: View, name: bytes) -> bytes:
    return struct.pack(
        "<IQQQQQQII", 0, *view.times, size_of(view.stat), view.allocated, view.attributes, len(name)
    )


def _full(view: View, name: bytes) -> bytes:
    return _dates(view, name) + struct.pack("<I", posix.reparse_tag(view.stat.kind))


def _entry_both(view: View, name: bytes) -> bytes:
    return _full(view, name) + bytes(26) + name


def _entry_id_full(view: View, name: bytes) -> bytes:
    return _full(view, name) + struct.pack("<IQ", 0, view.number) + name


def _entry_id_both(view: View, name: bytes) -> bytes:
    return _full(view, name) + bytes(26) + struct.pack("<HQ", 0, view.number) + name


def _entry_names(_: View, name: bytes) -> bytes:
    return struct.pack("<II", 0, len(name)) + name


def _entry_posix(view: View, name: bytes) -> bytes:
    """Linux takes the first of an entry's times, which is that of birth, for the time of change
    (`cifs_posix_to_fattr` in fs/smb/client/readdir.c), and git reads every file anew whose time of
    change is another than it was. It heeds no birth there, so that of change is told twice."""
    _, accessed, written, changed = view.times
    times = changed, accessed, written, changed
    info = posix.encode_info(view.stat, view.number, times, view.attributes)
    return bytes(4) + info + struct.pack("<I", len(name)) + name


ENTRY_LEVELS: Final[dict[int, Callable[[View, bytes], bytes]]] = {
    1: lambda view, name: _dates(view, name) + name,
    2: lambda view, name: _full(view, name) + name,
    3: _entry_both,
    12: _entry_names,
    37: _entry_id_both,
    38: _entry_id_full,
    posix.LEVEL: _entry_posix,
}


class Volume(NamedTuple):
    space: Space
    label: str
    serial: int
    is_read_only: bool


def _volume(volume: Volume) -> bytes:
    label = encode_text(volume.label)
    return struct.pack("<QIIBB", 0, volume.serial & 0xFFFFFFFF, len(label), 0, 0) + label


def _block(space: Space) -> tuple[int, int]:
    """Bytes of a sector, and sectors of a unit of allocation."""
    return 512, max(space.block_size // 512, 1)


def _size(volume: Volume) -> bytes:
    sector, many = _block(volume.space)
    unit = sector * many
    return struct.pack(
        "<QQII", volume.space.total // unit, volume.space.available // unit, many, sector
    )


def _full_size(volume: Volume) -> bytes:
    sector, many = _block(volume.space)
    unit = sector * many
    space = volume.space
    return struct.pack(
        "<QQQII", space.total // unit, space.available // unit, space.free // unit, many, sector
    )


def _device(volume: Volume) -> bytes:
    return struct.pack("<II", 7, 0x20 | (2 if volume.is_read_only else 0))


def _abilities(volume: Volume) -> bytes:
    # Case is told apart and kept, names are Unicode, there are holes, reparse points and streams.
    flags = 0x1 | 0x2 | 0x4 | 0x40 | 0x80 | 0x40000 | (0x80000 if volume.is_read_only else 0)
    name = encode_text("NTFS")
    return struct.pack("<III", flags, 255, len(name)) + name


def _quota(_: Volume) -> bytes:
    """No limits are kept for users of the guest."""
    none = (1 << 64) - 1
    return struct.pack("<QQQQQI4x", 0, 0, 0, none, none, 0)


def _sectors(_: Volume) -> bytes:
    return struct.pack("<IIIIIII", 512, 4096, 4096, 4096, 0x3, 0, 0)


def _object_id(volume: Volume) -> bytes:
    return struct.pack("<QQ48x", volume.serial, 0)


def _posix_volume(volume: Volume) -> bytes:
    return posix.encode_space(volume.space, volume.serial)


VOLUME_LEVELS: Final[dict[int, tuple[Callable[[Volume], bytes], int]]] = {
    1: (_volume, 24),
    3: (_size, 24),
    4: (_device, 8),
    5: (_abilities, 16),
    6: (_quota, 48),
    7: (_full_size, 32),
    8: (_object_id, 64),
    11: (_sectors, 28),
    posix.LEVEL: (_posix_volume, 56),
}


class BasicChange(NamedTuple):
    """FILETIMEs, where 0 and -1 leave a time as it is."""

    created: int
    accessed: int
    written: int
    changed: int
    attributes: int


class RenameWish(NamedTuple):
    replace: bool
    path: str


# [MS-FSCC] 2.4.7
def decode_basic(data: memoryview) -> BasicChange:
    cursor = Cursor(data)
    return BasicChange(cursor.u64(), cursor.u64(), cursor.u64(), cursor.u64(), cursor.u32())


# [MS-FSCC] 2.4.42.2, and the same for links in 2.4.27.2
def decode_rename(data: memoryview) -> RenameWish:
    cursor = Cursor(data)
    replace = cursor.u8()
    cursor.skip(7)
    if cursor.u64():
        raise ProtocolError("a rename relative to a directory")
    length = cursor.u32()
    if length % 2:
        raise ProtocolError("a name of half a character")
    return RenameWish(bool(replace), decode_text(cursor.take(length)))


# [MS-FSCC] 2.4.15.1
LARGEST_VALUE: Final = 0xFFFF
"""Bytes of an attribute that can be told; the host's may have one more (xattr(7))."""


def encode_attributes(pairs: list[tuple[str, bytes]]) -> bytes:
    """Extended attributes, none larger than `LARGEST_VALUE`; the last has no offset to a next."""
    parts: list[bytes] = []
    for index, (name, value) in enumerate(pairs):
        text = name.encode("utf-8", "replace")[:255]
        length = 4 + 4 + len(text) + 1 + len(value)
        is_last = index == len(pairs) - 1
        fill = 0 if is_last else pad(length, 4)
        following = 0 if is_last else length + fill
        parts.append(struct.pack("<IBBH", following, 0, len(text), len(value)) + text + b"\0")
        parts += [value, bytes(fill)]
    return b"".join(parts)


def decode_attributes(data: memoryview) -> list[tuple[str, bytes]]:
    pairs: list[tuple[str, bytes]] = []
    while True:
        cursor = Cursor(data)
        following = cursor.u32()
        cursor.u8()
        length, size = cursor.u8(), cursor.u16()
        try:
            name = str(cursor.take(length), "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("an attribute's name is no text") from None
        cursor.skip(1)
        if not name or "\0" in name:
            raise ProtocolError("an attribute without a name")
        pairs.append((name, bytes(cursor.take(size))))
        if not following:
            return pairs
        if following < 8 or following > len(data) or len(pairs) > 256:
            raise ProtocolError("the next attribute lies nowhere")
        data = data[following:]

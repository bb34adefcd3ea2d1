"""Security descriptors, in which Windows clients describe who may do what ([MS-DTYP] 2.4.4 to
2.4.6).

Unix files cannot store them. The server remembers a descriptor that a client sets for as long as it
runs, and applies it by [MS-DTYP] 2.5.3.2. There is one user. A descriptor only takes rights away:
the limits of the share and of the host still apply.
"""

import os
import struct

from quicksand_smb import posix
from quicksand_smb.access_rights import ALL_ACCESS, READ_CONTROL, WRITE_DAC
from quicksand_smb.minimal_stdlib import Final, NamedTuple
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store_types import FileKind, Stat
from quicksand_smb.wire import Cursor, ProtocolError

OWNER: Final = 1
GROUP: Final = 2
DACL: Final = 4
LARGEST: Final = 4096
"""The largest descriptor in bytes. Up to 4096 files may have one."""

_GENERIC: Final = (
    (0x10000000, ALL_ACCESS),
    (0x20000000, 0x1200A0),
    (0x40000000, 0x120116),
    (0x80000000, 0x120089),
)

# Of an entry, [MS-DTYP] 2.4.4.1
_ALLOWS, _DENIES = 0, 1
_OBJECT, _CONTAINER, _NO_PROPAGATE, _ONLY_INHERITED, _WAS_INHERITED = 1, 2, 4, 8, 0x10
# Of a descriptor, [MS-DTYP] 2.4.6
_HAS_DACL, _AUTO_INHERITED, _PROTECTED, _SELF_RELATIVE = 0x4, 0x400, 0x1000, 0x8000
_KEPT: Final = _AUTO_INHERITED | _PROTECTED

_DESCRIPTOR: Final = struct.Struct("<BBHIIII")
_ACL: Final = struct.Struct("<BBHHH")
_ACE: Final = struct.Struct("<BBH")

EVERYBODY: Final = posix.sid(1, 0)
_CREATOR_OWNER: Final = posix.sid(3, 0)
_CREATOR_GROUP: Final = posix.sid(3, 1)
_OWNER_RIGHTS: Final = posix.sid(3, 4)
_GROUPS: Final = (EVERYBODY, posix.sid(5, 2), posix.sid(5, 11))
"""The groups of the user: everyone, users of the network, and authenticated users."""


class Entry(NamedTuple):
    kind: int
    flags: int
    mask: int
    who: bytes


class Descriptor(NamedTuple):
    control: int
    owner: bytes
    group: bytes
    entries: tuple[Entry, ...] | None
    """None means that there is no list and everything is allowed."""


def user() -> bytes:
    """Return the SID of the user who is logged in, who owns every file that the server makes."""
    return posix.owner_sid(os.getuid())


def of_file(stat: Stat) -> Descriptor:
    """Return the default descriptor of a file, which allows everything to everyone."""
    everything = Entry(_ALLOWS, 0, ALL_ACCESS, EVERYBODY)
    return Descriptor(0, posix.owner_sid(stat.uid), posix.group_sid(stat.gid), (everything,))


def decode(data: bytes | memoryview) -> Descriptor:
    """Decode a self-relative descriptor ([MS-DTYP] 2.4.6). Raises ProtocolError, and Refusal if it
    is too large."""
    if len(data) > LARGEST:
        raise Refusal(Status.INSUFFICIENT_RESOURCES)
    return read_back(data)


def read_back(data: bytes | memoryview) -> Descriptor:
    """Decode a descriptor that `encode` has made. It may be larger than `LARGEST`, since owners are
    added and inherited entries are stored twice."""
    cursor = Cursor(data)
    _, _, control, owner, group, _, dacl = cursor.fields(_DESCRIPTOR)
    entries: list[Entry] | None = None
    if control & _HAS_DACL and dacl:
        cursor.at = dacl
        _, _, _, count, _ = cursor.fields(_ACL)
        entries = []
        for _ in range(count):
            kind, flags, size = cursor.fields(_ACE)
            entry = Cursor(cursor.take(size - 4))
            entries.append(Entry(kind, flags, _specific(entry.u32()), _decode_sid(entry)))
    return Descriptor(
        control & (_KEPT | _HAS_DACL),
        _sid_at(cursor, owner),
        _sid_at(cursor, group),
        tuple(entries) if entries is not None else None,
    )


def _sid_at(cursor: Cursor, at: int) -> bytes:
    if not at:
        return b""
    cursor.at = at
    return _decode_sid(cursor)


def _decode_sid(cursor: Cursor) -> bytes:
    start = bytes(cursor.take(8))
    if start[0] != 1 or start[1] > 15:
        raise ProtocolError("no security identifier")
    return start + bytes(cursor.take(4 * start[1]))


def _specific(mask: int) -> int:
    found = mask & 0x0FFFFFFF
    for generic, meaning in _GENERIC:
        if mask & generic:
            found |= meaning
    return found


def encode(found: Descriptor, wanted: int) -> bytes:
    """Encode the parts that the bits of `wanted` name."""
    owner = found.owner if wanted & OWNER else b""
    group = found.group if wanted & GROUP else b""
    acl = b""
    control = _SELF_RELATIVE | found.control & _KEPT
    if wanted & DACL:
        control |= _HAS_DACL
        if found.entries is not None:
            listed = b"".join(
                _ACE.pack(one.kind, one.flags, 8 + len(one.who))
                + one.mask.to_bytes(4, "little")
                + one.who
                for one in found.entries
            )
            acl = _ACL.pack(2, 0, 8 + len(listed), len(found.entries), 0) + listed
    at = [20, 20 + len(owner), 20 + len(owner) + len(group)]
    return (
        _DESCRIPTOR.pack(
            1, 0, control, at[0] if owner else 0, at[1] if group else 0, 0, at[2] if acl else 0
        )
        + owner
        + group
        + acl
    )


def changed(old: Descriptor, new: Descriptor, which: int) -> Descriptor:
    """Return `old` with the parts of `new` that the bits of `which` name."""
    return Descriptor(
        new.control if which & DACL else old.control,
        new.owner or old.owner if which & OWNER else old.owner,
        new.group or old.group if which & GROUP else old.group,
        new.entries if which & DACL else old.entries,
    )


def allowed(found: Descriptor) -> int:
    """Return the access mask that the descriptor grants to the user."""
    if found.entries is None:
        return ALL_ACCESS
    me = {user(), *_GROUPS, found.group}
    granted = denied = 0
    owns = found.owner == user()
    says_what_owners_may = any(one.who == _OWNER_RIGHTS for one in found.entries)
    for one in found.entries:
        applies = one.who in me or (owns and one.who == _OWNER_RIGHTS)
        if one.flags & _ONLY_INHERITED or not applies:
            continue
        if one.kind == _ALLOWS:
            granted |= one.mask & ~denied
        elif one.kind == _DENIES:
            denied |= one.mask & ~granted
    if owns and not says_what_owners_may:
        granted |= READ_CONTROL | WRITE_DAC
    return granted & ALL_ACCESS


def inherited(parent: Descriptor, stat: Stat) -> Descriptor | None:
    """Return the descriptor that a new file inherits from its directory ([MS-DTYP] 2.5.3.4), or
    None if it inherits no entry."""
    found: list[Entry] = []
    owner, group = user(), posix.group_sid(stat.gid)
    is_directory = stat.kind is FileKind.DIRECTORY
    mark = _WAS_INHERITED if parent.control & _AUTO_INHERITED else 0
    for one in parent.entries or ():
        reaches = one.flags & (_CONTAINER if is_directory else _OBJECT)
        passes = is_directory and one.flags & (_OBJECT | _CONTAINER)
        passes = passes and not one.flags & _NO_PROPAGATE
        onward = one.flags & (_OBJECT | _CONTAINER) if passes else 0
        stands_for = {_CREATOR_OWNER: owner, _CREATOR_GROUP: group}.get(one.who)
        if reaches and stands_for is not None:
            found.append(one._replace(flags=mark, who=stands_for))
            if onward:
                found.append(one._replace(flags=onward | _ONLY_INHERITED | mark))
        elif reaches:
            found.append(one._replace(flags=onward | mark))
        elif onward:
            found.append(one._replace(flags=onward | _ONLY_INHERITED | mark))
    if not found:
        return None
    control = _HAS_DACL | parent.control & _AUTO_INHERITED
    return Descriptor(control, owner, group, tuple(found))


_MODE: Final = posix.sid(5, 88, 3)[8:]
"""The SID prefix S-1-5-88-3. A Unix mode follows it."""


def of_posix(stat: Stat) -> Descriptor:
    """Return the descriptor for a client with POSIX extensions: it carries the file's mode
    (`modefromsid`) and allows everything, since the server checks the rest. Linux asks for it after
    it has made a file, because it would otherwise guess the mode until its next look
    (fs/smb/client/dir.c, cifs_do_create)."""
    sids = posix.seen_owners(stat)
    mode = Entry(_DENIES, 0, 0, posix.sid(5, 88, 3, stat.mode & 0o7777))
    everything = Entry(_ALLOWS, 0, ALL_ACCESS, EVERYBODY)
    return Descriptor(0, sids[:16], sids[16:], (mode, everything))


def mode_of(found: Descriptor) -> int | None:
    """Return the mode that a Linux client has put into the list (`modefromsid`), or None."""
    mode = None
    for one in found.entries or ():
        if one.who[:2] == b"\1\3" and one.who[8:16] == _MODE and len(one.who) >= 20:
            mode = posix.decode_create(one.who[16:20])
    return None if mode == posix.NO_MODE else mode

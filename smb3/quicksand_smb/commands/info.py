"""QUERY_INFO and SET_INFO ([MS-SMB2] 3.3.5.20, 3.3.5.21)."""

from quicksand_smb import access, fscc, leases, notify, posix, streams
from quicksand_smb.commands.directory import is_empty
from quicksand_smb.commands.granting import HeldUp, wait_for_grants
from quicksand_smb.commands.opening import parse
from quicksand_smb.hostwrites import Sizing
from quicksand_smb.messages import query as wire
from quicksand_smb.names import to_wire
from quicksand_smb.reasons import Reason, StoreError
from quicksand_smb.request import Pending, Reply, Request
from quicksand_smb.shares import (
    APPEND_DATA,
    DELETE,
    READ_CONTROL,
    READ_EA,
    SHARE_READ,
    SHARE_WRITE,
    WRITE_ATTRIBUTES,
    WRITE_DAC,
    WRITE_DATA,
    WRITE_EA,
    WRITE_OWNER,
    Handle,
)
from quicksand_smb.status import Refusal, Status
from quicksand_smb.values import Kind
from quicksand_smb.wire import Cursor, encode_text, from_filetime

LARGEST_CHANGE = 72 << 10
"""Bytes: a name, a descriptor or all attributes of a file have 64 KiB."""
_UNCHANGED = (0, (1 << 64) - 1, (1 << 64) - 2)
EXTENDED_ATTRIBUTES = 15
ALL = 18
SHORT_NAME = 21
STREAMS = 22
_SIZED = (ALL, 34, 100)
"""Levels whose size Linux takes for that of the file (`cifs_fattr_to_inode`)."""


def query_info(request: Request) -> Reply:
    wanted = wire.decode_query(request.message)
    request.check_payload(max(wanted.most, len(wanted.input)))
    handle = request.handle(wanted.file_id)
    if wanted.kind == wire.FILE:
        output, least = _query_file(request, handle, wanted)
    elif wanted.kind == wire.FILESYSTEM:
        output, least = _query_volume(request, handle, wanted.level)
    elif wanted.kind == wire.SECURITY:
        if wanted.additional & (access.OWNER | access.GROUP | access.DACL):
            handle.need(READ_CONTROL)
        stat = handle.node.stat()
        found = handle.share.security_of(stat)
        if found is None:
            found = access.of_posix(stat) if handle.is_posix else access.of_file(stat)
        output = access.encode(found, wanted.additional)
        if len(output) > wanted.most:
            raise Refusal(Status.BUFFER_TOO_SMALL, len(output).to_bytes(4, "little"))
        least = 0
    else:
        raise Refusal(Status.INVALID_PARAMETER)
    if wanted.most < least:
        raise Refusal(Status.INFO_LENGTH_MISMATCH)
    if len(output) > wanted.most:
        return Reply(wire.encode_output(output[: wanted.most]), Status.BUFFER_OVERFLOW)
    return Reply(wire.encode_output(output))


def _query_file(request: Request, handle: Handle, wanted: wire.QueryRequest) -> tuple[bytes, int]:
    if wanted.level == EXTENDED_ATTRIBUTES:
        handle.need(READ_EA)
        pairs = _attributes(handle, wanted.most)
        if not pairs:
            raise Refusal(Status.NO_EAS_ON_FILE)
        return fscc.encode_attributes(pairs), 0
    if wanted.level == SHORT_NAME:
        return _short_name(handle), 8
    if wanted.level == STREAMS:
        return _streams(handle), 32
    level = fscc.FILE_LEVELS.get(wanted.level)
    if level is None or (wanted.level == 100 and not request.connection.has_posix):
        raise Refusal(Status.INVALID_INFO_CLASS)
    if level.access:
        handle.need(level.access)
    view = request.chain.view(handle)
    if handle.file.guard is not None and wanted.level in _SIZED:
        handle.file.guard.told(view.stat.size)
    if handle.is_posix and wanted.level in (ALL, posix.LEVEL):
        # Linux asks so at a seek to the end and for a mapping (`cifs_get_file_info` in
        # fs/smb/client/inode.c), and then believes in the mode that its mounts have for all files.
        is_plain = wanted.level == ALL and request.is_alone
        handle.file.is_misjudged = is_plain and handle.node.kind is Kind.FILE
    if wanted.level in (ALL, 48):
        names = handle.share.store.told_name(handle.node) or ()
        view.path = "\\" + "\\".join([to_wire(name, posix=handle.is_posix) for name in names])
    view.access = handle.access
    view.position = handle.position
    view.mode = handle.mode
    view.is_deleted = handle.file.to_delete or handle.deletes
    return level.encode(view), level.least


def _attributes(handle: Handle, most: int) -> list[tuple[str, bytes]]:
    """A file's extended attributes, no more than are more than fit into `most` bytes. One that the
    protocol has no length for is left out, and not the others with it."""
    pairs: list[tuple[str, bytes]] = []
    for name in handle.node.attributes():
        if streams.is_stream(name):
            continue
        try:
            value = handle.node.attribute(name)
        except StoreError as error:
            if error.reason is Reason.NOT_FOUND:  # the host has just removed it
                continue
            raise
        if len(value) <= fscc.LARGEST_VALUE:
            pairs.append((name, value))
            most -= len(value)
        if most < 0:
            break
    return pairs


def _streams(handle: Handle) -> bytes:
    """The file's own data, and its named streams."""
    node = handle.node
    found = []
    base = node._base if isinstance(node, streams.StreamNode) else node
    if base.kind is Kind.FILE:
        view = handle.share.view(base.stat())
        found.append(("::$DATA", view.stat.size, view.allocated))
    for name in streams.names_of(base):
        size = streams.StreamNode(base, name).stat().size
        found.append((f":{name}:$DATA", size, size))
    return fscc.encode_streams(found)


def _short_name(handle: Handle) -> bytes:
    """[MS-FSCC] 2.4.5: a name for DOS have only those that fit there as they are."""
    name = (handle.names() or ("",))[-1]
    stem, _, extension = name.partition(".")
    if not name.isascii() or len(stem) > 8 or len(extension) > 3 or "." in extension:
        raise Refusal(Status.OBJECT_NAME_NOT_FOUND)
    text = encode_text(name)
    return len(text).to_bytes(4, "little") + text


def _query_volume(request: Request, handle: Handle, level: int) -> tuple[bytes, int]:
    found = fscc.VOLUME_LEVELS.get(level)
    if found is None or (level == 100 and not request.connection.has_posix):
        raise Refusal(Status.INVALID_INFO_CLASS)
    encode, least = found
    share = handle.share
    volume = fscc.Volume(share.store.space(), share.name, share.serial, share.is_read_only)
    return encode(volume), least


def set_info(request: Request) -> Reply | Pending:
    wanted = wire.decode_set(request.message)
    request.check_payload(len(wanted.input))
    handle = request.handle(wanted.file_id)
    if handle.share.host_changes is not None and _is_touch(handle, wanted):
        return Reply(wire.SET_RESPONSE)
    handle.need_writable_share()
    handle.share.touched(handle)
    if wanted.kind == wire.SECURITY:
        _set_security(handle, wanted)
        return Reply(wire.SET_RESPONSE)
    if wanted.kind != wire.FILE:
        raise Refusal(Status.NOT_SUPPORTED)
    change = _CHANGES.get(wanted.level)
    if change is None:
        raise Refusal(Status.INVALID_INFO_CLASS)
    if wanted.level not in _MOVING or not handle.file.grants:
        change(request, handle, wanted.input)
        return Reply(wire.SET_RESPONSE)
    if len(wanted.input) > LARGEST_CHANGE:
        raise Refusal(Status.INVALID_PARAMETER)
    data = bytes(wanted.input)

    def run() -> Reply:
        """As soon as nobody keeps the file open who need not."""
        if leases.ask_handles(handle.file, handle.grant):
            raise HeldUp(handle.file)
        change(request, request.handle(wanted.file_id), memoryview(data))
        return Reply(wire.SET_RESPONSE)

    try:
        return run()
    except HeldUp:
        return wait_for_grants(request, handle.file, run)


def _is_touch(handle: Handle, wanted: wire.SetRequest) -> bool:
    """Whether this only raises an event in the guest (changes.py): the file is as it is to be."""
    if (wanted.kind, wanted.level) != (wire.FILE, 4) or handle.share.host_changes is None:
        return False
    change = fscc.decode_basic(wanted.input)
    if change.accessed not in _UNCHANGED or change.created not in _UNCHANGED:
        return False
    return handle.share.host_changes.is_touch(handle.node.stat(), change.written)


def _set_security(handle: Handle, wanted: wire.SetRequest) -> None:
    """[MS-SMB2] 3.3.5.21.3."""
    which = wanted.additional
    if which & ~(access.OWNER | access.GROUP | access.DACL):
        raise Refusal(Status.ACCESS_DENIED)  # lists of audits are for those with a privilege
    if which & access.DACL:
        handle.need(WRITE_DAC)
    if which & (access.OWNER | access.GROUP):
        handle.need(WRITE_OWNER)
    said = access.decode(wanted.input)
    mode = access.mode_of(said)
    if mode is not None and handle.node.kind is not Kind.SYMLINK:
        handle.node.set_mode(mode)
    if mode is not None or handle.is_posix:
        return  # a guest's owners are not the host's: chown is agreed to, and does nothing
    stat = handle.node.stat()
    now = handle.share.security_of(stat) or access.of_file(stat)
    handle.share.protect(stat, access.changed(now, said, which))


def _set_basic(_: Request, handle: Handle, data: memoryview) -> None:
    handle.need(WRITE_ATTRIBUTES)
    change = fscc.decode_basic(data)
    node = handle.node
    accessed = None if change.accessed in _UNCHANGED else from_filetime(change.accessed)
    written = None if change.written in _UNCHANGED else from_filetime(change.written)
    if any(value >> 63 and value not in _UNCHANGED for value in change[:4]):
        raise Refusal(Status.INVALID_PARAMETER)
    stat = node.stat()
    share = handle.share
    keeps_change = change.changed in _UNCHANGED and share.has_given_change(stat)
    if change.created not in _UNCHANGED:
        handle.share.remember(stat).born_ns = from_filetime(change.created)
    if change.attributes:
        if change.attributes & (fscc.TEMPORARY if node.kind is Kind.DIRECTORY else fscc.DIRECTORY):
            raise Refusal(Status.INVALID_PARAMETER)
        kept = change.attributes & fscc.KEPT
        if node.kind is Kind.DIRECTORY:
            kept |= change.attributes & fscc.READ_ONLY  # which means little there, and no mode
        if kept != handle.share.attributes(stat) & (fscc.KEPT | fscc.READ_ONLY):
            handle.share.remember(stat).attributes = kept
        if node.kind is Kind.FILE:
            _set_read_only(handle, stat.mode, bool(change.attributes & fscc.READ_ONLY))
    if accessed is not None or written is not None:
        with Sizing(handle.file.guard, node):
            node.set_times(accessed_ns=accessed, written_ns=written)
    if change.changed not in _UNCHANGED:
        share.remember(stat).changed_ns = from_filetime(change.changed)
    if keeps_change or change.changed not in _UNCHANGED:
        # What was done here has changed it once more.
        share.remember(stat).as_of_ns = node.stat().changed_ns
    _tell(handle, notify.MODIFIED, notify.ATTRIBUTES | notify.LAST_WRITE)


def _set_read_only(handle: Handle, mode: int, wanted: bool) -> None:
    if wanted and mode & 0o222:
        handle.node.set_mode(mode & ~0o222)
    elif not wanted and not mode & 0o222:
        handle.node.set_mode(mode | 0o200)


def _tell(handle: Handle, action: int, kind: int) -> None:
    if handle.share.watches and (names := handle.share.store.where(handle.node)):
        notify.tell(handle.share.watches, names, action, kind)


def _rename(_: Request, handle: Handle, data: memoryview) -> None:
    handle.need(DELETE)
    wanted = fscc.decode_rename(data)
    share = handle.share
    if isinstance(handle.node, streams.StreamNode) or wanted.path.startswith(":"):
        _rename_stream(handle, wanted)
        return
    old = handle.names()
    new = parse(wanted.path, is_posix=handle.is_posix)
    if not new or not old:
        raise Refusal(Status.INVALID_PARAMETER)
    if old == new:
        return
    if not handle.is_posix:
        _check_children(handle)
        _check_parent(handle, new[:-1])
        _check_target(handle, new, wanted.replace)
    try:
        share.store.rename(old, new, replace=wanted.replace, same_as=handle.node.stat())
    except StoreError as error:
        if error.reason is Reason.DENIED and share.store.may_remove(new):
            # A Linux client that is told ACCESS_DENIED deletes the target and tries again.
            raise Refusal(Status.MEDIA_WRITE_PROTECTED) from error
        raise
    if handle.is_directory:
        share.numbering.renamed("/".join(old), "/".join(new))
    for names in (old, new):
        share.kept.changed_in(names[:-1])
        share.kept.moved(names)
    if share.watches:
        kind = notify.DIR_NAME if handle.is_directory else notify.FILE_NAME
        notify.tell_rename(share.watches, old, new, kind)


def _rename_stream(handle: Handle, wanted: fscc.RenameWish) -> None:
    """Only to another stream of the same file."""
    node = handle.node
    if not isinstance(node, streams.StreamNode) or not wanted.path.startswith(":"):
        raise Refusal(Status.INVALID_PARAMETER)
    _, name = streams.split("x" + wanted.path)
    there = streams.find(node, name)
    if not name or (there and not wanted.replace and there != node.name):
        raise Refusal(Status.OBJECT_NAME_COLLISION if name else Status.INVALID_PARAMETER)
    share = handle.share
    if share.file_of(node.stat(), name) not in (None, handle.file):
        raise Refusal(Status.ACCESS_DENIED)
    node.rename(name)
    del share.files[handle.file.key]
    handle.file.rename_stream(name)
    share.files[handle.file.key] = handle.file


def _check_children(handle: Handle) -> None:
    """Windows renames no directory in which something is open."""
    if handle.is_directory and handle.share.store.is_open_below(handle.names()):
        raise Refusal(Status.ACCESS_DENIED)


def _check_parent(handle: Handle, parent: tuple[str, ...]) -> None:
    """For Windows a rename opens the directory it goes to, and the sharing of that counts."""
    file = handle.share.file_of(handle.share.store.look(parent))
    if file is not None:
        file.check_sharing(WRITE_DATA, SHARE_READ | SHARE_WRITE)


def _check_target(handle: Handle, new: tuple[str, ...], replace: bool) -> None:
    """Windows replaces nothing that is open, and no directory."""
    try:
        target = handle.share.store.look(new)
    except StoreError as error:
        if error.reason is Reason.NOT_FOUND:
            return
        raise
    if target.same_file(handle.node.stat()):
        return
    if not replace:
        raise Refusal(Status.OBJECT_NAME_COLLISION)
    file = handle.share.file_of(target)
    if target.kind is Kind.DIRECTORY or (file is not None and file.handles):
        raise Refusal(Status.ACCESS_DENIED)


def _link(_: Request, handle: Handle, data: memoryview) -> None:
    wanted = fscc.decode_rename(data)
    new = parse(wanted.path, is_posix=handle.is_posix)
    if not new:
        raise Refusal(Status.INVALID_PARAMETER)
    if handle.is_directory:
        raise Refusal(Status.FILE_IS_A_DIRECTORY)
    stat = handle.node.stat()
    handle.share.store.link(handle.names(), new, replace=wanted.replace, same_as=stat)
    handle.share.changed(new)


def _dispose(request: Request, handle: Handle, data: memoryview) -> None:
    _mark_deleted(request, handle, bool(Cursor(data).u8()))


def _dispose_posix(request: Request, handle: Handle, data: memoryview) -> None:
    """[MS-FSCC] 2.4.12: flags in place of a truth value."""
    _mark_deleted(request, handle, bool(Cursor(data).u32() & 1))


def _mark_deleted(request: Request, handle: Handle, wanted: bool) -> None:
    handle.need(DELETE)
    if not wanted:
        handle.file.to_delete = handle.deletes = False
        return
    if not handle.names():
        raise Refusal(Status.CANNOT_DELETE)
    stat = handle.node.stat()
    if not request.connection.deletes_at_once and handle.share.attributes(stat) & fscc.READ_ONLY:
        raise Refusal(Status.CANNOT_DELETE)
    if handle.is_directory and not is_empty(handle):
        raise Refusal(Status.DIRECTORY_NOT_EMPTY)
    if request.connection.deletes_at_once:
        handle.deletes = True
    else:
        handle.file.to_delete = True
        handle.file.end_watches()


def _set_position(_: Request, handle: Handle, data: memoryview) -> None:
    handle.position = Cursor(data).u64()


def _set_mode(_: Request, handle: Handle, data: memoryview) -> None:
    """[MS-FSCC] 2.4.31."""
    mode = Cursor(data).u32()
    if mode & ~0x103E:
        raise Refusal(Status.INVALID_PARAMETER)
    handle.mode = mode & 0x3E


def _set_attributes(_: Request, handle: Handle, data: memoryview) -> None:
    handle.need(WRITE_EA)
    for name, value in fscc.decode_attributes(data):
        if value:
            handle.node.set_attribute(name, value)
        else:
            _remove_attribute(handle, name)


def _remove_attribute(handle: Handle, name: str) -> None:
    try:
        handle.node.remove_attribute(name)
    except StoreError as error:
        if error.reason is not Reason.NOT_FOUND:
            raise


def _set_allocation(_: Request, handle: Handle, data: memoryview) -> None:
    handle.need(WRITE_DATA | APPEND_DATA)
    size = Cursor(data).u64()
    handle.share.changes(handle)
    now = handle.node.stat().size
    if size < now:
        with Sizing(handle.guard, handle.node, is_set=True):
            handle.node.resize(size)
    elif size > now:
        try:
            handle.node.allocate(now, size - now, keep_size=True)
        except StoreError as error:
            if error.reason is not Reason.UNSUPPORTED:
                raise


def _set_end(_: Request, handle: Handle, data: memoryview) -> None:
    handle.need(WRITE_DATA | APPEND_DATA)
    handle.share.changes(handle)
    with Sizing(handle.guard, handle.node, is_set=True):
        handle.node.resize(Cursor(data).u64())
    _tell(handle, notify.MODIFIED, notify.SIZE)


_MOVING = (10, 13, 64)
"""Changes of a name."""
_CHANGES = {
    4: _set_basic,
    10: _rename,
    11: _link,
    13: _dispose,
    14: _set_position,
    EXTENDED_ATTRIBUTES: _set_attributes,
    16: _set_mode,
    19: _set_allocation,
    20: _set_end,
    64: _dispose_posix,
}

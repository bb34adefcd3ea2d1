"""SET_INFO ([MS-SMB2] 3.3.5.21)."""

from quicksand_smb import access, fscc, leases, notify, streams
from quicksand_smb.access_rights import (
    APPEND_DATA,
    DELETE,
    SHARE_READ,
    SHARE_WRITE,
    WRITE_ATTRIBUTES,
    WRITE_DAC,
    WRITE_DATA,
    WRITE_EA,
    WRITE_OWNER,
)
from quicksand_smb.commands.directory import is_empty
from quicksand_smb.commands.lease_grants import MustWait, wait_for_breaks
from quicksand_smb.commands.open_plan import parse
from quicksand_smb.connection import Reply
from quicksand_smb.conversation import Pending
from quicksand_smb.host_writes import SizeChange
from quicksand_smb.messages import query as wire
from quicksand_smb.request import Request
from quicksand_smb.shares import Handle
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import FileKind
from quicksand_smb.wire import Cursor, from_filetime

LARGEST_CHANGE = 72 << 10
"""The largest change in bytes. A name, a descriptor and a file's attributes have at most 64 KiB
each."""
_UNCHANGED = (0, (1 << 64) - 1, (1 << 64) - 2)
EXTENDED_ATTRIBUTES = 15


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
        """Make the change once no client holds the file open without need."""
        if leases.break_handle_caching(handle.file, handle.grant):
            raise MustWait(handle.file)
        change(request, request.handle(wanted.file_id), memoryview(data))
        return Reply(wire.SET_RESPONSE)

    try:
        return run()
    except MustWait:
        return wait_for_breaks(request, handle.file, run)


def _is_touch(handle: Handle, wanted: wire.SetRequest) -> bool:
    """Tell whether a request changes nothing and only raises an event in the guest
    (host_changes.py)."""
    if (wanted.kind, wanted.level) != (wire.FILE, 4) or handle.share.host_changes is None:
        return False
    change = fscc.decode_basic(wanted.input)
    if change.accessed not in _UNCHANGED or change.created not in _UNCHANGED:
        return False
    return handle.share.host_changes.is_touch(handle.node.stat(), change.written)


def _set_security(handle: Handle, wanted: wire.SetRequest) -> None:
    """Set the mode or the security descriptor of a file ([MS-SMB2] 3.3.5.21.3)."""
    which = wanted.additional
    if which & ~(access.OWNER | access.GROUP | access.DACL):
        raise Refusal(Status.ACCESS_DENIED)  # audit lists require a privilege
    if which & access.DACL:
        handle.need(WRITE_DAC)
    if which & (access.OWNER | access.GROUP):
        handle.need(WRITE_OWNER)
    said = access.decode(wanted.input)
    mode = access.mode_of(said)
    if mode is not None and handle.node.kind is not FileKind.SYMLINK:
        handle.node.set_mode(mode)
    if mode is not None or handle.is_posix:
        return  # chown succeeds and does nothing, since the guest's owners are not the host's
    stat = handle.node.stat()
    now = handle.share.metadata.security_of(stat) or access.of_file(stat)
    handle.share.metadata.protect(stat, access.changed(now, said, which))


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
    keeps_change = change.changed in _UNCHANGED and share.metadata.has_given_change(stat)
    if change.created not in _UNCHANGED:
        handle.share.metadata.remember(stat).born_ns = from_filetime(change.created)
    if change.attributes:
        if change.attributes & (
            fscc.TEMPORARY if node.kind is FileKind.DIRECTORY else fscc.DIRECTORY
        ):
            raise Refusal(Status.INVALID_PARAMETER)
        kept = change.attributes & fscc.KEPT
        if node.kind is FileKind.DIRECTORY:
            kept |= change.attributes & fscc.READ_ONLY  # it does not become a mode there
        if kept != handle.share.metadata.attributes(stat) & (fscc.KEPT | fscc.READ_ONLY):
            handle.share.metadata.remember(stat).attributes = kept
        if node.kind is FileKind.FILE:
            _set_read_only(handle, stat.mode, bool(change.attributes & fscc.READ_ONLY))
    if accessed is not None or written is not None:
        with SizeChange(handle.file.guard, node):
            node.set_times(accessed_ns=accessed, written_ns=written)
    if change.changed not in _UNCHANGED:
        share.metadata.remember(stat).changed_ns = from_filetime(change.changed)
    if keeps_change or change.changed not in _UNCHANGED:
        # The changes above have changed this time again.
        share.metadata.remember(stat).as_of_ns = node.stat().changed_ns
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
        share.directory_numbers.renamed("/".join(old), "/".join(new))
    for names in (old, new):
        share.directory_leases.changed_in(names[:-1])
        share.directory_leases.moved(names)
    if share.watches:
        kind = notify.DIR_NAME if handle.is_directory else notify.FILE_NAME
        notify.tell_rename(share.watches, old, new, kind)


def _rename_stream(handle: Handle, wanted: fscc.RenameRequest) -> None:
    """Rename a stream. The new name must be a stream of the same file."""
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
    """Refuse to rename a directory in which a file is open, as Windows does."""
    if handle.is_directory and handle.share.store.is_open_below(handle.names()):
        raise Refusal(Status.ACCESS_DENIED)


def _check_parent(handle: Handle, parent: tuple[str, ...]) -> None:
    """Check the sharing of the target directory, since Windows opens it for a rename."""
    file = handle.share.file_of(handle.share.store.look(parent))
    if file is not None:
        file.check_sharing(WRITE_DATA, SHARE_READ | SHARE_WRITE)


def _check_target(handle: Handle, new: tuple[str, ...], replace: bool) -> None:
    """Refuse to replace an open file or a directory, as Windows does."""
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
    if target.kind is FileKind.DIRECTORY or (file is not None and file.handles):
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
    """Decode the flags with which POSIX clients delete ([MS-FSCC] 2.4.12)."""
    _mark_deleted(request, handle, bool(Cursor(data).u32() & 1))


def _mark_deleted(request: Request, handle: Handle, wanted: bool) -> None:
    handle.need(DELETE)
    if not wanted:
        handle.file.to_delete = handle.deletes = False
        return
    if not handle.names():
        raise Refusal(Status.CANNOT_DELETE)
    stat = handle.node.stat()
    is_read_only = handle.share.metadata.attributes(stat) & fscc.READ_ONLY
    if is_read_only and not request.connection.deletes_at_once:
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
    """Set the mode of the handle ([MS-FSCC] 2.4.31)."""
    mode = Cursor(data).u32()
    if mode & ~0x103E:
        raise Refusal(Status.INVALID_PARAMETER)
    handle.mode = mode & 0x3E


def _set_attributes(_: Request, handle: Handle, data: memoryview) -> None:
    handle.need(WRITE_EA)
    for name, value in fscc.decode_attributes(data):
        if value or not _has_removed(handle, name):
            handle.node.set_attribute(name, value)


def _has_removed(handle: Handle, name: str) -> bool:
    """Remove an attribute, which an empty value means. Returns False if it is to be made empty:
    Linux asks before it removes one, and sends nothing if there is none (`smb2_set_ea` in
    fs/smb/client/smb2ops.c)."""
    try:
        handle.node.remove_attribute(name)
    except StoreError as error:
        if error.reason is not Reason.NOT_FOUND:
            raise
        return not handle.is_posix
    return True


def _set_allocation(_: Request, handle: Handle, data: memoryview) -> None:
    handle.need(WRITE_DATA | APPEND_DATA)
    size = Cursor(data).u64()
    handle.share.changes(handle)
    now = handle.node.stat().size
    if size < now:
        with SizeChange(handle.guard, handle.node, is_set=True):
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
    with SizeChange(handle.guard, handle.node, is_set=True):
        handle.node.resize(Cursor(data).u64())
    _tell(handle, notify.MODIFIED, notify.SIZE)


_MOVING = (10, 13, 64)
"""The levels that change or remove a name."""
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

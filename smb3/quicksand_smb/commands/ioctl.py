"""IOCTL: sparse files, server-side copies, reparse points, and the check of the negotiation."""

import struct

from quicksand_smb import names, posix
from quicksand_smb.access_rights import (
    APPEND_DATA,
    EXECUTE,
    READ_DATA,
    WRITE_ATTRIBUTES,
    WRITE_DATA,
)
from quicksand_smb.commands.basic import SIGNING_ENABLED
from quicksand_smb.commands.opening import reparse_symlink
from quicksand_smb.connection import Reply
from quicksand_smb.host_changes import HostChanges
from quicksand_smb.host_writes import SizeChange
from quicksand_smb.messages import ioctl as wire
from quicksand_smb.messages.ioctl import IoctlRequest
from quicksand_smb.minimal_stdlib import Callable
from quicksand_smb.request import Request
from quicksand_smb.shares import Handle
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import FileKind, OpenOptions
from quicksand_smb.wire import ProtocolError, encode_text

_LAST = (1 << 63) - 1
MOST_CHANGES = 15 << 10
"""The largest answer about changes in bytes that Linux's client passes on (CIFSMaxBufSize)."""
_RELATIVE = 1
"""The flag of a symlink record whose target is relative ([MS-FSCC] 2.1.2.4)."""


# [MS-SMB2] 3.3.5.15
def ioctl(request: Request) -> Reply:
    wanted = wire.decode_request(request.message)
    request.check_payload(max(wanted.most, len(wanted.input)))
    if not wanted.is_fsctl:
        raise Refusal(Status.NOT_SUPPORTED)
    if wanted.code == wire.VALIDATE_NEGOTIATE:
        return _validate(request, wanted)
    if wanted.code == wire.DFS_REFERRALS:
        raise Refusal(Status.FS_DRIVER_REQUIRED)
    if wanted.code in _KNOWN:
        raise Refusal(Status.NOT_SUPPORTED)
    handle = request.handle(wanted.file_id)
    run = _CODES.get(wanted.code)
    if run is None:
        raise Refusal(Status.INVALID_DEVICE_REQUEST)
    return run(request, handle, wanted)


def _reply(wanted: IoctlRequest, output: bytes = b"", status: int = Status.SUCCESS) -> Reply:
    if len(output) > wanted.most:
        raise Refusal(Status.BUFFER_TOO_SMALL)
    return Reply(wire.encode_response(wanted.code, wanted.file_id, output), status)


def _validate(request: Request, wanted: IoctlRequest) -> Reply:
    """Compare the client's view of the negotiation with the server's, and so detect a change on the
    way ([MS-SMB2] 3.3.5.15.12)."""
    connection = request.connection
    said = wire.decode_validate(wanted.input)
    negotiated = connection.negotiated
    heard = negotiated.client
    if said != (heard.capabilities, heard.client, heard.security_mode, heard.dialects):
        raise ProtocolError("the negotiation was altered")
    return _reply(
        wanted,
        wire.encode_validate(
            negotiated.capabilities, connection.server.guid, SIGNING_ENABLED, negotiated.dialect
        ),
    )


def _need_write(handle: Handle) -> None:
    handle.need_writable_share()
    if handle.is_directory:
        raise Refusal(Status.INVALID_DEVICE_REQUEST)
    handle.need(WRITE_DATA | APPEND_DATA)


def _set_sparse(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    """Set or clear the sparse attribute. Every Unix file may have holes anyway."""
    handle.need_writable_share()
    if handle.is_directory:
        raise Refusal(Status.INVALID_PARAMETER)
    handle.need(WRITE_DATA | APPEND_DATA | WRITE_ATTRIBUTES)
    kept = handle.share.metadata.remember(handle.node.stat())
    if not len(wanted.input) or wanted.input[0]:
        kept.attributes |= 0x200
    else:
        kept.attributes &= ~0x200
    return _reply(wanted)


def _set_zero(request: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    _need_write(handle)
    handle.need(WRITE_DATA)
    start, end = wire.decode_range(wanted.input)
    if start > end or end > _LAST:
        raise Refusal(Status.INVALID_PARAMETER)
    end = min(end, handle.node.stat().size)
    if handle.file.locks and handle.file.locks.forbids(handle.id, start, end - start, writing=True):
        raise Refusal(Status.FILE_LOCK_CONFLICT)
    if start < end:
        handle.share.changes(handle)
        with SizeChange(handle.guard, handle.node), request.unlocked():
            handle.node.punch(start, end - start)
    return _reply(wanted)


def _ranges(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    if handle.is_directory:
        raise Refusal(Status.INVALID_DEVICE_REQUEST)
    handle.need(READ_DATA)
    start, count = wire.decode_range(wanted.input)
    if start > _LAST or count > _LAST - start:
        raise Refusal(Status.INVALID_PARAMETER)
    count = min(count, max(handle.node.stat().size - start, 0))
    most = wanted.most // 16
    found = handle.node.ranges(start, count, at_most=min(most + 1, 1024)) if count else []
    if found and not most:
        raise Refusal(Status.BUFFER_TOO_SMALL)
    status = Status.BUFFER_OVERFLOW if len(found) > most else Status.SUCCESS
    return _reply(wanted, wire.encode_ranges(found[:most]), status)


def _resume_key(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    return _reply(wanted, struct.pack("<Q16xI", handle.id, 0) + bytes(4))


def _copy(request: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    """Copy ranges between two open files ([MS-SMB2] 3.3.5.15.6)."""
    key, chunks, fits = wire.decode_copy(wanted.input)
    if wanted.most < 12:
        raise Refusal(Status.INVALID_PARAMETER)
    if not fits:
        limits = wire.encode_copied(wire.MOST_CHUNKS, wire.LARGEST_CHUNK, wire.MOST_COPIED)
        return _reply(wanted, limits, Status.INVALID_PARAMETER)
    number = int.from_bytes(key[:8], "little")
    source = request.require_session().handles.get(number)
    if source is None or any(key[8:]):
        raise Refusal(Status.OBJECT_NAME_NOT_FOUND)
    _need_write(handle)
    if wanted.code == wire.COPY_CHUNK:
        handle.need(READ_DATA)
    source.need(READ_DATA | EXECUTE)
    if source.is_directory or source.share is not handle.share:
        raise Refusal(Status.ACCESS_DENIED)
    handle.share.changes(handle)
    size = source.node.stat().size
    total = 0
    for number, one in enumerate(chunks):
        problem = _problem(source, handle, one, size)
        if problem is not None:
            # The reply says how much was copied. Those bytes stay.
            return _reply(wanted, wire.encode_copied(number, 0, total), problem)
        with SizeChange(handle.guard, handle.node), request.unlocked():
            total += _copy_chunk(source, handle, one)
    return _reply(wanted, wire.encode_copied(len(chunks), 0, total))


def _copy_chunk(source: Handle, target: Handle, one: wire.Chunk) -> int:
    if source.file.stream and not target.file.stream:
        buffer = memoryview(bytearray(one.length))
        done = source.node.read_into(buffer, one.source)
        return target.node.write(buffer[:done], one.target)
    return target.node.copy_from(source.node, one.source, one.target, one.length)


def _problem(source: Handle, target: Handle, one: wire.Chunk, size: int) -> Status | None:
    """Return the status with which copying a chunk is refused, or None."""
    if one.target + one.length > _LAST:
        return Status.INVALID_PARAMETER
    if one.source + one.length > size:
        return Status.INVALID_VIEW_SIZE
    if source.file.locks.forbids(source.id, one.source, one.length, writing=False):
        return Status.FILE_LOCK_CONFLICT
    if target.file.locks.forbids(target.id, one.target, one.length, writing=True):
        return Status.FILE_LOCK_CONFLICT
    return None


def _duplicate(request: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    said = wire.decode_duplicate(wanted.input)
    source = request.require_session().find_handle(said.file_id, request.require_tree())
    _need_write(handle)
    source.need(READ_DATA)
    if handle.file.stream or source.file.stream:
        raise Refusal(Status.NOT_SUPPORTED)
    if max(said.source, said.target) + said.length > _LAST:
        raise Refusal(Status.INVALID_PARAMETER)
    handle.share.changes(handle)
    with SizeChange(handle.guard, handle.node), request.unlocked():
        handle.node.clone_from(source.node, said.source, said.target, said.length)
    return _reply(wanted)


def _get_reparse(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    if handle.node.kind is FileKind.SYMLINK:
        target = handle.node.read_link()
        text = encode_text(names.target_to_wire(target))
        return _reply(wanted, reparse_symlink(text, relative=not target.startswith("/")))
    tag = posix.reparse_tag(handle.node.kind)
    if not tag:
        raise Refusal(Status.NOT_A_REPARSE_POINT)
    return _reply(wanted, struct.pack("<IHH", tag, 0, 0))


def _set_reparse(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    """Turn a file that was just made into a symlink, a FIFO or a socket. Unix cannot convert one
    kind into another, so the file is removed and made anew. Linux first makes a directory for a
    symlink that leads to a directory."""
    handle.need_writable_share()
    handle.need(WRITE_DATA | 0x100)
    make = _decode_reparse(wanted.input, is_posix=handle.is_posix)
    if handle.file.stream:
        raise Refusal(Status.NOT_SUPPORTED)  # the size is the stream's and not the file's
    stat = handle.node.stat()
    is_directory = handle.node.kind is FileKind.DIRECTORY
    if not is_directory and (handle.node.kind is not FileKind.FILE or stat.size):
        raise Refusal(Status.NOT_SUPPORTED)
    where = handle.names()
    store = handle.share.store
    store.remove(where, directory=is_directory, same_as=stat)
    handle.file.is_removed = True
    if is_directory:
        handle.share.directory_numbers.removed(stat.inode, "/".join(where))
    if isinstance(make, str):
        store.symlink(make, where)
    else:
        store.make_node(where, make, stat.mode & 0o777)
    # From now on the handle stands for the new file.
    made = store.open(where, OpenOptions())[0]
    handle.share.replace(handle, made)
    handle.share.changed(where)
    return _reply(wanted)


def _decode_reparse(data: memoryview, *, is_posix: bool) -> str | FileKind:
    """Return the target of a symlink, or the kind of a special file. Reads [MS-FSCC] 2.1.2.4,
    2.1.2.6 (NFS) and the tags of the Windows Subsystem for Linux."""
    if len(data) < 8:
        raise ProtocolError("no reparse point")
    tag, size = struct.unpack_from("<IH", data)
    if tag == 0xA000000C and len(data) >= 20:
        at, length = struct.unpack_from("<HH", data, 8)
        if 20 + at + length > len(data) or length % 2:
            raise ProtocolError("a link outside its record")
        text = bytes(data[20 + at : 20 + at + length]).decode("utf-16-le", "replace")
        if not is_posix:
            text = text.replace("\\", "/")
        is_relative = data[16] & _RELATIVE
        return names.target_from_wire(text, posix=is_posix, absolute=not is_relative)
    if tag in (0x80000023, 0x80000024):
        return FileKind.SOCKET if tag == 0x80000023 else FileKind.FIFO
    if tag == 0x80000014 and size >= 8 and len(data) >= 16:
        kind = bytes(data[8:16])
        if kind == b"LNK\1\0\0\0\0":
            text = bytes(data[16 : 8 + size]).decode("utf-16-le", "replace")
            return names.target_from_wire(text, posix=is_posix)
        if kind in (b"FIFO\0\0\0\0", b"SOCK\0\0\0\0"):
            return FileKind.FIFO if kind[0] == ord("F") else FileKind.SOCKET
    raise StoreError(Reason.UNSUPPORTED)


def _object_id(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    """Return an identifier that survives a rename ([MS-FSCC] 2.1.3). It consists of device and
    inode."""
    stat = handle.node.stat()
    volume = struct.pack("<QQ", handle.share.metadata.serial, stat.device)
    own = struct.pack("<QQ", stat.inode, stat.device)
    return _reply(wanted, own + volume + own + bytes(16))


def _no_compression(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    return _reply(wanted, struct.pack("<H", 0))


def _set_compression(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    """Accept only "not compressed", which is the state of every file ([MS-FSCC] 2.3.67)."""
    handle.need(WRITE_DATA)
    if len(wanted.input) < 2:
        raise Refusal(Status.INVALID_PARAMETER)
    if int.from_bytes(wanted.input[:2], "little"):
        raise Refusal(Status.NOT_SUPPORTED)
    return _reply(wanted)


def _changes(request: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    """Tell the agent which watched files the host has changed (host_changes.py)."""
    handle.need(READ_DATA)
    share = handle.share
    if len(wanted.input) >= 16 and not any(wanted.input[8:16]):
        share.end_changes()  # nothing is watched any more
        return _reply(wanted, (1).to_bytes(8, "little"))
    if share.host_changes is None:
        server = request.connection.server
        share.host_changes = HostChanges(
            share.store, share.directory_numbers, server.ledger, server.run
        )
    return _reply(wanted, share.host_changes.ask(wanted.input, min(wanted.most, MOST_CHANGES)))


_CODES: dict[int, Callable[[Request, Handle, IoctlRequest], Reply]] = {
    wire.SET_SPARSE: _set_sparse,
    wire.SET_ZERO: _set_zero,
    wire.ALLOCATED_RANGES: _ranges,
    wire.RESUME_KEY: _resume_key,
    wire.COPY_CHUNK: _copy,
    wire.COPY_CHUNK_WRITE: _copy,
    wire.DUPLICATE_EXTENTS: _duplicate,
    wire.GET_REPARSE: _get_reparse,
    wire.SET_REPARSE: _set_reparse,
    wire.GET_COMPRESSION: _no_compression,
    wire.SET_COMPRESSION: _set_compression,
    wire.CREATE_OR_GET_OBJECT_ID: _object_id,
    wire.CHANGES: _changes,
}
_KNOWN = (
    wire.QUERY_INTERFACES,
    wire.PIPE_WAIT,
    wire.PIPE_TRANSCEIVE,
)

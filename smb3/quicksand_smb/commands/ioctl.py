"""IOCTL: holes, copies on the server, links, and the check of what was negotiated."""

import struct

from quicksand_smb import names, posix
from quicksand_smb.commands.basic import SIGNING_ENABLED
from quicksand_smb.commands.opening import reparse_symlink
from quicksand_smb.hostwrites import Sizing
from quicksand_smb.light import Callable
from quicksand_smb.messages import ioctl as wire
from quicksand_smb.messages.ioctl import IoctlRequest
from quicksand_smb.reasons import Reason, StoreError
from quicksand_smb.request import Reply, Request
from quicksand_smb.shares import (
    APPEND_DATA,
    EXECUTE,
    READ_DATA,
    WRITE_ATTRIBUTES,
    WRITE_DATA,
    Handle,
)
from quicksand_smb.status import Refusal, Status
from quicksand_smb.values import Kind, Wish
from quicksand_smb.wire import ProtocolError, encode_text

_LAST = (1 << 63) - 1
MOST_CHANGES = 15 << 10
"""Bytes of an answer about changes, as Linux's client passes on (CIFSMaxBufSize)."""
_RELATIVE = 1
"""Of a link's record: its target is not absolute ([MS-FSCC] 2.1.2.4)."""


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
    """[MS-SMB2] 3.3.5.15.12: one who altered the negotiation on its way is found out here."""
    connection = request.connection
    said = wire.decode_validate(wanted.input)
    heard = (
        connection.client_capabilities, connection.client_mode, connection.client_dialects,
    )  # fmt: skip
    is_same = said.client == connection.client_guid
    if not is_same or heard != (said.capabilities, said.security_mode, said.dialects):
        raise ProtocolError("the negotiation was altered")
    return _reply(
        wanted,
        wire.encode_validate(
            connection.capabilities, connection.house.guid, SIGNING_ENABLED, connection.dialect
        ),
    )


def _need_write(handle: Handle) -> None:
    handle.need_writable_share()
    if handle.is_directory:
        raise Refusal(Status.INVALID_DEVICE_REQUEST)
    handle.need(WRITE_DATA | APPEND_DATA)


def _set_sparse(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    """Every file of Unix may have holes."""
    handle.need_writable_share()
    if handle.is_directory:
        raise Refusal(Status.INVALID_PARAMETER)
    handle.need(WRITE_DATA | APPEND_DATA | WRITE_ATTRIBUTES)
    kept = handle.share.remember(handle.node.stat())
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
        with Sizing(handle.guard, handle.node), request.unlocked():
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
    """[MS-SMB2] 3.3.5.15.6."""
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
            # The reply says how much was copied before; that stays.
            return _reply(wanted, wire.encode_copied(number, 0, total), problem)
        with Sizing(handle.guard, handle.node), request.unlocked():
            total += _copy_chunk(source, handle, one)
    return _reply(wanted, wire.encode_copied(len(chunks), 0, total))


def _copy_chunk(source: Handle, target: Handle, one: wire.Chunk) -> int:
    if source.file.stream and not target.file.stream:
        buffer = memoryview(bytearray(one.length))
        done = source.node.read_into(buffer, one.source)
        return target.node.write(buffer[:done], one.target)
    return target.node.copy_from(source.node, one.source, one.target, one.length)


def _problem(source: Handle, target: Handle, one: wire.Chunk, size: int) -> Status | None:
    """What stands against copying a chunk."""
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
    with Sizing(handle.guard, handle.node), request.unlocked():
        handle.node.clone_from(source.node, said.source, said.target, said.length)
    return _reply(wanted)


def _get_reparse(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    if handle.node.kind is Kind.SYMLINK:
        target = handle.node.read_link()
        text = encode_text(names.target_to_wire(target))
        return _reply(wanted, reparse_symlink(text, relative=not target.startswith("/")))
    tag = posix.reparse_tag(handle.node.kind)
    if not tag:
        raise Refusal(Status.NOT_A_REPARSE_POINT)
    return _reply(wanted, struct.pack("<IHH", tag, 0, 0))


def _set_reparse(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    """A file just made becomes a link, a pipe or a socket: it is replaced, since Unix cannot turn
    the one into the other. For a link that leads to a directory Linux makes a directory first."""
    handle.need_writable_share()
    handle.need(WRITE_DATA | 0x100)
    make = _decode_reparse(wanted.input, is_posix=handle.is_posix)
    if handle.file.stream:
        raise Refusal(Status.NOT_SUPPORTED)  # its size is not the file's
    stat = handle.node.stat()
    is_directory = handle.node.kind is Kind.DIRECTORY
    if not is_directory and (handle.node.kind is not Kind.FILE or stat.size):
        raise Refusal(Status.NOT_SUPPORTED)
    where = handle.names()
    store = handle.share.store
    store.remove(where, directory=is_directory, same_as=stat)
    handle.file.is_removed = True
    if is_directory:
        handle.share.numbering.removed(stat.inode, "/".join(where))
    if isinstance(make, str):
        store.symlink(make, where)
    else:
        store.make_node(where, make, stat.mode & 0o777)
    # What is asked of the handle from now on is asked of what is there, not of what it was made of.
    made = store.open(where, Wish())[0]
    handle.share.replace(handle, made)
    handle.share.changed(where)
    return _reply(wanted)


def _decode_reparse(data: memoryview, *, is_posix: bool) -> str | Kind:
    """[MS-FSCC] 2.1.2.4, 2.1.2.6 (NFS), and tags of the Windows subsystem for Linux."""
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
        return Kind.SOCKET if tag == 0x80000023 else Kind.FIFO
    if tag == 0x80000014 and size >= 8 and len(data) >= 16:
        kind = bytes(data[8:16])
        if kind == b"LNK\1\0\0\0\0":
            text = bytes(data[16 : 8 + size]).decode("utf-16-le", "replace")
            return names.target_from_wire(text, posix=is_posix)
        if kind in (b"FIFO\0\0\0\0", b"SOCK\0\0\0\0"):
            return Kind.FIFO if kind[0] == ord("F") else Kind.SOCKET
    raise StoreError(Reason.UNSUPPORTED)


def _object_id(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    """[MS-FSCC] 2.1.3: what a file is known by, be it renamed; here its place on the disk."""
    stat = handle.node.stat()
    volume = struct.pack("<QQ", handle.share.serial, stat.device)
    own = struct.pack("<QQ", stat.inode, stat.device)
    return _reply(wanted, own + volume + own + bytes(16))


def _no_compression(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    return _reply(wanted, struct.pack("<H", 0))


def _set_compression(_: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    """[MS-FSCC] 2.3.67: not to be compressed is what every file is."""
    handle.need(WRITE_DATA)
    if len(wanted.input) < 2:
        raise Refusal(Status.INVALID_PARAMETER)
    if int.from_bytes(wanted.input[:2], "little"):
        raise Refusal(Status.NOT_SUPPORTED)
    return _reply(wanted)


def _changes(request: Request, handle: Handle, wanted: IoctlRequest) -> Reply:
    """What the host has changed, and what of it somebody wants to know (changes.py)."""
    handle.need(READ_DATA)
    share = handle.share
    if len(wanted.input) >= 16 and not any(wanted.input[8:16]):
        share.end_changes()  # nothing is watched any more
        return _reply(wanted, (1).to_bytes(8, "little"))
    if share.host_changes is None:
        from quicksand_smb.changes import Changes

        house = request.connection.house
        share.host_changes = Changes(share.store, share.numbering, house.ledger, house.run)
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

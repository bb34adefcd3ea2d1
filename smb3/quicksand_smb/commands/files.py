"""READ, WRITE and FLUSH."""

from quicksand_smb.access_rights import APPEND_DATA, EXECUTE, READ_DATA, WRITE_DATA
from quicksand_smb.connection import FileData, Reply
from quicksand_smb.host_writes import Guard
from quicksand_smb.messages import readwrite as wire
from quicksand_smb.messages.session import EMPTY
from quicksand_smb.request import Request
from quicksand_smb.shares import Handle
from quicksand_smb.status import Refusal, Status

SEND_FROM = 64 << 10
"""The size in bytes from which on the kernel moves the bytes of a read, if the stream allows it."""
LAST_OFFSET = (1 << 63) - 1
LARGEST_FILE = 0xFFFFFFF0000
"""The largest file of NTFS in bytes ([MS-FSA] 6, note on 2.1.5.4). Windows clients rely on it."""


# [MS-SMB2] 3.3.5.12
def read(request: Request) -> Reply:
    wanted = wire.decode_read(request.message)
    request.check_payload(wanted.length)
    handle = request.handle(wanted.file_id)
    if handle.is_directory:
        raise Refusal(Status.INVALID_DEVICE_REQUEST)
    handle.need(READ_DATA | EXECUTE)
    if wanted.offset + wanted.length > LAST_OFFSET:
        raise Refusal(Status.INVALID_PARAMETER)
    if handle.file.locks and handle.file.locks.forbids(
        handle.id, wanted.offset, wanted.length, writing=False
    ):
        raise Refusal(Status.FILE_LOCK_CONFLICT)
    connection = request.connection
    is_signed = bool(request.header.flags & 0x8)
    if (
        connection.can_send_files
        and request.is_alone
        and wanted.length >= SEND_FROM
        and not is_signed
    ):
        count = max(min(wanted.length, handle.node.stat().size - wanted.offset), 0)
        if count >= SEND_FROM and count >= wanted.least:
            handle.position = wanted.offset + count
            return Reply(wire.encode_read(count), file=FileData(handle.node, wanted.offset, count))
    buffer = memoryview(bytearray(wanted.length))
    if wanted.length >= SEND_FROM:
        with request.unlocked():
            count = handle.node.read_into(buffer, wanted.offset)
    else:
        count = handle.node.read_into(buffer, wanted.offset)
    if (count == 0 and wanted.length) or count < wanted.least:
        raise Refusal(Status.END_OF_FILE)
    handle.position = wanted.offset + count
    return Reply(wire.encode_read(count), data=buffer[:count])


# [MS-SMB2] 3.3.5.13
def write(request: Request) -> Reply:
    wanted = wire.decode_write(request.message)
    count = len(wanted.data)
    request.check_payload(count)
    handle = request.handle(wanted.file_id)
    handle.need_writable_share()
    if handle.is_directory:
        raise Refusal(Status.INVALID_DEVICE_REQUEST)
    handle.need(WRITE_DATA | APPEND_DATA)
    offset = wanted.offset
    if offset > LAST_OFFSET or (count and offset + count > LARGEST_FILE):
        raise Refusal(Status.INVALID_PARAMETER)
    if handle.file.grants or handle.share.directory_leases:
        handle.share.changes(handle)
    if not handle.access & WRITE_DATA:
        offset = handle.node.stat().size
    if handle.file.locks and handle.file.locks.forbids(handle.id, offset, count, writing=True):
        raise Refusal(Status.FILE_LOCK_CONFLICT)
    if not count:
        return Reply(wire.encode_write(0))
    if handle.guard is not None:
        done = _write_guarded(request, handle, handle.guard, wanted)
    else:
        done = _write(request, handle, wanted, offset)
    if not done:
        raise Refusal(Status.DISK_FULL)
    handle.position = offset + done
    if handle.share.watches:
        handle.share.tell_written(handle)
    return Reply(wire.encode_write(done))


def _write(request: Request, handle: Handle, wanted: wire.WriteRequest, offset: int) -> int:
    if len(wanted.data) < SEND_FROM and not wanted.through:
        return handle.node.write(wanted.data, offset)
    with request.unlocked():
        done = handle.node.write(wanted.data, offset)
        if wanted.through:
            handle.node.sync(data_only=True)
    return done


def _write_guarded(
    request: Request, handle: Handle, guard: Guard, wanted: wire.WriteRequest
) -> int:
    """Write to a guarded file: place the bytes correctly if the host has changed it
    (`host_writes`)."""
    node, count = handle.node, len(wanted.data)
    guard.begin(node)
    reached = appended = done = 0
    try:
        parts = guard.place(wanted.offset, wanted.data)
        is_long = count >= SEND_FROM or wanted.through
        if (is_long and guard.is_as_known) or parts == [(0, count, wanted.offset)]:
            done = _write(request, handle, wanted, wanted.offset)
            reached = wanted.offset + done
            return done
        for part in parts:
            data = wanted.data[part.start : part.stop]
            written = node.write(data, part.at or 0, at_end=part.at is None)
            appended += written if part.at is None else 0
            done = part.start + written
            if written < len(data):
                # All or nothing: the client would send the rest for the wrong offset.
                return done if guard.is_as_known else 0
    finally:
        guard.finish(node, reached=reached, appended=appended)
    if wanted.through:
        with request.unlocked():
            node.sync(data_only=True)
    return done


# [MS-SMB2] 3.3.5.11
def flush(request: Request) -> Reply:
    handle = request.handle(wire.decode_flush(request.message))
    if not handle.is_directory:
        handle.need(WRITE_DATA | APPEND_DATA)
    if not handle.share.is_read_only:
        with request.unlocked():
            handle.node.sync(data_only=False)
    return Reply(EMPTY)

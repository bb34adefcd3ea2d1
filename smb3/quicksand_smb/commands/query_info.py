"""QUERY_INFO ([MS-SMB2] 3.3.5.20)."""

from quicksand_smb import access, fscc, posix, streams
from quicksand_smb.access_rights import READ_CONTROL, READ_EA
from quicksand_smb.connection import Reply
from quicksand_smb.messages import query as wire
from quicksand_smb.names import to_wire
from quicksand_smb.request import Request
from quicksand_smb.shares import Handle
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import FileKind
from quicksand_smb.wire import encode_text

EXTENDED_ATTRIBUTES = 15
ALL = 18
SHORT_NAME = 21
STREAMS = 22
_SIZED = (ALL, 34, 100)
"""Levels from which Linux takes the size of the file (`cifs_fattr_to_inode`)."""


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
        found = handle.share.metadata.security_of(stat)
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
    if level is None or (
        wanted.level == 100 and not request.connection.conversation.negotiated.has_posix
    ):
        raise Refusal(Status.INVALID_INFO_CLASS)
    if level.access:
        handle.need(level.access)
    view = request.chain.view(handle)
    if handle.file.guard is not None and wanted.level in _SIZED:
        handle.file.guard.report_size(view.stat.size)
    if handle.is_posix and wanted.level in (ALL, posix.LEVEL):
        # Linux sends this query for a seek to the end and for a mapping (`cifs_get_file_info` in
        # fs/smb/client/inode.c). Afterwards it assumes the default mode of the mount.
        is_plain = wanted.level == ALL and request.is_alone
        handle.file.has_assumed_mode = is_plain and handle.node.kind is FileKind.FILE
    if wanted.level in (ALL, 48):
        names = handle.share.store.known_name(handle.node) or ()
        view.path = "\\" + "\\".join([to_wire(name, posix=handle.is_posix) for name in names])
    view.access = handle.access
    view.position = handle.position
    view.mode = handle.mode
    view.is_deleted = handle.file.to_delete or handle.deletes
    return level.encode(view), level.least


def _attributes(handle: Handle, most: int) -> list[tuple[str, bytes]]:
    """Return a file's extended attributes, up to the first that no longer fits into `most` bytes. A
    value that is too long for the protocol is left out."""
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
    """Return the file's own data stream and its named streams."""
    node = handle.node
    found = []
    base = node._base if isinstance(node, streams.StreamNode) else node
    if base.kind is FileKind.FILE:
        view = handle.share.metadata.view(base.stat())
        found.append(("::$DATA", view.stat.size, view.allocated))
    for name in streams.names_of(base):
        size = streams.StreamNode(base, name).stat().size
        found.append((f":{name}:$DATA", size, size))
    return fscc.encode_streams(found)


def _short_name(handle: Handle) -> bytes:
    """Return the file's DOS name ([MS-FSCC] 2.4.5). Only a name that fits the DOS rules as it is
    has one."""
    name = (handle.names() or ("",))[-1]
    stem, _, extension = name.partition(".")
    if not name.isascii() or len(stem) > 8 or len(extension) > 3 or "." in extension:
        raise Refusal(Status.OBJECT_NAME_NOT_FOUND)
    text = encode_text(name)
    return len(text).to_bytes(4, "little") + text


def _query_volume(request: Request, handle: Handle, level: int) -> tuple[bytes, int]:
    found = fscc.VOLUME_LEVELS.get(level)
    if found is None or (level == 100 and not request.connection.conversation.negotiated.has_posix):
        raise Refusal(Status.INVALID_INFO_CLASS)
    encode, least = found
    share = handle.share
    volume = fscc.Volume(share.store.space(), share.name, share.metadata.serial, share.is_read_only)
    return encode(volume), least

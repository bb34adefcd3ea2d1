"""The header of each message, and the messages of a compound ([MS-SMB2] 2.2.1, 3.3.5.2.7)."""

import struct

from quicksand_smb.minimal_stdlib import Final, IntEnum
from quicksand_smb.status import Status
from quicksand_smb.wire import Buffer, Cursor, ProtocolError

SIZE: Final = 64
MAGIC: Final = b"\xfeSMB"
_LAYOUT: Final = struct.Struct("<4sHHIHHIIQIIQ16s")
_NEXT: Final = struct.Struct("<I")
_UNSIGNED: Final = bytes(16)
_ERROR: Final = struct.Struct("<HBBI")

RESPONSE: Final = 0x1
ASYNC: Final = 0x2
RELATED: Final = 0x4
SIGNED: Final = 0x8
MOST_IN_CHAIN: Final = 64
"""The most requests in a compound. Clients join at most ten, and each reply may be as large as a
read."""


class Command(IntEnum):
    NEGOTIATE = 0
    SESSION_SETUP = 1
    LOGOFF = 2
    TREE_CONNECT = 3
    TREE_DISCONNECT = 4
    CREATE = 5
    CLOSE = 6
    FLUSH = 7
    READ = 8
    WRITE = 9
    LOCK = 10
    IOCTL = 11
    CANCEL = 12
    ECHO = 13
    QUERY_DIRECTORY = 14
    CHANGE_NOTIFY = 15
    QUERY_INFO = 16
    SET_INFO = 17
    OPLOCK_BREAK = 18


class Header:
    """The header of a request. Commands that make a session or a tree store its id here, and the
    response copies it."""

    __slots__ = (
        "async_id", "charge", "command", "credits", "flags", "message_id", "next", "process",
        "session_id", "tree_id",
    )  # fmt: skip

    charge: int
    """The credits that the request costs: one for each 64 KiB of payload."""
    command: int
    credits: int
    """The credits that the client asks for."""
    flags: int
    next: int
    """The offset of the next message of the frame in bytes, or 0."""
    message_id: int
    tree_id: int
    session_id: int
    async_id: int
    """The id that replaces the tree if the flag ASYNC is set."""
    process: int
    """The client's process. The specification leaves the field to clients, and Linux sends the
    lower 16 bits of the process id (fs/smb/client/smb2pdu.c, smb2_hdr_assemble)."""


def unasked(command: int) -> Header:
    """Return a header for a message that answers no request ([MS-SMB2] 2.2.23)."""
    header = Header()
    header.charge = header.credits = header.flags = header.next = 0
    header.tree_id = header.session_id = header.async_id = header.process = 0
    header.command = command
    header.message_id = (1 << 64) - 1
    return header


# [MS-SMB2] 2.2.1.1 and 2.2.1.2
def decode_header(data: Buffer) -> Header:
    if len(data) < SIZE:
        raise ProtocolError("a message is shorter than its header")
    header = Header()
    (
        magic, size, header.charge, _, header.command, header.credits, header.flags, header.next,
        header.message_id, low, header.tree_id, header.session_id, _,
    ) = _LAYOUT.unpack_from(data)  # fmt: skip
    if magic != MAGIC or size != SIZE:
        raise ProtocolError("no SMB2 message")
    header.process = low
    header.async_id = low | header.tree_id << 32 if header.flags & ASYNC else 0
    return header


def encode_response(
    header: Header, status: int, granted: int, flags: int, async_id: int, following: int
) -> bytes:
    """Encode the header of a response. Its signature is empty."""
    low, high = 0, header.tree_id
    if async_id:
        flags |= ASYNC
        low, high = async_id & 0xFFFFFFFF, async_id >> 32
    return _LAYOUT.pack(
        MAGIC, SIZE, header.charge, status, header.command, granted, flags, following,
        header.message_id, low, high, header.session_id, _UNSIGNED,
    )  # fmt: skip


# [MS-SMB2] 2.2.2
def encode_error(data: bytes = b"", contexts: int = 0) -> bytes:
    return _ERROR.pack(9, contexts, 0, len(data)) + (data or b"\0")


def decode_error(body: Buffer) -> bytes:
    cursor = Cursor(body)
    size, _, _, count = cursor.fields(_ERROR)
    if size != 9:
        raise ProtocolError("no error response")
    return bytes(cursor.take(count))


def split(frame: memoryview) -> list[memoryview]:
    """Split a frame into its messages. All but the last have a multiple of eight bytes."""
    messages: list[memoryview] = []
    while True:
        if len(frame) < SIZE:
            raise ProtocolError("a message is shorter than its header")
        following = _NEXT.unpack_from(frame, 20)[0]
        if not following:
            return [*messages, frame]
        if following % 8 or following < SIZE or following + SIZE > len(frame):
            raise ProtocolError("the next message of a frame lies nowhere")
        messages.append(frame[:following])
        if len(messages) >= MOST_IN_CHAIN:
            raise ProtocolError("too many messages in a frame")
        frame = frame[following:]


def is_error(status: int) -> bool:
    """Tell whether a status makes an error response: severities 2 and 3, except an overflow."""
    return status & 0xC0000000 == 0xC0000000 or status in (
        Status.NO_MORE_FILES,
        Status.STOPPED_ON_SYMLINK,
    )

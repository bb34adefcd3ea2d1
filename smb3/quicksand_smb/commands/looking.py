"""CREATE, QUERY_INFO and CLOSE in one frame, by which clients look at a file: nothing of Linux's is
asked more often. Where the open changes nothing and stands in nobody's way, the file is looked at
and not opened, and the three answers are those that the three commands would give.

Whatever is not just that (an error, a symlink, a file that is open, a signed request, …) is left to
the commands themselves: until there is an answer, nothing has been done.
"""

from quicksand_smb import fscc, header, posix
from quicksand_smb.commands.opening import plan_open
from quicksand_smb.header import Command, Header
from quicksand_smb.light import Final
from quicksand_smb.messages import create, query
from quicksand_smb.messages.create import CreateRequest
from quicksand_smb.messages.negotiate import POSIX_TAG
from quicksand_smb.names import to_wire
from quicksand_smb.request import SAME_FILE, Link, Phase
from quicksand_smb.session import Session, Stage
from quicksand_smb.shares import Share
from quicksand_smb.values import Kind
from quicksand_smb.wire import ProtocolError, pad

_COMMANDS: Final = (Command.CREATE, Command.QUERY_INFO, Command.CLOSE)
_ACCESS: Final = 0x100080
"""What may be asked for: to read attributes, and to wait for the handle."""
_OPEN: Final = 1
_NAMED: Final = (18, 48)
"""Levels that tell the file's name."""
_PAID_FOR: Final = 1 << 16
"""Bytes that each request may move, whatever it was charged ([MS-SMB2] 3.3.5.2.5)."""
_OPENED: Final = 1
"""What the CREATE has done, [MS-SMB2] 2.2.14."""


def answer_look(connection: Link, messages: list[memoryview]) -> bytes | None:
    """The frame that answers three messages; None where the commands must.

    Raises ProtocolError for numbers of messages that were not granted.
    """
    heads = [header.decode_header(message) for message in messages]
    found = _find_share(connection, heads)
    if found is None:
        return None
    try:
        bodies = _look(connection, found, messages)
    except Exception:  # noqa: BLE001 - nothing is done yet: the commands fail as it should be told
        return None
    if bodies is None:
        return None
    frame = bytearray()
    first, window = heads[0], connection.window
    for head, body in zip(heads, bodies, strict=True):
        charge = head.charge if connection.pays_by_size else 1
        if not window.take(head.message_id, charge):
            raise ProtocolError("a message number that was not granted")
        head.session_id, head.tree_id = first.session_id, first.tree_id
        granted = window.grant(charge, head.credits)
        size = header.SIZE + len(body)
        tail = pad(size)
        flags = header.RESPONSE | head.flags
        following = size + tail if head.next else 0
        frame += header.encode_response(head, 0, granted, flags, 0, following) + body + bytes(tail)
    return bytes(frame)


def _find_share(connection: Link, heads: list[Header]) -> Share | None:
    """Where to look, if the three messages are what they have to be."""
    first, second, third = heads
    if (first.command, second.command, third.command) != _COMMANDS:
        return None
    if first.flags or second.flags != header.RELATED or third.flags != header.RELATED:
        return None
    if connection.phase is not Phase.OPEN:
        return None
    session = connection.sessions.get(first.session_id)
    if session is None or not _is_heard(session):
        return None
    tree = session.trees.get(first.tree_id)
    if tree is None or tree.share is None or tree.share.is_gone or tree.share.has_security:
        return None
    return tree.share


def _is_heard(session: Session) -> bool:
    return session.stage is Stage.VALID and not (session.key and session.must_sign)


def _look(connection: Link, share: Share, messages: list[memoryview]) -> list[bytes] | None:
    """What stands behind the three headers."""
    wanted = create.decode_request(messages[0])
    asked = query.decode_query(messages[1])
    wants_attributes, closed = create.decode_close(messages[2])
    level = _find_level(connection, asked)
    if level is None or not _is_a_look(wanted) or closed != SAME_FILE:
        return None
    plan = plan_open(connection, wanted, share)
    stat = share.store.look(plan.names)
    is_plain = stat.kind in (Kind.FILE, Kind.DIRECTORY) and not plan.stream
    if not is_plain or share.file_of(stat) is not None:
        return None
    view = share.view(stat, plan.names if plan.is_posix else None)
    view.access = plan.access
    if asked.level in _NAMED:
        view.path = "\\" + "\\".join([to_wire(one, posix=plan.is_posix) for one in plan.names])
    output = level.encode(view)
    if asked.most < max(len(output), level.least):
        return None
    size = fscc.size_of(stat)
    number = connection.house.new_handle_id()
    context = [(POSIX_TAG, posix.encode_create(stat))] if plan.is_posix else []
    opened = create.encode_response(
        0, _OPENED, view.times, view.allocated, size, view.attributes, (number, number), context
    )
    done = create.CLOSED
    if wants_attributes:
        done = create.encode_close(view.times, view.allocated, size, view.attributes)
    return [opened, query.encode_output(output), done]


def _find_level(connection: Link, asked: query.QueryRequest) -> fscc.Level | None:
    """The information level to answer with; None if the question is about another file than the one
    just opened, or must be answered by the command itself."""
    if asked.kind != query.FILE or asked.file_id != SAME_FILE:
        return None
    if max(asked.most, len(asked.input)) > _PAID_FOR:
        return None
    if asked.level == posix.LEVEL and not connection.has_posix:
        return None
    return fscc.FILE_LEVELS.get(asked.level)


def _is_a_look(wanted: CreateRequest) -> bool:
    """Whether an open neither changes anything nor keeps anybody from anything."""
    return (
        wanted.access & fscc.READ_ATTRIBUTES != 0
        and not wanted.access & ~_ACCESS
        and wanted.disposition == _OPEN
        and not wanted.options
        and not wanted.oplock
        and (not wanted.contexts or wanted.contexts.keys() == {POSIX_TAG})
    )

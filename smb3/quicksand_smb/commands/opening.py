"""CREATE and CLOSE ([MS-SMB2] 3.3.5.9, 3.3.5.10)."""

import struct

from quicksand_smb import fscc, leases, names, posix, streams
from quicksand_smb.commands.granting import (
    HeldUp,
    check_others,
    guard_written,
    level_of,
    may_keep,
    most_kept,
    most_paid,
    told_lease,
    wait_for_grants,
    wanted_grant,
)
from quicksand_smb.commands.new_files import (
    allocate_for,
    empty_file,
    finish_new,
    set_attributes,
)
from quicksand_smb.commands.plan import (
    CREATE,
    EMPTYING,
    OPEN,
    OPEN_IF,
    OVERWRITE,
    OVERWRITE_IF,
    SUPERSEDE,
    Plan,
)
from quicksand_smb.hostwrites import Sizing
from quicksand_smb.light import Final, Sequence
from quicksand_smb.messages import create as wire
from quicksand_smb.messages.create import CreateRequest
from quicksand_smb.messages.negotiate import POSIX_TAG, Dialect
from quicksand_smb.names import Names
from quicksand_smb.reasons import Reason, StoreError
from quicksand_smb.request import Link, Pending, Reply, Request
from quicksand_smb.shares import (
    ALL_ACCESS,
    APPEND_DATA,
    DELETE,
    EXECUTE,
    READ_ACCESS,
    READ_CONTROL,
    READ_DATA,
    WRITE_ATTRIBUTES,
    WRITE_DAC,
    WRITE_DATA,
    WRITE_OWNER,
    File,
    Handle,
    Share,
)
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store import Node
from quicksand_smb.values import Action, Disposition, Kind, Stat, Wish
from quicksand_smb.wire import encode_text

_WISHES: Final = {
    SUPERSEDE: Disposition.OPEN_IF,
    OPEN: Disposition.OPEN,
    CREATE: Disposition.CREATE,
    OPEN_IF: Disposition.OPEN_IF,
    OVERWRITE: Disposition.OPEN,
    OVERWRITE_IF: Disposition.OPEN_IF,
}

MAXIMUM_ALLOWED: Final = 0x02000000
_UNKNOWN_ACCESS: Final = 0x0CE0FE00
_AUDITS: Final = 0x01000000
"""To read and write lists of audits, which is for those who hold a privilege."""
_UNKNOWN_ATTRIBUTES: Final = 0xFFFF8048
_UNKNOWN_OPTIONS: Final = 0xFF000000
_REFUSED_OPTIONS: Final = 0x00102080
_GENERIC: Final = (
    (0x10000000, ALL_ACCESS),
    (0x20000000, 0x1200A0),
    (0x40000000, 0x120116),
    (0x80000000, 0x120089),
)
_CHANGING: Final = 0x0D0156
"""Accesses that a share that is only read has not: data, attributes, children, owner, deletion."""
_OF_BYTES: Final = READ_DATA | WRITE_DATA | APPEND_DATA | EXECUTE
_KEPT_OPTIONS: Final = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x1000


def create(request: Request) -> Reply | Pending:
    share = request.require_share()
    plan = plan_open(request.connection, wire.decode_request(request.message), share)
    try:
        return _create(request, share, plan)
    except HeldUp as found:
        return wait_for_grants(
            request, found.file, lambda: _create(request, share, plan, is_first=False)
        )


def _create(request: Request, share: Share, plan: Plan, *, is_first: bool = True) -> Reply:
    session = request.require_session()
    session.admit(request.header.process, share)
    paid = most_paid(request, plan)
    if not share.ledger.has(paid):
        raise Refusal(Status.TOO_MANY_OPENED_FILES)  # before anything is made or emptied
    try:
        node, action = _open(request, share, plan)
        try:
            handle, action = _admit(request, share, plan, node, action, is_first=is_first)
        except BaseException:
            node.close()
            raise
    except BaseException:
        share.ledger.give(paid)
        raise
    share.add(handle, paid)
    handle.id = request.connection.house.new_handle_id()
    handle.process = request.header.process
    session.add_handle(handle)
    try:
        return _finish(request, share, plan, handle, action)
    except BaseException:
        handle.deletes = False
        session.close_handle(handle)
        raise


def _finish(request: Request, share: Share, plan: Plan, handle: Handle, action: Action) -> Reply:
    """A handle is open: heed the host, tell others, and answer."""
    node = handle.node
    stat = node.stat() if node.first is None or action is not Action.OPENED else node.first
    node.first = None
    guard_written(request, plan, handle, action, stat)
    if plan.access & _OF_BYTES:
        handle.file.is_misjudged = False  # Linux asks for the mode of what it opens
    if action is Action.CREATED:
        share.changed(plan.names, is_directory=node.kind is Kind.DIRECTORY)
    elif share.kept and node.kind is Kind.FILE:
        # Linux takes each file that it opens for one of a single name (`SMB2_open` in
        # fs/smb/client/smb2pdu.c). It shall look again, as it does where it keeps nothing.
        is_misjudged = stat.nlink > 1 and plan.access & _OF_BYTES
        if action is not Action.OPENED or is_misjudged:
            share.kept.changed_in(plan.names[:-1])
    view = share.view(stat, plan.names if plan.is_posix else None)
    body = wire.encode_response(
        level_of(handle),
        int(action),
        view.times,
        view.allocated,
        fscc.size_of(stat),
        view.attributes,
        (handle.id, handle.id),
        _contexts(request, plan, handle, view),
    )
    request.chain.file_id = handle.id, handle.id
    request.chain.seen = handle, view
    return Reply(body)


def plan_open(connection: Link, wanted: CreateRequest, share: Share) -> Plan:
    """Check what can be checked without a look at the disk. Raises Refusal."""
    if wanted.impersonation > 3:
        raise Refusal(Status.BAD_IMPERSONATION_LEVEL)
    options = wanted.options
    if wanted.contexts and any(name in wanted.contexts for name in wire.NOT_KEPT):
        raise Refusal(Status.OBJECT_NAME_NOT_FOUND)
    if wanted.access & _AUDITS:
        raise Refusal(Status.PRIVILEGE_NOT_HELD)
    if wanted.access & _UNKNOWN_ACCESS or not wanted.access:
        raise Refusal(Status.ACCESS_DENIED)
    if (
        wanted.disposition > OVERWRITE_IF
        or wanted.sharing > 7
        or wanted.attributes & _UNKNOWN_ATTRIBUTES
    ):
        raise Refusal(Status.INVALID_PARAMETER)
    if options & wire.DIRECTORY and (
        options & wire.NON_DIRECTORY or wanted.disposition in EMPTYING
    ):
        raise Refusal(Status.INVALID_PARAMETER)
    if options & _UNKNOWN_OPTIONS:
        raise Refusal(Status.INVALID_PARAMETER)
    if options & _REFUSED_OPTIONS:
        raise Refusal(Status.NOT_SUPPORTED)
    mode = None
    if connection.has_posix and POSIX_TAG in wanted.contexts:
        mode = posix.decode_create(wanted.contexts[POSIX_TAG])
    found, stream = _find_names(wanted, is_posix=mode is not None)
    access = _access(wanted.access, share, found)
    if options & wire.DELETE_ON_CLOSE:
        if not access & DELETE:
            raise Refusal(Status.ACCESS_DENIED)
        if share.is_read_only:
            raise Refusal(Status.MEDIA_WRITE_PROTECTED)
    return Plan(wanted, found, stream, access, mode, _find_lease(connection, wanted))


def _find_lease(connection: Link, wanted: CreateRequest) -> wire.LeaseRequest | None:
    data = wanted.contexts.get(wire.LEASE_NAME) if connection.has_leases else None
    return None if data is None else wire.decode_lease(data)


def _find_names(wanted: CreateRequest, *, is_posix: bool) -> tuple[Names, str]:
    """The file, and of that the stream."""
    if wanted.name[:1] in ("\\", "/"):
        raise Refusal(Status.INVALID_PARAMETER)
    if is_posix:
        return parse(wanted.name.removesuffix("/"), is_posix=True), ""
    path, stream = streams.split(wanted.name.removesuffix("\\"))
    if ":" in wanted.name and wanted.options & wire.DIRECTORY:
        raise Refusal(Status.NOT_A_DIRECTORY)
    return parse(path, is_posix=False), stream


def parse(path: str, *, is_posix: bool) -> Names:
    """Names for a path; with the POSIX extensions names are separated by "/"."""
    if not is_posix and ".." in path.split("\\"):
        raise Refusal(Status.OBJECT_PATH_SYNTAX_BAD)
    return names.from_wire(path, posix=is_posix, separator="/" if is_posix else "\\")


def _access(wanted: int, share: Share, names: Names) -> int:
    changes = share.host_changes
    if share.is_read_only and changes is not None and changes.was_told(names):
        wanted &= ~WRITE_ATTRIBUTES  # for what is no change (`info._is_touch`)
    most = READ_ACCESS if share.is_read_only else ALL_ACCESS
    found = wanted & ALL_ACCESS
    for generic, meaning in _GENERIC:
        if wanted & generic:
            found |= meaning
    if wanted & MAXIMUM_ALLOWED:
        found |= most
    elif share.is_read_only and found & _CHANGING:
        raise Refusal(Status.MEDIA_WRITE_PROTECTED)
    return found & most


def _open(request: Request, share: Share, plan: Plan) -> tuple[Node, Action]:
    wanted = plan.wanted
    if plan.stream:
        return _open_stream(share, plan)
    empties = wanted.disposition in EMPTYING
    directory = None
    if wanted.options & wire.DIRECTORY:
        directory = True
    elif wanted.options & wire.NON_DIRECTORY or empties or ":" in wanted.name:
        directory = False
    if empties and share.is_read_only:
        share.store.look(plan.names)
        raise Refusal(Status.MEDIA_WRITE_PROTECTED)
    mode = plan.mode
    if mode is None or mode == posix.NO_MODE:
        mode = 0o755 if directory else 0o444 if wanted.attributes & fscc.READ_ONLY else 0o644
    wish = Wish(
        read=bool(plan.access & (READ_DATA | EXECUTE)),
        write=bool(plan.access & (WRITE_DATA | APPEND_DATA)) or empties,
        disposition=_WISHES[wanted.disposition],
        directory=directory,
        mode=mode,
    )
    if share.has_security and wanted.disposition not in (OPEN, OVERWRITE):
        _check_directory(share, plan)
    try:
        return share.store.open(plan.names, wish)
    except StoreError as error:
        if error.reason is Reason.LOOP and error.depth:
            target = share.store.read_link(plan.names[: error.depth])
            rest = "\\".join(names.to_wire(one) for one in plan.names[error.depth :])
            raise _stopped(request, target, rest) from None
        if error.reason is Reason.DENIED and plan.is_posix and _is_to_be_renamed(wanted):
            # Linux would delete the target (see `info._rename`).
            raise Refusal(Status.MEDIA_WRITE_PROTECTED) from error
        if error.reason is Reason.DENIED and wanted.access & MAXIMUM_ALLOWED:
            wish.read = wish.write = False
            return share.store.open(plan.names, wish)
        raise


def _is_to_be_renamed(wanted: CreateRequest) -> bool:
    """Whether Linux opens a file so to rename it; one to be removed has one of these options."""
    options = wanted.options & (wire.DELETE_ON_CLOSE | wire.DIRECTORY)
    return wanted.access == DELETE and not options


def _open_stream(share: Share, plan: Plan) -> tuple[Node, Action]:
    """Open or make a named stream, and the file where it is missing and a new stream may be."""
    wanted = plan.wanted
    creates = wanted.disposition not in (OPEN, OVERWRITE)
    wish = Wish(disposition=Disposition.OPEN_IF if creates and not share.is_read_only
                else Disposition.OPEN)  # fmt: skip
    base, made = share.store.open(plan.names, wish)
    try:
        if base.kind not in (Kind.FILE, Kind.DIRECTORY):
            raise Refusal(Status.IO_REPARSE_TAG_NOT_HANDLED)
        if made is Action.CREATED:
            share.remember(base.stat()).attributes = fscc.ARCHIVE
            share.changed(plan.names)
        there = streams.find(base, plan.stream)
        if there is None and not creates:
            raise Refusal(Status.OBJECT_NAME_NOT_FOUND)
        if there is not None and wanted.disposition == CREATE:
            raise Refusal(Status.OBJECT_NAME_COLLISION)
        node = streams.StreamNode(base, there or plan.stream)
        if there is None:
            node.make()
            return node, Action.CREATED
    except BaseException:
        base.close()
        raise
    return node, Action.OPENED


def _check_directory(share: Share, plan: Plan) -> None:
    """Whether a new name may be made where it would be, if it is new."""
    try:
        share.store.look(plan.names)
    except StoreError as error:
        if error.reason is not Reason.NOT_FOUND:
            return  # the open says so
        is_directory = plan.wanted.options & wire.DIRECTORY
        if not share.allowed_in(plan.names[:-1]) & (APPEND_DATA if is_directory else WRITE_DATA):
            raise Refusal(Status.ACCESS_DENIED) from None


def _access_to(share: Share, plan: Plan, stat: Stat) -> int:
    """What a handle on an existing file is good for."""
    allowed = share.allowed(stat, plan.names)
    if plan.wanted.disposition in EMPTYING and not allowed & WRITE_DATA:
        raise Refusal(Status.ACCESS_DENIED)
    if plan.wanted.access & MAXIMUM_ALLOWED:
        if _access(plan.wanted.access & ~MAXIMUM_ALLOWED, share, plan.names) & ~allowed:
            raise Refusal(Status.ACCESS_DENIED)
        return plan.access & allowed
    if plan.access & ~allowed:
        raise Refusal(Status.ACCESS_DENIED)
    return plan.access


_OF_LINKS: Final = READ_CONTROL | WRITE_DAC | WRITE_OWNER | WRITE_ATTRIBUTES


def _means_link(plan: Plan) -> bool:
    """Whether a link is to be opened, and not what it leads to. Linux says so, but not where it
    asks for owners, permissions and times; it has gone by the links itself."""
    told = plan.wanted.options & wire.REPARSE_POINT
    return bool(told) or (plan.is_posix and not plan.access & ~_OF_LINKS)


def _admit(
    request: Request, share: Share, plan: Plan, node: Node, action: Action, *, is_first: bool
) -> tuple[Handle, Action]:
    """Compare with what is open already, empty the file if that is asked, and make the handle."""
    wanted = plan.wanted
    stat = node.first or node.stat()
    if node.kind is Kind.SYMLINK and not _means_link(plan):
        raise _stopped(request, node.read_link(), "")
    if node.kind not in (Kind.FILE, Kind.DIRECTORY) and not _means_link(plan):
        raise Refusal(Status.IO_REPARSE_TAG_NOT_HANDLED)
    file = share.file_of(stat, plan.stream)
    if file is None:
        file = File(stat, plan.stream)
    elif file.to_delete:
        raise Refusal(Status.DELETE_PENDING)
    if share.has_security and action is not Action.CREATED:
        access = _access_to(share, plan, stat)
        plan = Plan(wanted, plan.names, plan.stream, access, plan.mode, plan.lease)
    is_directory = node.kind is Kind.DIRECTORY
    keeps = wanted_grant(request, plan, is_directory=is_directory)
    if keeps:
        leases.check_key(file, keeps, request.connection.house.leases)
    if action is not Action.CREATED:
        _check_attributes(share, plan, node, stat)
    check_others(request, file, plan, keeps, is_first=is_first)
    if action is Action.CREATED:
        finish_new(share, plan, node, stat)
    elif wanted.disposition in EMPTYING:
        with Sizing(file.guard, node):
            empty_file(share, plan, node, stat)
        supersedes = wanted.disposition == SUPERSEDE
        action = Action.SUPERSEDED if supersedes else Action.OVERWRITTEN
    if action is not Action.OPENED and (given := wanted.contexts.get(wire.EXTENDED_ATTRIBUTES)):
        set_attributes(node, given)
    if action is not Action.OPENED and node.kind is Kind.FILE:
        allocate_for(node, wanted.contexts.get(wire.ALLOCATION, b""))
    handle = Handle(request.require_tree(), node, file, plan.access, wanted.sharing)
    handle.mode = wanted.options & _KEPT_OPTIONS
    handle.is_posix = plan.is_posix
    handle.deletes = bool(wanted.options & wire.DELETE_ON_CLOSE)
    is_kept = may_keep(request, is_directory=is_directory)
    if keeps and is_kept and (is_directory or node.kind is Kind.FILE):
        leases.grant(
            file,
            handle,
            keeps,
            request.connection,
            request.connection.house.leases,
            most=most_kept(request, plan, file, handle),
            empties=wanted.disposition in EMPTYING,
        )
    return handle, action


def _check_attributes(share: Share, plan: Plan, node: Node, stat: Stat) -> None:
    """What Windows refuses for files that are only read, or hidden; Unix does not."""
    if plan.is_posix or node.kind is not Kind.FILE:
        return
    wanted = plan.wanted
    has = share.attributes(stat)
    if has & fscc.READ_ONLY:
        if wanted.options & wire.DELETE_ON_CLOSE:
            raise Refusal(Status.CANNOT_DELETE)
        changes = plan.access & (WRITE_DATA | APPEND_DATA) and not wanted.access & MAXIMUM_ALLOWED
        if changes or wanted.disposition in EMPTYING:
            raise Refusal(Status.ACCESS_DENIED)
    special = has & (fscc.HIDDEN | fscc.SYSTEM)
    if wanted.disposition in (OVERWRITE, OVERWRITE_IF) and special & ~wanted.attributes:
        raise Refusal(Status.ACCESS_DENIED)


def _stopped(request: Request, target: str, rest: str) -> Refusal:
    """The error that tells the client where a symlink leads, for the server follows none
    ([MS-SMB2] 2.2.2.2.1)."""
    text = encode_text(names.target_to_wire(target))
    unparsed = 2 * len(rest) + (2 if rest else 0)
    data = reparse_symlink(text, relative=not target.startswith("/"), unparsed=unparsed)
    data = struct.pack("<II", len(data) + 4, 0x4C4D5953) + data
    if request.connection.dialect == Dialect.SMB311:
        return Refusal(
            Status.STOPPED_ON_SYMLINK, struct.pack("<II", len(data), 0) + data, contexts=1
        )
    return Refusal(Status.STOPPED_ON_SYMLINK, data)


def reparse_symlink(text: bytes, *, relative: bool, unparsed: int = 0) -> bytes:
    """[MS-FSCC] 2.1.2.4."""
    return struct.pack(
        "<IHHHHHHI", 0xA000000C, 12 + 2 * len(text), unparsed, len(text), len(text), 0, len(text),
        1 if relative else 0,
    ) + text + text  # fmt: skip


def _contexts(
    request: Request, plan: Plan, handle: Handle, view: fscc.View
) -> Sequence[tuple[bytes, bytes]]:
    stat = view.stat
    answers: list[tuple[bytes, bytes]] = []
    wanted = plan.wanted.contexts
    if not wanted and handle.grant is None:
        return answers
    if wire.MAXIMAL_ACCESS in wanted:
        access = request.require_tree().access & handle.share.allowed(stat, plan.names)
        answers.append((wire.MAXIMAL_ACCESS, struct.pack("<II", 0, access)))
    if wire.DISK_ID in wanted:
        answers.append((wire.DISK_ID, struct.pack("<QQ16x", view.number, handle.share.serial)))
    if handle.grant and handle.grant.key:
        answers.append((wire.LEASE_NAME, wire.encode_lease(told_lease(handle.grant))))
    if plan.is_posix:
        answers.append((POSIX_TAG, posix.encode_create(stat)))
    return answers


# [MS-SMB2] 3.3.5.10
def close(request: Request) -> Reply:
    wants_attributes, file_id = wire.decode_close(request.message)
    handle = request.handle(file_id)
    body = wire.CLOSED
    is_misjudged = handle.file.is_misjudged and request.is_alone
    if wants_attributes:
        view = request.chain.view(handle)
        size = fscc.size_of(view.stat)
        body = wire.encode_close(view.times, view.allocated, size, view.attributes)
    request.require_session().close_handle(handle)
    if is_misjudged and wants_attributes:
        # It is closed. But told so, Linux would believe what it knows of the file for another
        # second, the wrong mode too (`smb2_close_getattr` in fs/smb/client/smb2ops.c).
        raise Refusal(Status.FILE_CLOSED)
    return Reply(body)

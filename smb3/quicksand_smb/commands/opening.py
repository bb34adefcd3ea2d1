"""CREATE and CLOSE ([MS-SMB2] 3.3.5.9, 3.3.5.10)."""

import struct

from quicksand_smb import fscc, leases, names, posix, streams
from quicksand_smb.access_rights import (
    APPEND_DATA,
    DELETE,
    EXECUTE,
    READ_CONTROL,
    READ_DATA,
    WRITE_ATTRIBUTES,
    WRITE_DAC,
    WRITE_DATA,
    WRITE_OWNER,
)
from quicksand_smb.commands.lease_grants import (
    MustWait,
    check_other_opens,
    encode_granted,
    grantable_state,
    guard_open,
    level_of,
    may_grant,
    open_cost,
    requested_lease,
    wait_for_breaks,
)
from quicksand_smb.commands.new_files import allocate_for, empty_file, finish_new, set_attributes
from quicksand_smb.commands.open_plan import (
    CREATE,
    EMPTYING,
    MAXIMUM_ALLOWED,
    OPEN,
    OPEN_IF,
    OVERWRITE,
    OVERWRITE_IF,
    SUPERSEDE,
    Plan,
    access_for,
    plan_open,
)
from quicksand_smb.connection import Reply
from quicksand_smb.conversation import Pending
from quicksand_smb.host_writes import SizeChange
from quicksand_smb.messages import create as wire
from quicksand_smb.messages.create import CreateRequest
from quicksand_smb.messages.negotiate import POSIX_TAG, Dialect
from quicksand_smb.minimal_stdlib import Final, Sequence
from quicksand_smb.open_file import File
from quicksand_smb.request import Request
from quicksand_smb.shares import Handle, Share
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store import Node
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import Action, Disposition, FileKind, OpenOptions, Stat
from quicksand_smb.wire import encode_text

_DISPOSITIONS: Final = {
    SUPERSEDE: Disposition.OPEN_IF,
    OPEN: Disposition.OPEN,
    CREATE: Disposition.CREATE,
    OPEN_IF: Disposition.OPEN_IF,
    OVERWRITE: Disposition.OPEN,
    OVERWRITE_IF: Disposition.OPEN_IF,
}

_OF_BYTES: Final = READ_DATA | WRITE_DATA | APPEND_DATA | EXECUTE
_KEPT_OPTIONS: Final = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x1000


def create(request: Request) -> Reply | Pending:
    share = request.require_share()
    plan = plan_open(request.connection, wire.decode_request(request.message), share)
    try:
        return _create(request, share, plan)
    except MustWait as found:
        return wait_for_breaks(
            request, found.file, lambda: _create(request, share, plan, is_first=False)
        )


def _create(request: Request, share: Share, plan: Plan, *, is_first: bool = True) -> Reply:
    session = request.require_session()
    session.admit(request.header.process, share)
    paid = open_cost(request, plan)
    if not share.ledger.try_take(paid):
        raise Refusal(Status.TOO_MANY_OPENED_FILES)  # before anything is made or emptied
    try:
        node, action = _open(request, share, plan)
        try:
            handle, action = _admit(request, share, plan, node, action, is_first=is_first)
        except BaseException:
            node.close()
            raise
    except BaseException:
        share.ledger.give_back(paid)
        raise
    share.add(handle, paid)
    session.add_handle(handle)
    try:
        return _finish(request, share, plan, handle, action)
    except BaseException:
        handle.deletes = False
        session.close_handle(handle)
        raise


def _finish(request: Request, share: Share, plan: Plan, handle: Handle, action: Action) -> Reply:
    """Watch the host and inform other clients of a new open, then answer it."""
    node = handle.node
    stat = node.stat() if node.first is None or action is not Action.OPENED else node.first
    node.first = None
    guard_open(request, plan, handle, action, stat)
    if plan.access & _OF_BYTES:
        handle.file.has_assumed_mode = False  # Linux asks for the mode of a file that it opens
    if action is Action.CREATED:
        share.changed(plan.names, is_directory=node.kind is FileKind.DIRECTORY)
    elif share.directory_leases and node.kind is FileKind.FILE:
        # Linux assumes that each opened file has a single name (`SMB2_open` in
        # fs/smb/client/smb2pdu.c). Breaking the lease makes it look again.
        has_assumed_mode = stat.nlink > 1 and plan.access & _OF_BYTES
        if action is not Action.OPENED or has_assumed_mode:
            share.directory_leases.changed_in(plan.names[:-1])
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
    open_options = OpenOptions(
        read=bool(plan.access & (READ_DATA | EXECUTE)),
        write=bool(plan.access & (WRITE_DATA | APPEND_DATA)) or empties,
        disposition=_DISPOSITIONS[wanted.disposition],
        directory=directory,
        mode=mode,
    )
    if share.metadata.has_security and wanted.disposition not in (OPEN, OVERWRITE):
        _check_directory(share, plan)
    try:
        return share.store.open(plan.names, open_options)
    except StoreError as error:
        if error.reason is Reason.LOOP and error.depth:
            target = share.store.read_link(plan.names[: error.depth])
            rest = "\\".join(names.to_wire(one) for one in plan.names[error.depth :])
            raise _stopped(request, target, rest) from None
        if error.reason is Reason.DENIED and plan.is_posix and _is_to_be_renamed(wanted):
            # Linux would delete the target (see `set_info._rename`).
            raise Refusal(Status.MEDIA_WRITE_PROTECTED) from error
        if error.reason is Reason.DENIED and wanted.access & MAXIMUM_ALLOWED:
            open_options.read = open_options.write = False
            return share.store.open(plan.names, open_options)
        raise


def _is_to_be_renamed(wanted: CreateRequest) -> bool:
    """Tell whether Linux opens a file in order to rename it. An open to remove it has one of these
    options."""
    options = wanted.options & (wire.DELETE_ON_CLOSE | wire.DIRECTORY)
    return wanted.access == DELETE and not options


def _open_stream(share: Share, plan: Plan) -> tuple[Node, Action]:
    """Open or make a named stream. Make the file as well if it is missing and the request allows
    that."""
    wanted = plan.wanted
    creates = wanted.disposition not in (OPEN, OVERWRITE)
    open_options = OpenOptions(disposition=Disposition.OPEN_IF if creates and not share.is_read_only
                else Disposition.OPEN)  # fmt: skip
    base, made = share.store.open(plan.names, open_options)
    try:
        if base.kind not in (FileKind.FILE, FileKind.DIRECTORY):
            raise Refusal(Status.IO_REPARSE_TAG_NOT_HANDLED)
        if made is Action.CREATED:
            share.metadata.remember(base.stat()).attributes = fscc.ARCHIVE
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
    """Check that the user may make a new name in the directory. Names that exist are not
    checked."""
    try:
        share.store.look(plan.names)
    except StoreError as error:
        if error.reason is not Reason.NOT_FOUND:
            return  # the open reports it
        is_directory = plan.wanted.options & wire.DIRECTORY
        if not share.allowed_in(plan.names[:-1]) & (APPEND_DATA if is_directory else WRITE_DATA):
            raise Refusal(Status.ACCESS_DENIED) from None


def _access_to(share: Share, plan: Plan, stat: Stat) -> int:
    """Return the access that a handle on an existing file gets. Raises Refusal if it is too
    little."""
    allowed = share.allowed(stat, plan.names)
    if plan.wanted.disposition in EMPTYING and not allowed & WRITE_DATA:
        raise Refusal(Status.ACCESS_DENIED)
    if plan.wanted.access & MAXIMUM_ALLOWED:
        if access_for(plan.wanted.access & ~MAXIMUM_ALLOWED, share, plan.names) & ~allowed:
            raise Refusal(Status.ACCESS_DENIED)
        return plan.access & allowed
    if plan.access & ~allowed:
        raise Refusal(Status.ACCESS_DENIED)
    return plan.access


_OF_LINKS: Final = READ_CONTROL | WRITE_DAC | WRITE_OWNER | WRITE_ATTRIBUTES


def _means_link(plan: Plan) -> bool:
    """Tell whether the open means a symlink itself and not its target. Linux sets the option for
    it, except when it asks for owners, permissions and times; then it has followed all symlinks
    itself."""
    told = plan.wanted.options & wire.REPARSE_POINT
    return bool(told) or (plan.is_posix and not plan.access & ~_OF_LINKS)


def _admit(
    request: Request, share: Share, plan: Plan, node: Node, action: Action, *, is_first: bool
) -> tuple[Handle, Action]:
    """Check the open against existing handles, empty the file if requested, and make the handle."""
    wanted = plan.wanted
    stat = node.first or node.stat()
    if node.kind is FileKind.SYMLINK and not _means_link(plan):
        raise _stopped(request, node.read_link(), "")
    if node.kind not in (FileKind.FILE, FileKind.DIRECTORY) and not _means_link(plan):
        raise Refusal(Status.IO_REPARSE_TAG_NOT_HANDLED)
    file = share.file_of(stat, plan.stream)
    if file is None:
        file = File(stat, plan.stream)
    elif file.to_delete:
        raise Refusal(Status.DELETE_PENDING)
    if share.metadata.has_security and action is not Action.CREATED:
        access = _access_to(share, plan, stat)
        plan = Plan(wanted, plan.names, plan.stream, access, plan.mode, plan.lease)
    is_directory = node.kind is FileKind.DIRECTORY
    keeps = requested_lease(request, plan, is_directory=is_directory)
    if keeps:
        leases.check_key(file, keeps, request.connection.server.leases)
    if action is not Action.CREATED:
        _check_attributes(share, plan, node, stat)
    check_other_opens(request, file, plan, keeps, is_first=is_first)
    if action is Action.CREATED:
        finish_new(share, plan, node, stat)
    elif wanted.disposition in EMPTYING:
        with SizeChange(file.guard, node):
            empty_file(share, plan, node, stat)
        supersedes = wanted.disposition == SUPERSEDE
        action = Action.SUPERSEDED if supersedes else Action.OVERWRITTEN
    if action is not Action.OPENED and (given := wanted.contexts.get(wire.EXTENDED_ATTRIBUTES)):
        set_attributes(node, given)
    if action is not Action.OPENED and node.kind is FileKind.FILE:
        allocate_for(node, wanted.contexts.get(wire.ALLOCATION, b""))
    handle = Handle(
        request.connection.server.new_handle_id(),
        request.header.process,
        request.require_tree(),
        node,
        file,
        access=plan.access,
        sharing=wanted.sharing,
        mode=wanted.options & _KEPT_OPTIONS,
        is_posix=plan.is_posix,
        deletes=bool(wanted.options & wire.DELETE_ON_CLOSE),
    )
    is_kept = may_grant(request, is_directory=is_directory)
    if keeps and is_kept and (is_directory or node.kind is FileKind.FILE):
        leases.grant(
            file,
            handle,
            keeps,
            request.connection,
            request.connection.server.leases,
            most=grantable_state(request, plan, file, handle),
            empties=wanted.disposition in EMPTYING,
        )
    return handle, action


def _check_attributes(share: Share, plan: Plan, node: Node, stat: Stat) -> None:
    """Refuse the opens of read-only and hidden files that Windows refuses. Unix allows them."""
    if plan.is_posix or node.kind is not FileKind.FILE:
        return
    wanted = plan.wanted
    has = share.metadata.attributes(stat)
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
    """Return the error that tells the client where a symlink leads ([MS-SMB2] 2.2.2.2.1). The
    server follows no symlinks."""
    text = encode_text(names.target_to_wire(target))
    unparsed = 2 * len(rest) + (2 if rest else 0)
    data = reparse_symlink(text, relative=not target.startswith("/"), unparsed=unparsed)
    data = struct.pack("<II", len(data) + 4, 0x4C4D5953) + data
    if request.connection.negotiated.dialect == Dialect.SMB311:
        return Refusal(
            Status.STOPPED_ON_SYMLINK, struct.pack("<II", len(data), 0) + data, contexts=1
        )
    return Refusal(Status.STOPPED_ON_SYMLINK, data)


def reparse_symlink(text: bytes, *, relative: bool, unparsed: int = 0) -> bytes:
    """Encode a symlink ([MS-FSCC] 2.1.2.4)."""
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
        serial = handle.share.metadata.serial
        answers.append((wire.DISK_ID, struct.pack("<QQ16x", view.number, serial)))
    if handle.grant and handle.grant.key:
        answers.append((wire.LEASE_NAME, wire.encode_lease(encode_granted(handle.grant))))
    if plan.is_posix:
        answers.append((POSIX_TAG, posix.encode_create(stat)))
    return answers


# [MS-SMB2] 3.3.5.10
def close(request: Request) -> Reply:
    wants_attributes, file_id = wire.decode_close(request.message)
    handle = request.handle(file_id)
    body = wire.CLOSED
    has_assumed_mode = handle.file.has_assumed_mode and request.is_alone
    if wants_attributes:
        view = request.chain.view(handle)
        size = fscc.size_of(view.stat)
        body = wire.encode_close(view.times, view.allocated, size, view.attributes)
    request.require_session().close_handle(handle)
    if has_assumed_mode and wants_attributes:
        # The handle is closed. After a success Linux would trust its cached attributes for another
        # second, even the wrong mode (`smb2_close_getattr` in fs/smb/client/smb2ops.c).
        raise Refusal(Status.FILE_CLOSED)
    return Reply(body)

"""Leases and oplocks at an open: breaking the conflicting ones of others, and granting a new
one."""

import time

from quicksand_smb import host_writes, leases, streams
from quicksand_smb.access_rights import APPEND_DATA, WRITE_DATA
from quicksand_smb.commands.open_plan import EMPTYING, Plan
from quicksand_smb.connection import Reply
from quicksand_smb.conversation import Pending
from quicksand_smb.directory_leases import DEEPEST
from quicksand_smb.ledger import GUARD_COST, price
from quicksand_smb.messages import create as wire
from quicksand_smb.minimal_stdlib import Callable
from quicksand_smb.names import host_path
from quicksand_smb.open_file import File
from quicksand_smb.request import Request
from quicksand_smb.server_state import ServerState
from quicksand_smb.shares import Handle
from quicksand_smb.status import Refusal, Status, of_store
from quicksand_smb.store_errors import StoreError
from quicksand_smb.store_types import Action, FileKind, Stat


class MustWait(Exception):  # noqa: N818 - no error: it is tried again
    """Another client must first give back a lease or an oplock."""

    def __init__(self, file: File) -> None:
        super().__init__()
        self.file = file


def wait_for_breaks(request: Request, file: File, run: Callable[[], Reply]) -> Pending:
    """Answer when `run` no longer has to wait for the leases and oplocks on `file`."""

    def attempt() -> bool:
        if pending.async_id not in request.connection.conversation.pending:
            return True
        try:
            reply = run()
        except MustWait as found:
            if found.file is file:
                return False
            found.file.waiting_opens.append(attempt)
        except Refusal as error:
            pending.finish(error.status, b"")
        except StoreError as error:
            pending.finish(of_store(error), b"")
        else:
            pending.finish(Status.SUCCESS, reply.body)
        return True

    def cancel(status: Status) -> None:
        pending.finish(status, b"")

    pending = request.defer(cancel, opens=True)
    file.waiting_opens.append(attempt)
    return pending


def check_other_opens(
    request: Request, file: File, plan: Plan, keeps: leases.Wanted | None, *, is_first: bool
) -> None:
    """Compare an open with the handles that exist. Raises MustWait, and Refusal for a conflict."""
    shut_out = None
    try:
        file.check_sharing(plan.access, plan.wanted.sharing)
    except Refusal as error:
        shut_out = error
    if file.grants and leases.break_conflicting(
        file,
        keeps.key if keeps else None,
        plan.access,
        empties=plan.wanted.disposition in EMPTYING,
        deletes=bool(plan.wanted.options & wire.DELETE_ON_CLOSE),
        is_shut_out=shut_out is not None,
        is_first=is_first,
    ):
        raise MustWait(file)
    if shut_out:
        raise shut_out
    writes = plan.access & (WRITE_DATA | APPEND_DATA)
    if file.grants and writes and request.connection.server.config.leases == "read":
        leases.break_read_caching(file, None)


def requested_lease(request: Request, plan: Plan, *, is_directory: bool) -> leases.Wanted | None:
    """Return the lease or oplock that a client asks for. Its key counts even where none may be
    granted (`may_grant`): a client must not get one key for a file and a directory."""
    connection = request.connection
    kept = connection.server.config.leases
    if kept == "none" or (kept == "directories" and not is_directory):
        return None
    said = plan.lease
    if plan.wanted.oplock != leases.LEASE:
        state = leases.OPLOCKS.get(plan.wanted.oplock, leases.NONE)
        return leases.Wanted(state) if state else None
    if said is None:
        return None
    parent = said.parent if said.flags & wire.PARENT_KEY else b""
    key = (connection.client_guid, said.key)
    return leases.Wanted(said.state, key, said.version, parent, said.epoch)


def may_grant(request: Request, *, is_directory: bool) -> bool:
    """Tell whether the configuration allows leases on directories, or on files."""
    return is_directory == (request.connection.server.config.leases == "directories")


def grantable_state(request: Request, plan: Plan, file: File, handle: Handle) -> int:
    """Return the largest lease state that the configuration allows for an open. A file that a
    client writes gets no lease, so every change that is seen is the host's."""
    server = request.connection.server
    if handle.is_directory:
        return leases.READ if _watch_directory(server, plan, file, handle) else leases.NONE
    if server.config.leases == "all":
        return leases.EVERYTHING
    if any(one.access & (WRITE_DATA | APPEND_DATA) for one in (handle, *file.handles)):
        return leases.NONE
    if isinstance(handle.node, streams.StreamNode):
        return leases.NONE
    return leases.READ if server.watch(file, handle.node) else leases.NONE


def _watch_directory(server: ServerState, plan: Plan, file: File, handle: Handle) -> bool:
    """Watch a directory for changes. Returns False if some changes would go unnoticed."""
    share, names = handle.share, plan.names
    if file.unwatch is not None:
        return share.directory_leases.is_at(names, file)
    if len(names) > DEEPEST:
        return False
    if not server.watch_directory(file, handle.node, len(names)):
        return False
    is_there = False
    try:
        # The host may have moved it before it was watched, or it has two paths.
        is_there = share.store.where(handle.node) == names
    finally:
        if not is_there:
            file.end_watch()
    if is_there:
        share.directory_leases.add(names, file)
    return is_there


def level_of(handle: Handle) -> int:
    """Return the OplockLevel of the response ([MS-SMB2] 2.2.14)."""
    if handle.grant is None:
        return 0
    return leases.LEASE if handle.grant.key else handle.grant.level


def encode_granted(grant: leases.Grant) -> wire.LeaseRequest:
    flags = wire.BREAKING if grant.breaking is not None else 0
    flags |= wire.PARENT_KEY if grant.parent else 0
    key = grant.key[1] if grant.key else b""
    return wire.LeaseRequest(key, grant.state, flags, grant.version, grant.parent, grant.epoch)


def open_cost(request: Request, plan: Plan) -> int:
    """Return the most bytes that an open may take from the ledger."""
    keeps = bool(plan.wanted.oplock) and request.connection.server.config.leases != "none"
    path = b"/".join(host_path(plan.names))
    return price(path, keeps=keeps) + (GUARD_COST if _needs_guard(request, plan) else 0)


def _needs_guard(request: Request, plan: Plan) -> bool:
    """Tell whether a Linux client opens the file for writing, since Linux keeps pages without a
    lease."""
    writes = bool(plan.access & WRITE_DATA) and plan.is_posix and plan.lease is not None
    return writes and request.connection.server.config.leases == "directories"


def guard_open(request: Request, plan: Plan, handle: Handle, action: Action, stat: Stat) -> None:
    """Guard a file that Linux opens for writing against writes of the host: Linux may keep pages of
    it without a lease (`host_writes`)."""
    file, connection = handle.file, request.connection
    if not plan.access & WRITE_DATA or handle.node.kind is not FileKind.FILE:
        if file.guard is not None:
            file.guard.report_size(stat.size)
        return
    if file.guard is None and plan.lease is not None and _needs_guard(request, plan):
        key = (connection.client_guid, plan.lease.key)
        connection.server.guard(connection, key, file, handle.node, stat)
        known = handle.share.written.get((stat.device, stat.inode))
        is_new = action is not Action.OPENED
        if file.guard and not is_new and host_writes.is_suspect(stat, known, time.time_ns()):
            file.guard.suspect()
    if file.guard is not None:
        if file.guard.key[0] == connection.client_guid:
            file.guard.add_writer(handle)
        file.guard.report_size(stat.size)

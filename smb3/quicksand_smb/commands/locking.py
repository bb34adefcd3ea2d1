"""LOCK, and the acknowledgement of an oplock break or a lease break."""

from quicksand_smb import leases, locks
from quicksand_smb.access_rights import READ_DATA, WRITE_DATA
from quicksand_smb.connection import Reply
from quicksand_smb.conversation import Pending
from quicksand_smb.messages import lock as wire
from quicksand_smb.messages.session import EMPTY
from quicksand_smb.request import Request
from quicksand_smb.shares import Handle
from quicksand_smb.status import Refusal, Status


# [MS-SMB2] 3.3.5.14
def lock(request: Request) -> Reply | Pending:
    wanted = wire.decode_lock(request.message)
    handle = request.handle(wanted.file_id)
    if handle.is_directory:
        raise Refusal(Status.INVALID_PARAMETER)
    if wanted.elements[0].flags & wire.UNLOCK:
        return _unlock(handle, wanted.elements)
    handle.need(READ_DATA | WRITE_DATA)
    for one in wanted.elements:
        kind = one.flags & ~wire.AT_ONCE
        if kind not in (wire.SHARED, wire.EXCLUSIVE):
            raise Refusal(Status.INVALID_PARAMETER)
        if not one.flags & wire.AT_ONCE and len(wanted.elements) > 1:
            raise Refusal(Status.INVALID_PARAMETER)
        _check_range(one)
    _check_room(handle, len(wanted.elements))
    if handle.file.grants:
        leases.break_read_caching(handle.file, handle.grant)
    taken = 0
    for one in wanted.elements:
        attempt = locks.Lock(
            handle.id, one.offset, one.offset + one.length, bool(one.flags & wire.EXCLUSIVE)
        )
        if handle.file.locks.add(attempt):
            taken += 1
            continue
        handle.file.locks.take_back(taken)
        if one.flags & wire.AT_ONCE or not request.is_last:
            raise Refusal(Status.LOCK_NOT_GRANTED)
        return _wait(request, handle, attempt)
    return Reply(EMPTY)


def _check_room(handle: Handle, count: int) -> None:
    if len(handle.file.locks) + count > locks.MOST:
        raise Refusal(Status.INSUFFICIENT_RESOURCES)
    files = handle.share.files.values()
    if sum(len(one.locks) for one in files) + count > locks.MOST_OF_SHARE:
        raise Refusal(Status.INSUFFICIENT_RESOURCES)


def _check_range(one: wire.Element) -> None:
    if one.length and one.offset + one.length > locks.END:
        raise Refusal(Status.INVALID_LOCK_RANGE)


def _unlock(handle: Handle, elements: tuple[wire.Element, ...]) -> Reply:
    for one in elements:
        if one.flags != wire.UNLOCK:
            raise Refusal(Status.INVALID_PARAMETER)
        _check_range(one)
        if not handle.file.locks.remove(handle.id, one.offset, one.offset + one.length):
            handle.file.retry_locks()
            raise Refusal(Status.RANGE_NOT_LOCKED)
    handle.file.retry_locks()
    return Reply(EMPTY)


def _wait(request: Request, handle: Handle, wanted: locks.Lock) -> Pending:
    """Answer the request once the range is free."""
    file = handle.file

    def attempt() -> bool:
        if not file.locks.add(wanted):
            return False
        pending.finish(Status.SUCCESS, EMPTY)
        return True

    def cancel(status: Status) -> None:
        file.waiting = [one for one in file.waiting if one is not attempt]
        pending.finish(status, b"")

    pending = request.defer(cancel, handle=handle)
    file.waiting.append(attempt)
    return pending


# [MS-SMB2] 3.3.5.22
def acknowledge(request: Request) -> Reply:
    said = wire.decode_ack(request.message)
    connection = request.connection
    if isinstance(said, wire.LeaseAck):
        key = connection.client_guid, said.key
        if guard := connection.server.guards.get(key):
            guard.answered()
            return Reply(wire.encode_lease_ack(said.key, said.state))
        lease = connection.server.leases.get(key)
        if lease is None:
            raise Refusal(Status.OBJECT_NAME_NOT_FOUND)
        lease.acknowledge(said.state)
        return Reply(wire.encode_lease_ack(said.key, said.state))
    handle = request.handle(said.file_id)
    if handle.grant is None or handle.grant.key:
        raise Refusal(Status.INVALID_OPLOCK_PROTOCOL)
    handle.grant.acknowledge(leases.OPLOCKS.get(said.level, leases.NONE))
    return Reply(wire.encode_oplock(handle.grant.level if handle.grant else 0, said.file_id))

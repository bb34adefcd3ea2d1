"""What opens have to do with oplocks and leases: whom they disturb, and what they are given."""

from quicksand_smb import leases, streams
from quicksand_smb.commands.plan import EMPTYING, Plan
from quicksand_smb.config import KEEPS_DIRECTORIES
from quicksand_smb.house import House
from quicksand_smb.kept import DEEPEST
from quicksand_smb.light import Callable, Final
from quicksand_smb.messages import create as wire
from quicksand_smb.messages.create import CreateRequest
from quicksand_smb.reasons import Reason, StoreError
from quicksand_smb.request import Reply, Request
from quicksand_smb.shares import (
    APPEND_DATA,
    OF_BYTES,
    WRITE_DATA,
    File,
    Handle,
    Share,
)
from quicksand_smb.status import Refusal, Status, of_store

TRIES: Final = 140
"""How often an open is tried while another program has a lease on the file, each `house.SOON_S`:
somewhat longer than servers of this kind wait for their clients."""


class HeldUp(Exception):  # noqa: N818 - no error: it is tried again
    """What was granted to others has to be given back first."""

    def __init__(self, file: File) -> None:
        super().__init__()
        self.file = file


class Attempt:
    """An open that is tried again until nothing holds it up."""

    def __init__(self, request: Request, run: Callable[[], Reply]) -> None:
        self._connection = request.connection
        self._run = run
        self._tries = TRIES
        self.pending = request.defer(lambda status: self.pending.finish(status, b""))
        self.pending.opens = True

    def wait_for(self, file: File) -> None:
        """Others keep something of it."""

        def again() -> bool:
            return self._is_done(file)

        file.held_up.append(again)

    def wait_for_program(self) -> None:
        """Another program has a lease on the file."""
        house = self._connection.house
        if self._tries and house.can_try_soon:
            self._tries -= 1
            house.try_soon(lambda: self._is_done(None))
        else:
            self.pending.finish(Status.SHARING_VIOLATION, b"")

    def _is_done(self, waited_for: File | None) -> bool:
        """Whether it is done, or waits for something else."""
        if self.pending.async_id not in self._connection.pending:
            return True
        try:
            reply = self._run()
        except HeldUp as found:
            if found.file is waited_for:
                return False
            self.wait_for(found.file)
        except Refusal as error:
            self.pending.finish(error.status, b"")
        except StoreError as error:
            if error.reason is Reason.LEASED:
                self.wait_for_program()
            else:
                self.pending.finish(of_store(error), b"")
        else:
            self.pending.finish(Status.SUCCESS, reply.body)
        return True


def check_others(
    request: Request, file: File, plan: Plan, keeps: leases.Wanted | None, *, is_first: bool
) -> None:
    """Compare with the handles there are. Raises HeldUp, and Refusal for what they do not share."""
    shut_out = None
    try:
        file.check_sharing(plan.access, plan.wanted.sharing)
    except Refusal as error:
        shut_out = error
    if file.grants and leases.ask_others(
        file,
        keeps.key if keeps else None,
        plan.access,
        empties=plan.wanted.disposition in EMPTYING,
        deletes=bool(plan.wanted.options & wire.DELETE_ON_CLOSE),
        is_shut_out=shut_out is not None,
        is_first=is_first,
    ):
        raise HeldUp(file)
    if shut_out:
        raise shut_out
    writes = plan.access & (WRITE_DATA | APPEND_DATA)
    if file.grants and writes and request.connection.house.config.leases == "read":
        leases.tell_change(file, None)


def wanted_grant(
    request: Request, wanted: CreateRequest, *, is_directory: bool
) -> leases.Wanted | None:
    """What a client asks to keep, where it may keep anything."""
    connection = request.connection
    kept = connection.house.config.leases
    if kept == "none" or (kept not in KEEPS_DIRECTORIES if is_directory else kept == "directories"):
        return None
    if wanted.oplock != leases.LEASE:
        state = leases.OPLOCKS.get(wanted.oplock, leases.NONE)
        return leases.Wanted(state) if state else None
    data = wanted.contexts.get(wire.LEASE_NAME)
    if data is None or not connection.has_leases:
        return None
    said = wire.decode_lease(data)
    parent = said.parent if said.flags & wire.PARENT_KEY else b""
    key = (connection.client_guid, said.key)
    return leases.Wanted(said.state, key, said.version, parent, said.epoch)


def grant_what_can_be(request: Request, plan: Plan, handle: Handle, keeps: leases.Wanted) -> None:
    """Of what is asked for a handle just opened, which is not among the file's yet."""
    file, house = handle.file, request.connection.house
    leases.grant(
        file,
        handle,
        keeps,
        request.connection,
        house.leases,
        most=_most_kept(house, plan, handle, keeps),
        empties=plan.wanted.disposition in EMPTYING,
    )
    if file.lease:
        file.lease.end_if_idle()


def _most_kept(house: House, plan: Plan, handle: Handle, keeps: leases.Wanted) -> int:
    """What a client may keep, as the configuration has it. For `read`, what one writes nobody
    keeps, so that whatever is seen to change is the host's doing."""
    file = handle.file
    if handle.is_directory:
        return leases.READ if _keep_directory(house, plan, file, handle) else leases.NONE
    if house.config.leases == "all":
        return leases.EVERYTHING
    if house.config.leases == "coherent":
        return leases.READ | leases.WRITE if _keep_written(house, file, handle, keeps) else 0
    if any(one.access & (WRITE_DATA | APPEND_DATA) for one in (handle, *file.handles)):
        return leases.NONE
    if isinstance(handle.node, streams.StreamNode):
        return leases.NONE
    return leases.READ if house.watch(file, handle.node) else leases.NONE


def _keep_written(house: House, file: File, handle: Handle, keeps: leases.Wanted) -> bool:
    """Whether the host's programs can be made to wait for what is written to a file."""
    if not keeps.state & leases.WRITE or not handle.access & (WRITE_DATA | APPEND_DATA):
        return False
    if file.lease or file.locks or isinstance(handle.node, streams.StreamNode):
        return False
    return not any(one.access & OF_BYTES for one in file.handles) and house.lease(file, handle)


def free(share: Share, plan: Plan) -> bool:
    """Before a file is opened on which there is a lease: end it, if it is ours. Who may keep
    something is asked for it."""
    file = share.file_of(share.store.look(plan.names))
    if file is None or file.lease is None:
        return False
    file.lease.end()
    for grant in list(file.grants):
        grant.ask_back(leases.NONE)
    return True


def _keep_directory(house: House, plan: Plan, file: File, handle: Handle) -> bool:
    """Whether all that happens in a directory will be heard of."""
    share, names = handle.share, plan.names
    if file.unwatch is not None:
        return share.kept.is_at(names, file)
    if len(names) > DEEPEST:
        return False
    if not house.watch_directory(file, handle.node, len(names)):
        return False
    if share.store.where(handle.node) != names:
        # The host has moved it before it was watched, or it has two paths.
        file.end_watch()
        return False
    share.kept.add(names, file)
    return True


def level_of(handle: Handle) -> int:
    """[MS-SMB2] 2.2.14, OplockLevel."""
    if handle.grant is None:
        return 0
    return leases.LEASE if handle.grant.key else handle.grant.level


def told_lease(grant: leases.Grant) -> wire.LeaseRequest:
    flags = wire.BREAKING if grant.breaking is not None else 0
    flags |= wire.PARENT_KEY if grant.parent else 0
    key = grant.key[1] if grant.key else b""
    return wire.LeaseRequest(key, grant.state, flags, grant.version, grant.parent, grant.epoch)

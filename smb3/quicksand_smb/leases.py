"""Oplocks and leases: permissions of clients to cache files, and breaking them.

A `Grant` stands for either. A lease has a key that its client chose, and several handles share it.
An oplock belongs to one handle. A grant consists of up to three permissions ([MS-SMB2] 2.2.13.2.8):
to cache reads, to cache writes, and to keep the file open without using it. A request that
conflicts with a grant breaks it by a message. If the holder may have written bytes or an unused
open, the request waits for the acknowledgement, at most `PATIENCE_S`.

See [MS-SMB2] 3.3.4.6, 3.3.4.7, 3.3.5.9.8, 3.3.5.9.11, 3.3.5.22 and [MS-FSA] 2.1.4.12, 2.1.5.18.
"""

from quicksand_smb.minimal_stdlib import Callable, Final, Iterable, NamedTuple, Protocol
from quicksand_smb.status import Refusal, Status

NONE: Final = 0
READ: Final = 1
HANDLE: Final = 2
WRITE: Final = 4
EVERYTHING: Final = READ | HANDLE | WRITE
PATIENCE_S: Final = 35
"""The seconds that a client has to acknowledge a break, as with Windows and Samba."""

# [MS-SMB2] 2.2.13, RequestedOplockLevel
LEVEL_II: Final = 0x01
EXCLUSIVE: Final = 0x08
BATCH: Final = 0x09
LEASE: Final = 0xFF
OPLOCKS: Final = {LEVEL_II: READ, EXCLUSIVE: READ | WRITE, BATCH: READ | WRITE | HANDLE}
_LEVELS: Final = {states: level for level, states in OPLOCKS.items()}

_LOOKS: Final = 0x100000 | 0x80 | 0x100
"""Accesses that conflict with no grant: to wait for the handle, and to read and write
attributes."""
_LOOKS_AT_LEASE: Final = _LOOKS | 0x20000

Key = tuple[bytes, bytes]
"""A client's GUID, and the key of one of its leases."""


class Wanted(NamedTuple):
    """The lease or oplock that an open asks for."""

    state: int
    key: Key | None = None
    """None means an oplock."""
    version: int = 1
    parent: bytes = b""
    """The key of the directory's lease. The client sends it and gets it back."""
    epoch: int = 0


class Timer(Protocol):
    def cancel(self) -> None: ...


class BreakSender(Protocol):
    """The part of a connection that grants use."""

    def send_break(self, grant: "Grant", then: int, *, needs_answer: bool) -> None:
        """Tell the client that only `then` is left of its grant."""

    def start_break_timer(self, late: Callable[[], None]) -> Timer:
        """Start a timer of `PATIENCE_S`. It calls `late` under the server's lock."""


class LeaseHolder(Protocol):
    """The part of a handle that this module uses."""

    id: int
    access: int
    grant: "Grant | None"


class LeasedFile(Protocol):
    """The part of an open file that this module uses."""

    grants: "list[Grant]"

    @property
    def handles(self) -> Iterable[LeaseHolder]: ...
    @property
    def locks(self) -> object: ...
    def retry_opens(self) -> None: ...


class Grant:
    def __init__(self, file: "LeasedFile", wanted: Wanted, table: "dict[Key, Grant]") -> None:
        self.file = file
        self._table = table
        self.key = wanted.key
        self.version = wanted.version
        self.parent = wanted.parent
        self.epoch = wanted.epoch
        self.state = NONE
        self.breaking: int | None = None
        """The state that the break offers to the client, until it acknowledges."""
        self._required = 0
        """The state that the client may keep in the end. Further breaks meanwhile reduce it."""
        self._timer: Timer | None = None
        self.holders: dict[LeaseHolder, BreakSender] = {}

    @property
    def level(self) -> int:
        """The OplockLevel of an oplock."""
        return _LEVELS.get(self.state, 0)

    def break_to(self, then: int, *, is_same: bool = False) -> None:
        """Leave the client no more than `then`. `is_same` marks a further step of one break."""
        then &= self.state
        if self.breaking is not None:
            self._required &= then
            return
        if then == self.state or not self.holders:
            return
        # A holder that only caches reads has nothing to write back and sends no acknowledgement.
        needs_answer = bool(self.state & (WRITE | HANDLE))
        if self.version == 2 and not is_same:
            self.epoch = (self.epoch + 1) & 0xFFFF
        sender = next(iter(self.holders.values()))
        if needs_answer:
            self.breaking = self._required = then
            self._timer = sender.start_break_timer(self.time_out)
        sender.send_break(self, then, needs_answer=needs_answer)
        if not needs_answer:
            self.state = then

    def acknowledge(self, state: int) -> None:
        """Accept the client's acknowledgement of a break. Raises Refusal."""
        if self.breaking is None:
            raise Refusal(Status.UNSUCCESSFUL if self.key else Status.INVALID_OPLOCK_PROTOCOL)
        if state & ~self.breaking:
            if self.key:
                raise Refusal(Status.REQUEST_NOT_ACCEPTED)
            self._settle(NONE)
            raise Refusal(Status.INVALID_OPLOCK_PROTOCOL)
        self._settle(state)

    def _settle(self, state: int) -> None:
        required = self._required
        self._stop_timer()
        self.state, self.breaking = state, None
        if state & ~required:
            # Break step by step: a client may cache reads until it has closed its handle.
            step = required | state & READ if state & HANDLE else required
            self.break_to(step, is_same=True)
            if self.breaking is not None:
                self._required = required
        self.file.retry_opens()

    def time_out(self) -> None:
        """Take the grant away from a client that does not acknowledge."""
        if self.breaking is not None:
            self._required = NONE
            self._settle(NONE)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def release(self, handle: "LeaseHolder") -> None:
        """Remove a handle that is being closed. The last one removes the grant."""
        self.holders.pop(handle, None)
        if not self.holders:
            self._stop_timer()
            self.state, self.breaking = NONE, None
            if self in self.file.grants:
                self.file.grants.remove(self)
            if self.key and self._table.get(self.key) is self:
                del self._table[self.key]


def break_conflicting(
    file: "LeasedFile",
    own: Key | None,
    access: int,
    *,
    empties: bool,
    deletes: bool,
    is_shut_out: bool,
    is_first: bool = True,
) -> bool:
    """Break the grants that conflict with an open. Returns True if the open has to wait.

    `is_shut_out` means that the sharing of another handle refuses the open. Its holder may not need
    the file any more.
    """
    if not empties and not access & ~_LOOKS:
        return False
    in_the_way = HANDLE if is_shut_out else WRITE | HANDLE if deletes else WRITE
    waits = False
    for grant in list(file.grants):
        if own is not None and grant.key == own:
            continue
        if grant.key and not access & ~_LOOKS_AT_LEASE and not empties:
            continue
        then = grant.state & ~in_the_way
        if empties:
            then &= ~(HANDLE | READ)
        was_breaking = grant.breaking is not None
        if then == grant.state:
            waits |= was_breaking
            continue
        if empties:
            then = NONE
        if grant.key is None:
            then &= READ
        waits |= bool(grant.state & in_the_way) or (was_breaking and not is_first)
        grant.break_to(then)
    return waits


def break_handle_caching(file: "LeasedFile", own: Grant | None) -> bool:
    """Break handle caching before a file is renamed or removed. Returns True if the request has to
    wait."""
    waits = False
    for grant in list(file.grants):
        if grant is own or not grant.key:
            continue
        waits |= bool(grant.state & HANDLE)
        grant.break_to(grant.state & ~HANDLE)
    return waits


def break_read_caching(file: "LeasedFile", by: Grant | None) -> None:
    """Break the read caching of all others, because bytes of the file change or are locked."""
    for grant in list(file.grants):
        if grant is not by or not (grant.key or grant.state & WRITE):
            grant.break_to(NONE)


def check_key(file: "LeasedFile | None", wanted: Wanted, table: dict[Key, Grant]) -> None:
    """Refuse a key that belongs to another open file."""
    known = table.get(wanted.key) if wanted.key else None
    if known is not None and known.file is not file:
        raise Refusal(Status.INVALID_PARAMETER)


def grant(
    file: "LeasedFile",
    handle: "LeaseHolder",
    wanted: Wanted,
    sender: BreakSender,
    table: dict[Key, Grant],
    *,
    most: int,
    empties: bool,
) -> Grant | None:
    """Grant as much as possible to a new handle, which is not yet among those of the file."""
    mine = table.get(wanted.key) if wanted.key else None
    state = wanted.state & most
    if not state & READ or file.locks:
        state = NONE
    others = [
        one
        for one in file.handles
        if one.grant is not mine or mine is None
        if one.grant or one.access & ~_LOOKS_AT_LEASE
    ]
    if others:
        state &= ~WRITE
        if wanted.key is not None:
            if any(not (one.grant and one.grant.key) for one in others):
                state &= ~HANDLE
        elif not (handle.access & ~_LOOKS or empties) or any(
            one.grant and one.grant.key and one.grant.state & HANDLE for one in others
        ):
            state = NONE
    if wanted.key is None:
        state = state if state in _LEVELS else state & READ
        if not state:
            return None
    if mine is None:
        mine = Grant(file, wanted, table)
        file.grants.append(mine)
        if wanted.key:
            table[wanted.key] = mine
        mine.state = state
        mine.epoch = (wanted.epoch + 1) & 0xFFFF if wanted.version == 2 else 0
    elif mine.breaking is None and state == wanted.state & most and state & ~mine.state:
        if mine.state & ~state:
            state = mine.state
        mine.state = state
        mine.epoch = (mine.epoch + 1) & 0xFFFF
    mine.holders[handle] = sender
    handle.grant = mine
    return mine

"""Oplocks and leases: what a client may keep to itself of a file, and how it is asked back.

Both are a `Grant` here: a lease is one that several handles share, known by a key of its client's;
an oplock belongs to one handle. A grant is of three permissions ([MS-SMB2] 2.2.13.2.8): to keep
what was read, what was written, and the file open though nobody uses it. What stands against
another's request is asked back by a message; where that one may have kept something which counts
(written bytes, an open file), the request waits for its answer, for `PATIENCE_S` at most.

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
"""What Windows and Samba give a client to answer."""

# [MS-SMB2] 2.2.13, RequestedOplockLevel
LEVEL_II: Final = 0x01
EXCLUSIVE: Final = 0x08
BATCH: Final = 0x09
LEASE: Final = 0xFF
OPLOCKS: Final = {LEVEL_II: READ, EXCLUSIVE: READ | WRITE, BATCH: READ | WRITE | HANDLE}
_LEVELS: Final = {states: level for level, states in OPLOCKS.items()}

_LOOKS: Final = 0x100000 | 0x80 | 0x100
"""Accesses that disturb nobody: to wait for the handle, to read and to write attributes."""
_LOOKS_AT_LEASE: Final = _LOOKS | 0x20000

Key = tuple[bytes, bytes]
"""A client's GUID and the key that it has given a lease."""


class Wanted(NamedTuple):
    """What a request for an open asks to keep."""

    state: int
    key: Key | None = None
    """None: an oplock."""
    version: int = 1
    parent: bytes = b""
    """The key of the directory's lease; the client tells it, and it comes back."""
    epoch: int = 0


class Timer(Protocol):
    def cancel(self) -> None: ...


class BreakSender(Protocol):
    """A connection, as far as grants know it."""

    def send_break(self, grant: "Grant", then: int, *, needs_answer: bool) -> None:
        """Tell the client that `then` is what is left of its grant."""

    def start_break_timer(self, late: Callable[[], None]) -> Timer:
        """Start to count `PATIENCE_S`; `late` is called under the lock of the server."""


class LeaseHolder(Protocol):
    """What this module knows of a handle."""

    id: int
    access: int
    grant: "Grant | None"


class LeasedFile(Protocol):
    """What this module knows of an open file."""

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
        """What the client was told it may keep, until it answers."""
        self._required = 0
        """What it may keep in the end; less, if more was asked for meanwhile."""
        self._timer: Timer | None = None
        self.holders: dict[LeaseHolder, BreakSender] = {}

    @property
    def level(self) -> int:
        """Of an oplock, as it is told."""
        return _LEVELS.get(self.state, 0)

    def break_to(self, then: int, *, is_same: bool = False) -> None:
        """Leave the client no more than `then`. `is_same`: it is a further step of one demand."""
        then &= self.state
        if self.breaking is not None:
            self._required &= then
            return
        if then == self.state or not self.holders:
            return
        # Who only reads has nothing to give back, and answers nothing.
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
        """The client says what it keeps. Raises Refusal."""
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
            # Step by step: who gives up the handle still may read until it has.
            step = required | state & READ if state & HANDLE else required
            self.break_to(step, is_same=True)
            if self.breaking is not None:
                self._required = required
        self.file.retry_opens()

    def time_out(self) -> None:
        """The client does not answer: it keeps nothing, as far as others are concerned."""
        if self.breaking is not None:
            self._required = NONE
            self._settle(NONE)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def release(self, handle: "LeaseHolder") -> None:
        """A handle is closed; the last takes the grant with it."""
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
    """Ask back what stands against an open; whether its answer has to wait.

    `is_shut_out`: somebody's sharing stands against it, who may not need the file any more.
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
    """Before a file is renamed or removed: ask those to close it who need not have it open. Whether
    to wait for them."""
    waits = False
    for grant in list(file.grants):
        if grant is own or not grant.key:
            continue
        waits |= bool(grant.state & HANDLE)
        grant.break_to(grant.state & ~HANDLE)
    return waits


def break_read_caching(file: "LeasedFile", by: Grant | None) -> None:
    """Bytes of a file change, or are locked: nobody else may keep what was read of it."""
    for grant in list(file.grants):
        if grant is not by or not (grant.key or grant.state & WRITE):
            grant.break_to(NONE)


def check_key(file: "LeasedFile | None", wanted: Wanted, table: dict[Key, Grant]) -> None:
    """A key belongs to one file as long as a handle has it."""
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
    """Give what can be given to a handle just opened, which is not among the file's yet."""
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

"""One request on its way: what a command is given, and what it gives back."""

import os
from _thread import get_ident
from time import thread_time

from quicksand_smb import header as headers
from quicksand_smb import signing
from quicksand_smb.credits import FEWER, MOST, SPARE, Window
from quicksand_smb.fscc import View
from quicksand_smb.header import Header
from quicksand_smb.house import House
from quicksand_smb.leases import Clock, Grant
from quicksand_smb.ledger import OF_PENDING
from quicksand_smb.light import Callable, Enum, Final, NamedTuple, auto
from quicksand_smb.messages.negotiate import Dialect
from quicksand_smb.session import Session
from quicksand_smb.shares import Handle, Share, Tree
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store import Node
from quicksand_smb.wire import Buffer, ProtocolError

SAME_FILE: Final = ((1 << 64) - 1, (1 << 64) - 1)
"""In a chain: the file that the request before opened or used."""


FREE_IN_FRAME: Final = 8
"""Requests of a frame that are answered whatever they cost; clients join fewer."""
FRAME_S: Final = 0.25
"""Seconds of the processor that those behind them may cost together, but for the last."""
LARGEST_REST: Final = 64 << 10
"""Bytes of a chain that wait for the open at its beginning."""
MOST_PENDING: Final = 512
"""Requests of a connection that wait for something; more are refused."""


class Phase(Enum):
    FRESH = auto()
    """Only NEGOTIATE is understood."""
    OPEN = auto()
    CLOSED = auto()


class FileData(NamedTuple):
    """Bytes of a file that the kernel moves to the stream."""

    node: Node
    offset: int
    length: int


class Reply:
    __slots__ = ("body", "data", "file", "status")

    def __init__(
        self,
        body: bytes,
        status: int = Status.SUCCESS,
        data: Buffer = b"",
        file: FileData | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.data = data
        """Follows the body; where nothing follows, it is not copied."""
        self.file = file
        """Follows, too; only where nothing else follows and nothing is signed."""


class Pending:
    """A request that is answered later. Everything here is done under the lock of the house."""

    def __init__(self, request: "Request", async_id: int, cancel: Callable[[Status], None]) -> None:
        self.connection = request.connection
        self.header = request.header
        self.session = request.session
        self.tree = request.tree
        self.async_id = async_id
        self.cost = 0
        """Bytes that were taken of the ledger."""
        self.handle: Handle | None = None
        self.opens = False
        """It waits until a file may be opened, or moved."""
        self.rest: list[bytes] = []
        """What follows in its frame."""
        self.chain: Chain | None = None
        self.begin: Callable[[], None] | None = None
        """Called when the client has been told that it must wait: the answer may be there."""
        self.cancel = cancel
        """Gives the request up, with the status that its answer is to have."""

    def keep(self, rest: list[memoryview]) -> None:
        """Keep what follows in the frame. Raises ProtocolError if that is too much."""
        size = sum(map(len, rest))
        if size > LARGEST_REST or not self.connection.house.ledger.has(size):
            raise ProtocolError("too much behind a request that has to wait")
        self.cost += size
        self.rest = [bytes(one) for one in rest]

    def finish(self, status: Status, body: bytes) -> None:
        self.connection.finish(self, status, body)


class Link:
    """What is agreed on a connection, and what lives on it."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.can_send_files = False
        """The stream takes bytes of files from the kernel."""
        self.conversation = 0
        """Which one it is, where a stream has several after each other."""
        self.begin()

    def begin(self) -> None:
        """As when nothing was said yet."""
        self.phase = Phase.FRESH
        self.dialect = 0
        self.pays_by_size = False
        """A request costs a credit for each 64 KiB."""
        self.client_guid = b""
        self.client_mode = 0
        self.client_capabilities = 0
        self.client_dialects: tuple[int, ...] = ()
        self.capabilities = 0
        self.has_posix = False
        self.has_leases = False
        self.signs_with = signing.Algorithm.HMAC_SHA256
        self.handshake = signing.NO_HANDSHAKE
        self.largest = 1 << 16
        joins = self.house.config.resynchronise
        self.window = Window(FEWER, SPARE) if joins else Window(MOST)
        self.sessions: dict[int, Session] = {}
        self.pending: dict[int, Pending] = {}
        self._async = int.from_bytes(os.urandom(2), "little")

    def speak(self, dialect: int) -> None:
        """What was negotiated."""
        self.dialect = dialect
        self.pays_by_size = dialect >= Dialect.SMB210

    @property
    def deletes_at_once(self) -> bool:
        """As Unix does it: a name goes while others still have the file open."""
        return self.has_posix

    def defer(self, request: "Request", cancel: Callable[[Status], None]) -> Pending:
        if len(self.pending) >= MOST_PENDING:
            raise Refusal(Status.INSUFFICIENT_RESOURCES)
        # What it said is kept decoded, too.
        cost = self.house.ledger.take(OF_PENDING + 2 * len(request.message))
        self._async += 1
        pending = Pending(request, self._async, cancel)
        pending.cost = cost
        self.pending[pending.async_id] = pending
        return pending

    def give_up(self, handle: Handle) -> None:
        """A handle is closed: requests that wait for its locks fail."""
        for pending in list(self.pending.values()):
            if pending.handle is handle:
                pending.cancel(Status.RANGE_NOT_LOCKED)

    def give_up_tree(self, tree: Tree) -> None:
        """A tree is disconnected: requests that wait to open something there fail."""
        for pending in list(self.pending.values()):
            if pending.tree is tree and pending.opens:
                pending.cancel(Status.CANCELLED)

    def tell_break(self, grant: Grant, then: int, *, needs_answer: bool) -> None:
        """[MS-SMB2] 3.3.4.6, 3.3.4.7: a message that answers nothing."""
        raise NotImplementedError

    def ask_to_drop(self, key: bytes) -> None:
        """Have the client drop what it keeps of a file, for which it has asked for this lease."""
        raise NotImplementedError

    def expect_answer(self, late: Callable[[], None]) -> Clock:
        return self.house.expect(late)

    def forget(self, session: Session) -> None:
        """A session ends: by a login that failed, or because another replaces it."""
        self.sessions.pop(session.id, None)
        self.house.sessions.pop(session.id, None)
        session.end()

    def finish(self, pending: Pending, status: Status, body: bytes) -> None:
        """Give a request that waited its answer."""
        raise NotImplementedError


class Room:
    """How much the requests of one frame may still move, and cost. Their answers are in memory at
    once: together they are no larger than one may be."""

    __slots__ = ("_begun", "_count", "_thread", "left")

    def __init__(self, largest: int) -> None:
        self.left = max(largest, 1 << 20)
        self._count = 0
        self._begun = 0.0
        self._thread = 0

    def admit(self) -> None:
        """One more request is to be answered. Raises Refusal if those before have cost too much:
        none is dear, but a frame has room for many."""
        self._count += 1
        if self._count < FREE_IN_FRAME:
            return
        if self._thread != get_ident():  # the clock is the thread's
            self._begun, self._thread = thread_time(), get_ident()
        elif thread_time() - self._begun > FRAME_S:
            raise Refusal(Status.INSUFFICIENT_RESOURCES)


class Chain:
    """What the requests of one frame that are related hand on to each other."""

    __slots__ = ("error", "file_id", "is_broken", "is_new", "room", "seen", "session_id", "tree_id")

    def __init__(self, room: Room) -> None:
        self.room = room
        self.session_id = 0
        self.tree_id = 0
        self.file_id: tuple[int, int] | None = None
        self.is_new = True
        """Nothing of it was handled."""
        self.is_broken = False
        """It begins with a request that is related to nothing."""
        self.error: Status | None = None
        """Why there is no file for those that follow."""
        self.seen: tuple[Handle, View] | None = None
        """What the CREATE before has told of its file; who changes anything forgets it."""

    def view(self, handle: Handle) -> View:
        """What the CREATE right before has told; else, as it is now."""
        if self.seen is not None and self.seen[0] is handle:
            return self.seen[1]
        return handle.share.view_of(handle)


class Request:
    __slots__ = (
        "chain", "connection", "header", "is_alone", "is_last", "message", "session", "tree",
    )  # fmt: skip

    def __init__(
        self,
        connection: "Link",
        header: Header,
        message: memoryview,
        chain: Chain,
        *,
        is_alone: bool,
    ) -> None:
        self.connection = connection
        self.header = header
        self.message = message
        self.chain = chain
        self.is_alone = is_alone
        """Nothing else is in its frame."""
        self.is_last = not header.next
        self.session: Session | None = None
        self.tree: Tree | None = None

    def require_session(self) -> Session:
        assert self.session is not None, "the table of commands says who needs a session"
        return self.session

    def require_tree(self) -> Tree:
        assert self.tree is not None, "the table of commands says who needs a tree"
        return self.tree

    def require_share(self) -> Share:
        return self.require_tree().require_share()

    def handle(self, file_id: tuple[int, int]) -> Handle:
        """The handle a request is about; in a chain it may be the one of the request before."""
        if file_id == SAME_FILE and self.header.flags & headers.RELATED:
            if self.chain.error is not None:
                raise Refusal(self.chain.error)
            if self.chain.file_id is None:
                raise Refusal(Status.FILE_CLOSED)
            file_id = self.chain.file_id
        handle = self.require_session().find_handle(file_id, self.require_tree())
        if handle.share.is_gone:
            raise Refusal(Status.NETWORK_NAME_DELETED)
        self.chain.file_id = handle.id, handle.id
        return handle

    def check_payload(self, count: int) -> None:
        """[MS-SMB2] 3.3.5.2.5: a request pays one credit for each 64 KiB it moves."""
        if count > self.connection.largest:
            raise Refusal(Status.INVALID_PARAMETER)
        if self.connection.pays_by_size and count > max(self.header.charge, 1) << 16:
            raise Refusal(Status.INVALID_PARAMETER)
        room = self.chain.room
        room.left -= count
        if room.left < 0:
            raise Refusal(Status.INSUFFICIENT_RESOURCES)

    def defer(self, cancel: Callable[[Status], None]) -> Pending:
        return self.connection.defer(self, cancel)

    def unlocked(self) -> "Unlocked":
        """Let others work while this request waits for a disk."""
        return Unlocked(self.connection.house)


class Unlocked:
    """A `with` in which the lock of the house is let go."""

    __slots__ = ("_lock",)

    def __init__(self, house: House) -> None:
        self._lock = house.lock

    def __enter__(self) -> None:
        self._lock.release()

    def __exit__(self, *_: object) -> None:
        self._lock.acquire()

"""One request on its way: what a command is given, and what it hands on."""

from _thread import get_ident
from time import thread_time

from quicksand_smb import header as headers
from quicksand_smb.connection import Connection
from quicksand_smb.conversation import Pending
from quicksand_smb.fscc import View
from quicksand_smb.header import Header
from quicksand_smb.ledger import PENDING_COST
from quicksand_smb.minimal_stdlib import Callable, Final
from quicksand_smb.server_state import ServerState
from quicksand_smb.session import Session
from quicksand_smb.shares import Handle, Share, Tree
from quicksand_smb.status import Refusal, Status

SAME_FILE: Final = ((1 << 64) - 1, (1 << 64) - 1)
"""In a chain: the file that the request before opened or used."""


FREE_IN_FRAME: Final = 8
"""Requests of a frame that are answered whatever they cost; clients join fewer."""
FRAME_S: Final = 0.25
"""Seconds of the processor that those behind them may cost together, but for the last."""
MOST_PENDING: Final = 512
"""Requests of a connection that wait for something; more are refused."""


class FrameBudget:
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

    __slots__ = (
        "budget",
        "error",
        "file_id",
        "is_broken",
        "is_new",
        "seen",
        "session_id",
        "tree_id",
    )

    def __init__(self, budget: FrameBudget) -> None:
        self.budget = budget
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
        return handle.share.metadata.view(handle.node.stat())


class Request:
    __slots__ = (
        "chain", "connection", "header", "is_alone", "is_last", "message", "session", "tree",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
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
        budget = self.chain.budget
        budget.left -= count
        if budget.left < 0:
            raise Refusal(Status.INSUFFICIENT_RESOURCES)

    def defer(
        self,
        cancel: Callable[[Status], None],
        *,
        handle: Handle | None = None,
        opens: bool = False,
        begin: Callable[[], None] | None = None,
    ) -> Pending:
        """Have the request answered later. Raises Refusal if too many wait (see `Pending`)."""
        connection, conversation = self.connection, self.connection.conversation
        if len(conversation.pending) >= MOST_PENDING:
            raise Refusal(Status.INSUFFICIENT_RESOURCES)
        # What it said is kept decoded, too.
        ledger = connection.server.ledger
        pending = Pending(
            self.header,
            self.session,
            self.tree,
            async_id=conversation.new_async_id(),
            ledger=ledger,
            cost=ledger.take(PENDING_COST + 2 * len(self.message)),
            answer=connection.finish,
            cancel=cancel,
            handle=handle,
            opens=opens,
            begin=begin,
        )
        conversation.pending[pending.async_id] = pending
        return pending

    def unlocked(self) -> "Unlocked":
        """Let others work while this request waits for a disk."""
        return Unlocked(self.connection.server)


class Unlocked:
    """A `with` in which the lock of the server is let go."""

    __slots__ = ("_lock",)

    def __init__(self, server: ServerState) -> None:
        self._lock = server.lock

    def __enter__(self) -> None:
        self._lock.release()

    def __exit__(self, *_: object) -> None:
        self._lock.acquire()

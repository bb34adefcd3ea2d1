"""A request: the input of a command, and the state that the requests of a compound share."""

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
"""The file id that means the file of the previous request in the chain."""


FREE_IN_FRAME: Final = 8
"""The requests of a frame that are answered at any cost. Clients join fewer."""
FRAME_S: Final = 0.25
"""The processor time in seconds that the following requests may take together. The last one may
exceed it."""
MOST_PENDING: Final = 512
"""The most waiting requests of a connection. Further ones are refused."""


class FrameBudget:
    """The payload and processor time that the requests of one frame may still use. All answers are
    in memory at once, so together they are no larger than one may be."""

    __slots__ = ("_begun", "_count", "_thread", "left")

    def __init__(self, largest: int) -> None:
        self.left = max(largest, 1 << 20)
        self._count = 0
        self._begun = 0.0
        self._thread = 0

    def admit(self) -> None:
        """Admit one more request. Raises Refusal if the earlier ones took too long: no single one
        does, but a frame holds many."""
        self._count += 1
        if self._count < FREE_IN_FRAME:
            return
        if self._thread != get_ident():  # each thread has a clock of its own
            self._begun, self._thread = thread_time(), get_ident()
        elif thread_time() - self._begun > FRAME_S:
            raise Refusal(Status.INSUFFICIENT_RESOURCES)


class Chain:
    """The state that the related requests of one frame share."""

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
        """No request of the chain was handled yet."""
        self.is_broken = False
        """The chain begins with a related request, which has no predecessor."""
        self.error: Status | None = None
        """The error of the CREATE, for the requests that follow."""
        self.seen: tuple[Handle, View] | None = None
        """The file as the CREATE before has reported it. A request that changes anything forgets
        it."""

    def view(self, handle: Handle) -> View:
        """Return the file as the CREATE right before has reported it, or else as it is now."""
        if self.seen is not None and self.seen[0] is handle:
            return self.seen[1]
        return handle.share.view_of(handle)


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
        """The frame holds no other request."""
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
        """Return the handle of the request. In a chain it may be that of the previous request."""
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
        """Check that the request pays one credit for each 64 KiB it moves ([MS-SMB2] 3.3.5.2.5)."""
        negotiated = self.connection.conversation.negotiated
        if count > negotiated.largest:
            raise Refusal(Status.INVALID_PARAMETER)
        if negotiated.pays_by_size and count > max(self.header.charge, 1) << 16:
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
        # The decoded message is kept, too.
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
        """Release the lock while this request waits for a disk."""
        return Unlocked(self.connection.server)


class Unlocked:
    """A context in which the server's lock is released."""

    __slots__ = ("_lock",)

    def __init__(self, server: ServerState) -> None:
        self._lock = server.lock

    def __enter__(self) -> None:
        self._lock.release()

    def __exit__(self, *_: object) -> None:
        self._lock.acquire()

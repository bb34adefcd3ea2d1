"""The conversation on a connection: what NEGOTIATE has agreed on, and what lives until its end."""

import os

from quicksand_smb.credits import Window
from quicksand_smb.header import Header
from quicksand_smb.ledger import Ledger
from quicksand_smb.messages.negotiate import NegotiateRequest
from quicksand_smb.minimal_stdlib import Callable, Final, NamedTuple
from quicksand_smb.session import Session
from quicksand_smb.shares import Handle, Tree
from quicksand_smb.signing import NO_HANDSHAKE, Algorithm
from quicksand_smb.status import Status
from quicksand_smb.wire import ProtocolError

LARGEST_REST: Final = 64 << 10
"""Bytes of a chain that wait for the open at its beginning."""


class Negotiated(NamedTuple):
    """The result of a NEGOTIATE ([MS-SMB2] 3.3.5.4)."""

    client: NegotiateRequest
    """The request of the client."""
    dialect: int
    capabilities: int
    """SMB2_GLOBAL_CAP_ flags of the server."""
    largest: int
    """The largest read, write or transaction, in bytes."""
    pays_by_size: bool
    """A request costs one credit for each 64 KiB."""
    has_leases: bool
    has_posix: bool
    algorithm: Algorithm
    """The algorithm that signs the messages of new sessions."""


class Pending:
    """A request that is answered later. Everything here is done under the lock of the server."""

    def __init__(
        self,
        header: Header,
        session: Session | None,
        tree: Tree | None,
        *,
        async_id: int,
        ledger: Ledger,
        cost: int,
        answer: Callable[["Pending", Status, bytes], None],
        cancel: Callable[[Status], None],
        handle: Handle | None = None,
        opens: bool = False,
        begin: Callable[[], None] | None = None,
    ) -> None:
        self.header = header
        self.session = session
        self.tree = tree
        self.async_id = async_id
        self._ledger = ledger
        self.cost = cost
        """Bytes that were taken of the ledger."""
        self._answer = answer
        """Sends the answer, which has a status and a body."""
        self.cancel = cancel
        """Gives the request up, with the status that its answer is to have."""
        self.handle = handle
        """The handle whose locks the request waits for."""
        self.opens = opens
        """It waits until a file may be opened, or moved."""
        self.begin = begin
        """Called when the client has been told that it must wait: the answer may be there."""
        self.resume: Callable[[Status], None] | None = None
        """Answers the requests that follow in its frame, given the status of this one."""

    def keep(
        self, rest: list[memoryview], resume: Callable[[list[memoryview], Status], None]
    ) -> None:
        """Keep what follows in the frame for `resume`. Raises ProtocolError if it is too much."""
        size = sum(map(len, rest))
        if size > LARGEST_REST or not self._ledger.try_take(size):
            raise ProtocolError("too much behind a request that has to wait")
        self.cost += size
        kept = [bytes(one) for one in rest]
        self.resume = lambda status: resume([memoryview(one) for one in kept], status)

    def finish(self, status: Status, body: bytes) -> None:
        self._answer(self, status, body)


class Conversation:
    """The state of a connection from its first message to its end.

    A stream of QEMU's guestfwd carries several conversations, one after the other.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self.negotiated: Negotiated | None = None
        """None until a NEGOTIATE has succeeded."""
        self.handshake = NO_HANDSHAKE
        """The hash of the messages of NEGOTIATE, for dialect 3.1.1."""
        self.sessions: dict[int, Session] = {}
        self.pending: dict[int, Pending] = {}
        self._last_async_id = int.from_bytes(os.urandom(2), "little")

    def new_async_id(self) -> int:
        self._last_async_id += 1
        return self._last_async_id

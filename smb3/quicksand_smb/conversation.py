"""A conversation: the result of NEGOTIATE, and everything that lives until its end."""

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
"""The bytes of a compound that may wait for the open at its beginning."""
SMALLEST_MAXIMUM: Final = 1 << 16
"""The largest payload in bytes before dialect 2.1, and before a dialect is negotiated."""


class Negotiated(NamedTuple):
    """The result of a NEGOTIATE ([MS-SMB2] 3.3.5.4)."""

    client: NegotiateRequest
    """The request of the client, without its contexts."""
    dialect: int
    capabilities: int
    """SMB2_GLOBAL_CAP_ flags of the server."""
    largest: int
    """The largest read, write or transaction, in bytes."""
    pays_by_size: bool
    """Each 64 KiB of payload cost one credit."""
    has_leases: bool
    has_posix: bool
    algorithm: Algorithm
    """The algorithm that signs the messages of new sessions."""


NOT_NEGOTIATED: Final = Negotiated(
    client=NegotiateRequest((), 0, 0, b"", {}),
    dialect=0,
    capabilities=0,
    largest=SMALLEST_MAXIMUM,
    pays_by_size=False,
    has_leases=False,
    has_posix=False,
    algorithm=Algorithm.HMAC_SHA256,
)
"""The state of a conversation until a NEGOTIATE succeeds."""


class Pending:
    """A request that is answered later. Its methods are called under the server's lock."""

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
        """The bytes that the request has taken from the ledger."""
        self._answer = answer
        """Sends the answer, given its status and body."""
        self.cancel = cancel
        """Cancels the request and answers with the given status."""
        self.handle = handle
        """The handle for whose locks the request waits."""
        self.opens = opens
        """The request waits until it may open or move a file."""
        self.begin = begin
        """Called once the client knows that it must wait. The answer may be ready by then."""
        self.resume: Callable[[Status], None] | None = None
        """Answers the rest of the compound, given the status of this request."""

    def keep(
        self, rest: list[memoryview], resume: Callable[[list[memoryview], Status], None]
    ) -> None:
        """Keep the rest of the compound for `resume`. Raises ProtocolError if it is too large."""
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
        self.is_over = False
        """Nothing of it is sent any more."""
        self.negotiated = NOT_NEGOTIATED
        self.handshake = NO_HANDSHAKE
        """The hash of the NEGOTIATE messages, for dialect 3.1.1."""
        self.sessions: dict[int, Session] = {}
        self.pending: dict[int, Pending] = {}
        self._last_async_id = int.from_bytes(os.urandom(2), "little")

    def new_async_id(self) -> int:
        self._last_async_id += 1
        return self._last_async_id

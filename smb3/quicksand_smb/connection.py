"""A connection without its stream: its conversation, and the frames that wait to be sent.

`dispatch` answers the frames that come in.
"""

from quicksand_smb import header as headers
from quicksand_smb import leases, signing
from quicksand_smb.conversation import Conversation, Negotiated, Pending
from quicksand_smb.credits import FEWER, MOST, SPARE, Window
from quicksand_smb.header import Command, Header
from quicksand_smb.leases import Grant, Timer
from quicksand_smb.messages import lock
from quicksand_smb.messages.negotiate import Dialect
from quicksand_smb.minimal_stdlib import Callable, Final, NamedTuple, deque
from quicksand_smb.server_state import ServerState
from quicksand_smb.session import Session
from quicksand_smb.shares import Handle, Tree
from quicksand_smb.status import Status
from quicksand_smb.store import Node
from quicksand_smb.wire import Buffer, pad

COST: Final = 512
"""The memory in bytes that a reply takes besides its contents."""


class FileData(NamedTuple):
    """A range of a file that the kernel sends to the stream."""

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
        """Bytes that follow the body. They are not copied if nothing follows them."""
        self.file = file
        """A range of a file that follows the body. Nothing else may follow it, and nothing may be
        signed."""


class Frame:
    """An outgoing frame: its parts, and then a range of a file."""

    __slots__ = ("conversation", "cost", "file", "length", "parts")
    conversation: Conversation
    """The conversation to which it belongs. `Connection.queue` sets it."""

    def __init__(self, parts: list[Buffer], length: int, file: FileData | None, cost: int) -> None:
        self.parts = parts
        self.length = length
        self.file = file
        self.cost = cost
        """The memory in bytes that the frame takes until it is sent."""


class Answer:
    """A reply and the fields of its header."""

    __slots__ = ("async_id", "granted", "header", "reply")

    def __init__(self, header: Header, reply: Reply, granted: int, async_id: int = 0) -> None:
        self.header = header
        """The header of the request."""
        self.reply = reply
        self.granted = granted
        self.async_id = async_id


def _nothing() -> None:
    """Do nothing. A test without a stream reads the outbox itself."""


class Connection:
    """A client's connection: its conversation, and the frames that wait to be sent."""

    def __init__(self, server: ServerState, *, can_send_files: bool = False) -> None:
        self.server = server
        self.can_send_files = can_send_files
        """The stream takes ranges of files from the kernel."""
        self.conversation = self._new_conversation()
        self.is_closed = False
        """The conversation has ended, and no NEGOTIATE has begun another."""
        self.outbox: deque[Frame] = deque()
        self.queued_bytes = 0
        """The memory in bytes of all frames that were ever put into the outbox."""
        self.on_output: Callable[[], None] = _nothing

    def _new_conversation(self) -> Conversation:
        joins = self.server.config.resynchronise
        return Conversation(Window(FEWER, SPARE) if joins else Window(MOST))

    def drain(self) -> None:
        """Send the frames of the outbox. Call it without the lock."""
        self.on_output()

    # The conversation

    @property
    def negotiated(self) -> Negotiated:
        """The result of NEGOTIATE, or `NOT_NEGOTIATED`."""
        return self.conversation.negotiated

    @property
    def client_guid(self) -> bytes:
        return self.negotiated.client.client

    @property
    def deletes_at_once(self) -> bool:
        """A deleted name disappears while others still have the file open, as on Unix."""
        return self.negotiated.has_posix

    def begin(self) -> None:
        """End the conversation and begin another."""
        self.end()
        self.is_closed = False

    def end(self) -> None:
        """End the conversation and everything in it. A second call does nothing."""
        self.is_closed = True
        ended = self.conversation
        # Closing its files takes a while, and a sender goes on without the lock.
        ended.is_over = True
        self._empty_outbox()
        self.server.ledger.give_back(sum(one.cost for one in ended.pending.values()))
        ended.pending.clear()
        sessions = list(ended.sessions.values())
        ended.sessions.clear()
        for session in sessions:
            self.server.sessions.pop(session.id, None)
            session.end()
        self.conversation = self._new_conversation()
        self._empty_outbox()
        self.server.with_output.discard(self)

    def _empty_outbox(self) -> None:
        try:
            while True:
                self.queued_bytes -= self.outbox.popleft().cost
        except IndexError:  # empty: a sender may have taken the last frame
            return

    def forget(self, session: Session) -> None:
        """End a session whose login failed, or which another session replaces."""
        self.conversation.sessions.pop(session.id, None)
        self.server.sessions.pop(session.id, None)
        session.end()

    # What waits

    def give_up(self, handle: Handle) -> None:
        """Fail the requests that wait for locks of a handle, which is being closed."""
        for pending in list(self.conversation.pending.values()):
            if pending.handle is handle:
                pending.cancel(Status.RANGE_NOT_LOCKED)

    def give_up_tree(self, tree: Tree) -> None:
        """Fail the opens that wait in a tree, which is being disconnected."""
        for pending in list(self.conversation.pending.values()):
            if pending.tree is tree and pending.opens:
                pending.cancel(Status.CANCELLED)

    def finish(self, pending: Pending, status: Status, body: bytes) -> None:
        """Send the final answer of a request that waited."""
        if self.conversation.pending.pop(pending.async_id, None) is None:
            return
        self.server.ledger.give_back(pending.cost)
        reply = Reply(headers.encode_error() if headers.is_error(status) else body, status)
        # The interim response has granted the credits.
        self.send([Answer(pending.header, reply, 0, pending.async_id)], pending.session)
        if pending.resume:
            pending.resume(status)

    # What goes out

    def start_break_timer(self, late: Callable[[], None]) -> Timer:
        return self.server.start_break_timer(late)

    def send_break(self, grant: Grant, then: int, *, needs_answer: bool) -> None:
        """Send an OPLOCK_BREAK notification ([MS-SMB2] 3.3.4.6, 3.3.4.7)."""
        if grant.key:
            body = lock.encode_lease_break(
                grant.key[1],
                grant.epoch if grant.version == 2 else 0,
                grant.state,
                then,
                needs_answer=needs_answer,
            )
        else:
            handle = next(iter(grant.holders))
            level = leases.LEVEL_II if then else 0
            body = lock.encode_oplock(level, (handle.id, handle.id))
        target = self._first_of_client() if grant.key else self
        target.send([Answer(headers.unasked(Command.OPLOCK_BREAK), Reply(body), 0)], None)

    def send_cache_drop(self, key: bytes) -> None:
        """Ask the client to drop its cached pages of a file on which it holds no lease."""
        body = lock.encode_lease_break(key, 0, leases.NONE, leases.NONE, needs_answer=True)
        self.send([Answer(headers.unasked(Command.OPLOCK_BREAK), Reply(body), 0)], None)

    def _first_of_client(self) -> "Connection":
        """Return the oldest connection of this client. Leases belong to clients and not to
        connections, so the break goes there."""
        for session in self.server.sessions.values():
            owner = session.connection
            if isinstance(owner, Connection) and owner.client_guid == self.client_guid:
                return owner
        return self

    def send(self, answers: list[Answer], session: Session | None) -> None:
        """Join responses to one frame, and sign those whose requests were signed."""
        whole = bytearray()
        data: Buffer = b""
        last = answers[-1]
        is_joined = len(answers) > 1
        for answer in answers:
            header, reply = answer.header, answer.reply
            flags = headers.RESPONSE | header.flags & headers.RELATED
            owner = None
            if header.flags & headers.SIGNED:
                owner = self.conversation.sessions.get(header.session_id) or session
                if owner is not None and owner.signer:
                    flags |= headers.SIGNED
            following = tail = 0
            if is_joined:
                # Windows pads the last one, too.
                size = headers.SIZE + len(reply.body) + len(reply.data)
                tail = pad(size)
                following = size + tail if answer is not last else 0
            start = len(whole)
            whole += headers.encode_response(
                header, reply.status, answer.granted, flags, answer.async_id, following
            )
            whole += reply.body
            if reply.data:
                if answer is last and not flags & headers.SIGNED:
                    data = bytes(reply.data) + bytes(tail) if tail else reply.data
                    tail = 0
                else:
                    whole += reply.data
            if tail:
                whole += bytes(tail)
            if owner is not None and owner.signer and flags & headers.SIGNED:
                signature = owner.signer.sign(memoryview(whole)[start:])
                whole[start + 48 : start + 64] = signature
            if header.command <= Command.SESSION_SETUP:
                self._remember_handshake(answer, bytes(whole[start:]))
        parts: list[Buffer] = [whole]
        if data:
            parts.append(data)
        file = last.reply.file
        length = len(whole) + len(data) + (file.length if file else 0)
        self.queue(Frame(parts, length, file, len(whole) + len(data) + COST))

    def queue(self, frame: Frame) -> None:
        frame.conversation = self.conversation
        self.queued_bytes += frame.cost
        self.outbox.append(frame)
        self.server.with_output.add(self)

    def _remember_handshake(self, answer: Answer, message: bytes) -> None:
        if self.negotiated.dialect != Dialect.SMB311:
            return
        header = answer.header
        if header.command == Command.NEGOTIATE:
            self.conversation.handshake = signing.extended(self.conversation.handshake, message)
        elif answer.reply.status == Status.MORE_PROCESSING_REQUIRED:
            session = self.conversation.sessions.get(header.session_id)
            if session is not None:
                session.handshake = signing.extended(session.handshake, message)

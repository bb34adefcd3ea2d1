"""One connection, without its stream: frames in, frames out.

The order of checks is that of [MS-SMB2] 3.3.5.2. What a command needs before it may run stands in
the table `COMMANDS`; what a failure becomes stands in `status`.
"""

from quicksand_smb import header as headers
from quicksand_smb import leases, signing
from quicksand_smb.commands import basic, directory, files, info, ioctl, locking, opening
from quicksand_smb.commands.looking import answer_look
from quicksand_smb.header import Command, Header
from quicksand_smb.house import House
from quicksand_smb.leases import Grant
from quicksand_smb.light import Callable, Final, IntEnum, NamedTuple, deque
from quicksand_smb.messages import lock
from quicksand_smb.messages.negotiate import Dialect
from quicksand_smb.reasons import StoreError
from quicksand_smb.request import Chain, FileData, Link, Pending, Phase, Reply, Request, Room
from quicksand_smb.session import Session, Stage
from quicksand_smb.status import Refusal, Status, of_store
from quicksand_smb.wire import Buffer, ProtocolError, pad


class Need(IntEnum):
    """What must be there for a command."""

    NOTHING = 0
    DIALECT = 1
    SESSION = 2
    TREE = 3


class Entry(NamedTuple):
    run: Callable[[Request], Reply | Pending]
    need: Need


COMMANDS: Final[dict[int, Entry]] = {
    Command.NEGOTIATE: Entry(basic.negotiate, Need.NOTHING),
    Command.SESSION_SETUP: Entry(basic.session_setup, Need.DIALECT),
    Command.ECHO: Entry(basic.echo, Need.DIALECT),
    Command.LOGOFF: Entry(basic.logoff, Need.SESSION),
    Command.TREE_CONNECT: Entry(basic.tree_connect, Need.SESSION),
    Command.TREE_DISCONNECT: Entry(basic.tree_disconnect, Need.TREE),
    Command.CREATE: Entry(opening.create, Need.TREE),
    Command.CLOSE: Entry(opening.close, Need.TREE),
    Command.FLUSH: Entry(files.flush, Need.TREE),
    Command.READ: Entry(files.read, Need.TREE),
    Command.WRITE: Entry(files.write, Need.TREE),
    Command.LOCK: Entry(locking.lock, Need.TREE),
    Command.IOCTL: Entry(ioctl.ioctl, Need.TREE),
    Command.QUERY_DIRECTORY: Entry(directory.query_directory, Need.TREE),
    Command.CHANGE_NOTIFY: Entry(directory.change_notify, Need.TREE),
    Command.QUERY_INFO: Entry(info.query_info, Need.TREE),
    Command.SET_INFO: Entry(info.set_info, Need.TREE),
    Command.OPLOCK_BREAK: Entry(locking.acknowledge, Need.TREE),
}


_LOOKING: Final = (Command.QUERY_INFO, Command.CLOSE)
"""What changes nothing of a file."""


class Frame:
    """What goes out: the parts, and then the bytes of a file."""

    __slots__ = ("cost", "file", "length", "parts")

    def __init__(self, parts: list[Buffer], length: int, file: FileData | None, cost: int) -> None:
        self.parts = parts
        self.length = length
        self.file = file
        self.cost = cost
        """Bytes of memory until it is sent."""


COST: Final = 512
"""Bytes that a reply takes beside its own."""


class Answer:
    """A reply, and what its header is to say."""

    __slots__ = ("async_id", "granted", "header", "reply")

    def __init__(self, header: Header, reply: Reply, granted: int, async_id: int = 0) -> None:
        self.header = header
        """Of the request."""
        self.reply = reply
        self.granted = granted
        self.async_id = async_id


def _is_heard(session: Session, header: Header, message: memoryview) -> bool:
    """[MS-SMB2] 3.3.5.2.4."""
    if header.flags & headers.SIGNED:
        return signing.is_signed_by(session.key, session.algorithm, message)
    return not session.must_sign


def _nothing() -> None:
    """Who has no stream reads the outbox himself."""


def _note(chain: Chain, header: Header, status: int) -> None:
    """What those that follow in a chain have of a CREATE: its file, or its error."""
    if header.command == Command.CREATE:
        failed = headers.is_error(status)
        chain.error = Status(status) if failed else None
        chain.file_id = None if failed else chain.file_id


class Connection(Link):
    def __init__(self, house: House) -> None:
        super().__init__(house)
        self.outbox: deque[Frame] = deque()
        self.said = 0
        """Bytes of memory that all frames took which were put into the outbox."""
        self.on_drain: Callable[[], None] = _nothing

    def drain(self) -> None:
        """Send what is in the outbox; called without the lock."""
        self.on_drain()

    # What comes in

    def receive(self, frame: memoryview) -> None:
        """Handle one frame, under the lock. Its memory is the caller's again afterwards.

        Raises ProtocolError: the connection cannot go on.
        """
        messages = headers.split(frame)
        if len(messages) == 3 and (told := answer_look(self, messages)):
            self._put_out(Frame([told], len(told), None, len(told) + COST))
            return
        self._handle(messages, Chain(Room(self.largest)), is_alone=len(messages) == 1)

    def _handle(self, messages: list[memoryview], chain: Chain, *, is_alone: bool) -> None:
        """The messages of a frame, or those behind one that had to wait."""
        answers: list[Answer] = []
        for number, message in enumerate(messages):
            header = headers.decode_header(message)
            if header.flags & headers.RESPONSE:
                raise ProtocolError("a response from a client")
            if not self._is_in_phase(header, is_alone=is_alone):
                return
            conversation = self.conversation
            if header.command == Command.CANCEL:
                self._cancel(header)
                continue
            if not self.window.take(header.message_id, header.charge if self.pays_by_size else 1):
                raise ProtocolError("a message number that was not granted")
            if not header.flags & headers.RELATED:
                chain = Chain(chain.room)
            elif number == 0 and chain.is_new:
                chain.is_broken = True
            chain.is_new = False
            request = Request(self, header, message, chain, is_alone=is_alone)
            outcome = self._run(request)
            if conversation != self.conversation:
                return  # whoever asked is gone
            if isinstance(outcome, Pending):
                self._put_off(outcome)
                if outcome.opens and header.next:
                    # Those behind it need what it opens.
                    outcome.keep(messages[number + 1 :])
                    outcome.chain = chain
                    break
                continue
            answers.append(Answer(header, outcome, self._grant(header)))
            if not header.next:
                self._send(answers, request.session)
                return
        if answers:
            self._send(answers, None)

    def _put_off(self, pending: Pending) -> None:
        """Tell the client that its answer comes later."""
        header = pending.header
        interim = Reply(headers.encode_error(), Status.PENDING)
        answer = Answer(header, interim, self._grant(header), pending.async_id)
        self._send([answer], pending.session)
        if pending.begin:
            pending.begin()

    def _is_in_phase(self, header: Header, *, is_alone: bool) -> bool:
        """Whether a message may be handled. False: its client is told to begin anew."""
        begins = header.command == Command.NEGOTIATE
        if self.phase is Phase.OPEN and not begins:
            return True
        if not self.house.config.resynchronise:
            if self.phase is Phase.FRESH and begins:
                return True
            raise ProtocolError("a conversation begins with one NEGOTIATE")
        if not begins:
            self._turn_away(header)
            return False
        if not is_alone:
            raise ProtocolError("a NEGOTIATE amid others")
        self.end()
        self.begin()
        return True

    def _turn_away(self, header: Header) -> None:
        """Answer one who speaks as if there were a conversation: this server is another than his,
        or has ended it. Linux then connects anew, and does not wait for a time to run out."""
        if header.command == Command.CANCEL:
            return
        reply = Reply(headers.encode_error(), Status.USER_SESSION_DELETED)
        header.flags = 0
        self._send([Answer(header, reply, 1)], None)

    def _run(self, request: Request) -> Reply | Pending:
        try:
            entry = COMMANDS.get(request.header.command)
            if entry is None:
                raise Refusal(Status.INVALID_PARAMETER)
            if request.header.command not in _LOOKING:
                request.chain.seen = None
            request.chain.room.admit()
            self._find_place(request, entry.need)
            outcome = entry.run(request)
        except Refusal as error:
            outcome = Reply(headers.encode_error(error.data, error.contexts), error.status)
        except StoreError as error:
            outcome = Reply(headers.encode_error(), of_store(error))
        except ProtocolError:
            outcome = Reply(headers.encode_error(), Status.INVALID_PARAMETER)
        except Exception:  # noqa: BLE001 - it is told where errors are kept
            # What the host has may be what nobody has thought of: one request fails.
            self.house.complain()
            outcome = Reply(headers.encode_error(), Status.UNEXPECTED_IO_ERROR)
        if isinstance(outcome, Reply):
            _note(request.chain, request.header, outcome.status)
        return outcome

    def _find_place(self, request: Request, need: Need) -> None:
        """The session and the tree a request is about; a chain may take them from its beginning."""
        header, chain = request.header, request.chain
        if chain.is_broken:
            raise Refusal(Status.INVALID_PARAMETER)
        if header.flags & headers.RELATED:
            header.session_id, header.tree_id = chain.session_id, chain.tree_id
        # What the first cannot say, those related to it cannot take from there.
        chain.is_broken = need >= Need.SESSION
        chain.session_id, chain.tree_id = header.session_id, header.tree_id
        session = self.sessions.get(header.session_id)
        if session is not None and session.stage is not Stage.ENDED:
            request.session = session
            is_checked = bool(session.key) and need >= Need.SESSION
            if is_checked and not _is_heard(session, header, request.message):
                # Who has other keys has them of another conversation. Told that the session is
                # gone, Linux begins a new one; denied, it would try with these keys for ever.
                begins_anew = self.house.config.resynchronise
                raise Refusal(Status.USER_SESSION_DELETED if begins_anew else Status.ACCESS_DENIED)
        if need >= Need.SESSION and (session is None or session.stage is not Stage.VALID):
            request.session = None
            raise Refusal(Status.USER_SESSION_DELETED)
        if need >= Need.TREE and session is not None:
            tree = session.trees.get(header.tree_id)
            if tree is None or (tree.share is not None and tree.share.is_gone):
                raise Refusal(Status.NETWORK_NAME_DELETED)
            request.tree = tree
        chain.is_broken = False

    # What waits

    def finish(self, pending: Pending, status: Status, body: bytes) -> None:
        if self.pending.pop(pending.async_id, None) is None:
            return
        self.house.ledger.give(pending.cost)
        reply = Reply(headers.encode_error() if headers.is_error(status) else body, status)
        # The interim response has granted what there was.
        self._send([Answer(pending.header, reply, 0, pending.async_id)], pending.session)
        if pending.rest and pending.chain:
            _note(pending.chain, pending.header, status)
            rest, pending.rest = [memoryview(one) for one in pending.rest], []
            try:
                self._handle(rest, pending.chain, is_alone=False)
            except ProtocolError:
                self.end()  # nobody is there who could be told

    def _cancel(self, header: Header) -> None:
        """[MS-SMB2] 3.3.5.16: there is no answer to it, but the one of what is cancelled."""
        for pending in list(self.pending.values()):
            if header.flags & headers.ASYNC:
                if pending.async_id == header.async_id:
                    pending.cancel(Status.CANCELLED)
            elif pending.header.message_id == header.message_id:
                pending.cancel(Status.CANCELLED)

    # What goes out

    def tell_break(self, grant: Grant, then: int, *, needs_answer: bool) -> None:
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
        target._send([Answer(headers.unasked(Command.OPLOCK_BREAK), Reply(body), 0)], None)

    def ask_to_drop(self, key: bytes) -> None:
        """Have the client drop what it keeps of a file of which it has no lease."""
        body = lock.encode_lease_break(key, 0, leases.NONE, leases.NONE, needs_answer=True)
        self._send([Answer(headers.unasked(Command.OPLOCK_BREAK), Reply(body), 0)], None)

    def _first_of_client(self) -> "Connection":
        """A lease is its client's, not its connection's: it is asked back by the oldest."""
        for session in self.house.sessions.values():
            owner = session.connection
            if isinstance(owner, Connection) and owner.client_guid == self.client_guid:
                return owner
        return self

    def _grant(self, header: Header) -> int:
        """Credits for the response to a request."""
        charge = header.charge if self.pays_by_size else 1
        # Of a NEGOTIATE the client may count what was meant for an earlier one of its connections.
        is_frugal = self.house.config.resynchronise and header.command == Command.NEGOTIATE
        return self.window.grant(charge, 0 if is_frugal else header.credits)

    def _send(self, answers: list[Answer], session: Session | None) -> None:
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
                owner = self.sessions.get(header.session_id) or session
                if owner is not None and owner.key:
                    flags |= headers.SIGNED
            following = tail = 0
            if is_joined:
                # Windows fills up the last one, too.
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
            if owner is not None and flags & headers.SIGNED:
                signature = signing.sign(owner.key, owner.algorithm, memoryview(whole)[start:])
                whole[start + 48 : start + 64] = signature
            if header.command <= Command.SESSION_SETUP:
                self._remember_handshake(answer, bytes(whole[start:]))
        parts: list[Buffer] = [whole]
        if data:
            parts.append(data)
        file = last.reply.file
        length = len(whole) + len(data) + (file.length if file else 0)
        self._put_out(Frame(parts, length, file, len(whole) + len(data) + COST))

    def _put_out(self, frame: Frame) -> None:
        self.said += frame.cost
        self.outbox.append(frame)
        self.house.talking.add(self)

    def _remember_handshake(self, answer: Answer, message: bytes) -> None:
        if self.dialect != Dialect.SMB311:
            return
        header = answer.header
        if header.command == Command.NEGOTIATE:
            self.handshake = signing.extended(self.handshake, message)
        elif answer.reply.status == Status.MORE_PROCESSING_REQUIRED:
            session = self.sessions.get(header.session_id)
            if session is not None:
                session.handshake = signing.extended(session.handshake, message)

    def end(self) -> None:
        """The stream is gone: everything of it ends. Done twice, it does nothing."""
        self.phase = Phase.CLOSED
        self.conversation += 1
        self.house.ledger.give(sum(one.cost for one in self.pending.values()))
        self.pending.clear()
        sessions, self.sessions = list(self.sessions.values()), {}
        for session in sessions:
            self.house.sessions.pop(session.id, None)
            session.end()
        while self.outbox:
            self.said -= self.outbox.popleft().cost
        self.house.talking.discard(self)

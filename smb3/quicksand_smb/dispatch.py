"""Answers frames: checks, runs and answers each request of a frame.

The order of checks is that of [MS-SMB2] 3.3.5.2. The table `COMMANDS` says what a command needs
before it runs. The module `status` maps failures.
"""

from quicksand_smb import header as headers
from quicksand_smb.commands import basic, directory, files, ioctl, locking, opening
from quicksand_smb.commands.query_info import query_info
from quicksand_smb.commands.set_info import set_info
from quicksand_smb.commands.stat_compound import answer_stat_compound
from quicksand_smb.connection import COST, Answer, Connection, Frame, Reply
from quicksand_smb.conversation import NOT_NEGOTIATED, Pending
from quicksand_smb.header import Command, Header
from quicksand_smb.minimal_stdlib import Callable, Final, IntEnum, NamedTuple
from quicksand_smb.request import Chain, FrameBudget, Request
from quicksand_smb.session import Session, Stage
from quicksand_smb.status import Refusal, Status, of_store
from quicksand_smb.store_errors import StoreError
from quicksand_smb.wire import ProtocolError


class Need(IntEnum):
    """The state that a command needs."""

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
    Command.QUERY_INFO: Entry(query_info, Need.TREE),
    Command.SET_INFO: Entry(set_info, Need.TREE),
    Command.OPLOCK_BREAK: Entry(locking.acknowledge, Need.TREE),
}


_LOOKING: Final = (Command.QUERY_INFO, Command.CLOSE)
"""Commands that change nothing of a file."""


def _is_heard(session: Session, header: Header, message: memoryview) -> bool:
    """Check the signature of a request ([MS-SMB2] 3.3.5.2.4)."""
    signer = session.signer
    if signer is None:
        return True
    if header.flags & headers.SIGNED:
        return signer.has_signed(message)
    return not signer.is_required


def _note(chain: Chain, header: Header, status: int) -> None:
    """Record the file or the error of a CREATE for the requests that follow in its chain."""
    if header.command == Command.CREATE:
        failed = headers.is_error(status)
        chain.error = Status(status) if failed else None
        chain.file_id = None if failed else chain.file_id


class Dispatcher:
    """Answers the frames of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def receive(self, frame: memoryview) -> None:
        """Handle one frame under the lock. The caller may reuse its memory afterwards.

        Raises ProtocolError if the connection cannot go on.
        """
        messages = headers.split(frame)
        if len(messages) == 3 and (told := answer_stat_compound(self._connection, messages)):
            self._connection.queue(Frame([told], len(told), None, len(told) + COST))
            return
        self._handle(
            messages,
            Chain(FrameBudget(self._connection.conversation.negotiated.largest)),
            is_alone=len(messages) == 1,
        )

    def _handle(self, messages: list[memoryview], chain: Chain, *, is_alone: bool) -> None:
        """Handle the messages of a frame, or the rest of a compound that had to wait."""
        connection = self._connection
        answers: list[Answer] = []
        for number, message in enumerate(messages):
            header = headers.decode_header(message)
            if header.flags & headers.RESPONSE:
                raise ProtocolError("a response from a client")
            if not self._is_in_phase(header, is_alone=is_alone):
                return
            conversation = connection.conversation
            if header.command == Command.CANCEL:
                self._cancel(header)
                continue
            charge = header.charge if conversation.negotiated.pays_by_size else 1
            if not conversation.window.take(header.message_id, charge):
                raise ProtocolError("a message number that was not granted")
            if not header.flags & headers.RELATED:
                chain = Chain(chain.budget)
            elif number == 0 and chain.is_new:
                chain.is_broken = True
            chain.is_new = False
            request = Request(connection, header, message, chain, is_alone=is_alone)
            outcome = self._run(request)
            if conversation is not connection.conversation:
                return  # the client is gone
            if isinstance(outcome, Pending):
                self._put_off(outcome)
                if outcome.opens and header.next:
                    # The following requests need the opened file.
                    self._keep_rest(outcome, messages[number + 1 :], chain)
                    break
                continue
            answers.append(Answer(header, outcome, self._grant(header)))
            if not header.next:
                self._connection.send(answers, request.session)
                return
        if answers:
            self._connection.send(answers, None)

    def _keep_rest(self, pending: Pending, rest: list[memoryview], chain: Chain) -> None:
        """Keep the rest of a compound until the waiting request is answered."""

        def resume(rest: list[memoryview], status: Status) -> None:
            _note(chain, pending.header, status)
            try:
                self._handle(rest, chain, is_alone=False)
            except ProtocolError:
                self._connection.end()  # no client is left to tell

        pending.keep(rest, resume)

    def _put_off(self, pending: Pending) -> None:
        """Send the interim response, which tells the client to wait."""
        header = pending.header
        interim = Reply(headers.encode_error(), Status.PENDING)
        answer = Answer(header, interim, self._grant(header), pending.async_id)
        self._connection.send([answer], pending.session)
        if pending.begin:
            pending.begin()

    def _is_in_phase(self, header: Header, *, is_alone: bool) -> bool:
        """Tell whether the conversation allows this message. If not, the client is told to begin
        anew."""
        begins = header.command == Command.NEGOTIATE
        connection = self._connection
        is_negotiated = connection.conversation.negotiated is not NOT_NEGOTIATED
        if is_negotiated and not begins:
            return True
        if not connection.server.config.resynchronise:
            if begins and not is_negotiated and not connection.is_closed:
                return True
            raise ProtocolError("a conversation begins with one NEGOTIATE")
        if not begins:
            self._turn_away(header)
            return False
        if not is_alone:
            raise ProtocolError("a NEGOTIATE amid others")
        connection.begin()
        return True

    def _turn_away(self, header: Header) -> None:
        """Answer a client that assumes a conversation which this server never had, or has ended.
        Linux then reconnects at once instead of waiting for a timeout."""
        if header.command == Command.CANCEL:
            return
        reply = Reply(headers.encode_error(), Status.USER_SESSION_DELETED)
        header.flags = 0
        self._connection.send([Answer(header, reply, 1)], None)

    def _run(self, request: Request) -> Reply | Pending:
        try:
            entry = COMMANDS.get(request.header.command)
            if entry is None:
                raise Refusal(Status.INVALID_PARAMETER)
            if request.header.command not in _LOOKING:
                request.chain.seen = None
            request.chain.budget.admit()
            self._find_place(request, entry.need)
            outcome = entry.run(request)
        except Refusal as error:
            outcome = Reply(headers.encode_error(error.data, error.contexts), error.status)
        except StoreError as error:
            outcome = Reply(headers.encode_error(), of_store(error))
        except ProtocolError:
            outcome = Reply(headers.encode_error(), Status.INVALID_PARAMETER)
        except Exception:  # noqa: BLE001 - it is told where errors are kept
            # An unforeseen state of the host fails one request, and not the server.
            self._connection.server.log_error()
            outcome = Reply(headers.encode_error(), Status.UNEXPECTED_IO_ERROR)
        if isinstance(outcome, Reply):
            _note(request.chain, request.header, outcome.status)
        return outcome

    def _find_place(self, request: Request, need: Need) -> None:
        """Find the session and the tree of a request. In a chain they may come from the first
        request."""
        header, chain = request.header, request.chain
        if chain.is_broken:
            raise Refusal(Status.INVALID_PARAMETER)
        if header.flags & headers.RELATED:
            header.session_id, header.tree_id = chain.session_id, chain.tree_id
        # If this request fails here, the related ones after it fail, too.
        chain.is_broken = need >= Need.SESSION
        chain.session_id, chain.tree_id = header.session_id, header.tree_id
        session = self._connection.conversation.sessions.get(header.session_id)
        if session is not None and session.stage is not Stage.ENDED:
            request.session = session
            if need >= Need.SESSION and not _is_heard(session, header, request.message):
                # A client with other keys has those of another conversation. Told that the session
                # is gone, Linux begins a new one; denied, it would try these keys for ever.
                begins_anew = self._connection.server.config.resynchronise
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

    def _cancel(self, header: Header) -> None:
        """Cancel a request ([MS-SMB2] 3.3.5.16). Only the cancelled request is answered."""
        for pending in list(self._connection.conversation.pending.values()):
            if header.flags & headers.ASYNC:
                if pending.async_id == header.async_id:
                    pending.cancel(Status.CANCELLED)
            elif pending.header.message_id == header.message_id:
                pending.cancel(Status.CANCELLED)

    def _grant(self, header: Header) -> int:
        """Return the credits to grant with the response."""
        connection = self._connection
        conversation = connection.conversation
        charge = header.charge if conversation.negotiated.pays_by_size else 1
        # A client may also count the credits of a NEGOTIATE of an earlier connection.
        is_frugal = connection.server.config.resynchronise and header.command == Command.NEGOTIATE
        return conversation.window.grant(charge, 0 if is_frugal else header.credits)

"""NEGOTIATE, SESSION_SETUP, LOGOFF, TREE_CONNECT, TREE_DISCONNECT and ECHO."""

import os
import time

from quicksand_smb import spnego
from quicksand_smb.connection import Connection, Reply
from quicksand_smb.conversation import SMALLEST_MAXIMUM, Negotiated
from quicksand_smb.messages import negotiate as wire
from quicksand_smb.messages import session as messages
from quicksand_smb.messages.negotiate import ContextType, Dialect
from quicksand_smb.minimal_stdlib import Final, NamedTuple
from quicksand_smb.ntlm import Answer, Login, Outcome
from quicksand_smb.request import Request
from quicksand_smb.session import Session, Stage
from quicksand_smb.signing import NO_HANDSHAKE, Algorithm, Signer, extended, signing_key
from quicksand_smb.status import Refusal, Status
from quicksand_smb.wire import filetime

LARGEST: Final = 8 << 20
"""The largest read, write or answer in bytes, from dialect 2.1 on."""
SIGNING_ENABLED: Final = 1
SIGNING_REQUIRED: Final = 2
LEASING: Final = 2
LARGE_MTU: Final = 4
DIRECTORY_LEASING: Final = 0x20
MOST_SESSIONS: Final = 64


# [MS-SMB2] 3.3.5.4
def negotiate(request: Request) -> Reply:
    connection = request.connection
    server = connection.server
    wanted = wire.decode_request(request.message)
    if not wanted.dialects:
        raise Refusal(Status.INVALID_PARAMETER)
    common = [one for one in wanted.dialects if one in wire.SPOKEN]
    if not common:
        raise Refusal(Status.NOT_SUPPORTED)
    agreed = _agree(connection, wanted, max(common))
    connection.conversation.negotiated = agreed.negotiated
    if agreed.negotiated.dialect == Dialect.SMB311:
        connection.conversation.handshake = extended(NO_HANDSHAKE, request.message)
    return Reply(
        wire.encode_response(
            wire.NegotiateResponse(
                agreed.negotiated.dialect,
                SIGNING_ENABLED,
                server.guid,
                agreed.negotiated.capabilities,
                agreed.negotiated.largest,
                # 0 where all answers must be equal, see `_salt`.
                0 if server.config.resynchronise else filetime(time.time_ns()),
                spnego.hello(),
                agreed.contexts,
            )
        )
    )


class _Agreed(NamedTuple):
    negotiated: Negotiated
    contexts: tuple[tuple[int, bytes], ...]
    """The negotiate contexts of the response. Only dialect 3.1.1 has them."""


def _agree(connection: Connection, wanted: wire.NegotiateRequest, dialect: int) -> _Agreed:
    """Choose the dialect's capabilities, sizes and algorithms. Raises Refusal if dialect 3.1.1
    lacks a context."""
    leases = connection.server.config.leases
    has_leases = dialect >= Dialect.SMB210 and leases != "none"
    capabilities = LARGE_MTU if dialect >= Dialect.SMB210 else 0
    capabilities |= LEASING if has_leases else 0
    if dialect >= Dialect.SMB300 and leases == "directories":
        capabilities |= DIRECTORY_LEASING
    algorithm = Algorithm.AES_CMAC if dialect >= Dialect.SMB300 else Algorithm.HMAC_SHA256
    has_posix = False
    contexts: list[tuple[int, bytes]] = []
    if dialect == Dialect.SMB311:
        _check_preauth(wanted)
        contexts.append((int(ContextType.PREAUTH), wire.encode_preauth(_salt(connection))))
        # No cipher is chosen: the link never leaves the host, and AES in Python runs at 2 MB/s.
        if (listed := wanted.contexts.get(ContextType.SIGNING)) is not None:
            known = wire.decode_signing(listed)
            chosen = wire.HMAC_SHA256 if wire.HMAC_SHA256 in known else wire.AES_CMAC
            algorithm = Algorithm(chosen)
            contexts.append((int(ContextType.SIGNING), wire.encode_signing(chosen)))
        tag = wanted.contexts.get(ContextType.POSIX)
        if tag == wire.POSIX_TAG and connection.server.config.posix:
            has_posix = True
            contexts.append((int(ContextType.POSIX), wire.POSIX_TAG))
    negotiated = Negotiated(
        client=wanted._replace(contexts={}),
        dialect=dialect,
        capabilities=capabilities,
        largest=LARGEST if dialect >= Dialect.SMB210 else SMALLEST_MAXIMUM,
        pays_by_size=dialect >= Dialect.SMB210,
        has_leases=has_leases,
        has_posix=has_posix,
        algorithm=algorithm,
    )
    return _Agreed(negotiated, tuple(contexts))


def _check_preauth(wanted: wire.NegotiateRequest) -> None:
    preauth = wanted.contexts.get(ContextType.PREAUTH)
    if preauth is None:
        raise Refusal(Status.INVALID_PARAMETER)
    if wire.SHA512 not in wire.decode_preauth(preauth):
        raise Refusal(Status.NO_PREAUTH_INTEGRITY_HASH_OVERLAP)


def _salt(connection: Connection) -> bytes:
    """Return the server's salt. Together with the client's salt it makes the keys of two sessions
    differ.

    On a stream without an end of connection, the answer to a connection that was given up may reach
    the next connection. The keys depend on the bytes of the answer, so a server gives all its
    clients there the same salt.
    """
    server = connection.server
    return server.salt if server.config.resynchronise else os.urandom(32)


# [MS-SMB2] 3.3.5.5
def session_setup(request: Request) -> Reply:
    connection = request.connection
    wanted = messages.decode_setup(request.message)
    if wanted.flags & messages.BINDING:
        raise Refusal(Status.REQUEST_NOT_ACCEPTED)
    session = _session_of(request)
    request.session = session
    request.header.session_id = session.id
    is_new = session.stage is Stage.LOGGING_IN
    if is_new and connection.negotiated.dialect == Dialect.SMB311:
        session.handshake = extended(session.handshake, request.message)
    if session.login is None:
        session.login = Login(connection.server.config.secret, time.time_ns())
    answer = session.login.step(wanted.token)
    if answer.outcome is Outcome.MORE:
        return Reply(messages.encode_setup(0, answer.token), Status.MORE_PROCESSING_REQUIRED)
    session.login = None
    if answer.outcome is Outcome.REJECTED:
        connection.forget(session)
        raise Refusal(Status.LOGON_FAILURE)
    if is_new:
        modes = wanted.security_mode | connection.negotiated.client.security_mode
        _accept(request, session, answer, modes)
    if wanted.previous and wanted.previous != session.id:
        previous = connection.server.sessions.get(wanted.previous)
        if previous is not None and previous.connection.client_guid == connection.client_guid:
            previous.connection.forget(previous)
    return Reply(messages.encode_setup(session.user_flags, answer.token))


def _session_of(request: Request) -> Session:
    connection, wanted = request.connection, request.header.session_id
    if wanted:
        session = connection.conversation.sessions.get(wanted)
        if session is None or session.stage is Stage.ENDED:
            raise Refusal(Status.USER_SESSION_DELETED)
        return session
    sessions = connection.conversation.sessions
    for ended in [one for one in sessions.values() if one.stage is Stage.ENDED]:
        del sessions[ended.id]
    if len(sessions) >= MOST_SESSIONS:
        raise Refusal(Status.INSUFFICIENT_RESOURCES)
    server = connection.server
    handshake = connection.conversation.handshake
    session = Session(server.new_session_id(), connection, server.ledger, handshake)
    sessions[session.id] = session
    connection.server.sessions[session.id] = session
    return session


def _accept(request: Request, session: Session, answer: Answer, mode: int) -> None:
    if answer.outcome is Outcome.ANONYMOUS:
        session.accept(None, messages.IS_GUEST)
        return
    negotiated = request.connection.negotiated
    key = signing_key(answer.session_key, negotiated.dialect, session.handshake)
    signer = Signer(key, negotiated.algorithm, bool(mode & SIGNING_REQUIRED))
    session.accept(signer)
    # The last answer is signed, so that the client can verify the server.
    request.header.flags |= 0x8


# [MS-SMB2] 3.3.5.6
def logoff(request: Request) -> Reply:
    messages.decode_empty(request.message)
    session = request.require_session()
    session.end()
    # The connection keeps it, since its key may sign the answer.
    request.connection.server.sessions.pop(session.id, None)
    return Reply(messages.EMPTY)


# [MS-SMB2] 3.3.5.7
def tree_connect(request: Request) -> Reply:
    wanted = messages.decode_tree(request.message)
    name = wanted.path.rpartition("\\")[2]
    session = request.require_session()
    if name.upper() == "IPC$":
        tree = session.connect(None)
    else:
        tree = session.connect(request.connection.server.find_share(name))
    request.header.tree_id = tree.id
    request.chain.tree_id = tree.id
    return Reply(messages.encode_tree(tree.kind, tree.access))


# [MS-SMB2] 3.3.5.8
def tree_disconnect(request: Request) -> Reply:
    messages.decode_empty(request.message)
    request.require_session().disconnect(request.require_tree())
    return Reply(messages.EMPTY)


# [MS-SMB2] 3.3.5.17
def echo(request: Request) -> Reply:
    messages.decode_empty(request.message)
    return Reply(messages.EMPTY)

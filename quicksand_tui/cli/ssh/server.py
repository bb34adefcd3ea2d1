"""The server that talks to a client over one connection, and `ssh --stdio`, which serves one so.

What the client forwards leads into the guest, and what the guest's programs offer to the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asyncssh
from quicksand.base.errors import (
    AgentRefusedError,
    AgentUnreachableError,
    QuicksandError,
    RevertedError,
    StateError,
)
from quicksand.base.paths import make_private_dir, paths
from quicksand.base.regular import read_file
from quicksand.guest.connections import GuestConnection, GuestListener
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.host_choice import LOCAL
from quicksand_tui.cli.runner import Signals, reached, run_async, why_gone
from quicksand_tui.cli.ssh.sessions import HANG_UP_S, Flow, Guest, GuestSession, Pipe, Tasks
from quicksand_tui.cli.ssh.ssh_config import (
    SUFFIX,
    USUAL_USER,
    SshName,
    find_ssh_name,
    key_file,
    prepare_files,
    sockets_dir,
    there,
)
from quicksand_tui.model.remedy_words import hint_of, text_of
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.remote.connection import Way


class Forwarded(Pipe):
    """A channel whose other side is a connection of the guest."""

    def __init__(self, connection: GuestConnection, tasks: Tasks) -> None:
        super().__init__()
        self._connection = connection
        self._tasks = tasks

    def session_started(self) -> None:
        self._tasks.start(self._carry(), "forward")

    async def _carry(self) -> None:
        """Carries bytes until both directions have ended, or one has failed."""
        try:
            await self.until_lost(self._carry_both())
        finally:
            self._connection.close()
            self._chan.close()

    async def _carry_both(self) -> None:
        # The client sees a broken connection as its end: SSH has no word for it.
        with contextlib.suppress(QuicksandError, ExceptionGroup):
            async with asyncio.TaskGroup() as both:
                feeding = both.create_task(self._carry_in())
                both.create_task(self._carry_out(feeding))

    async def _carry_in(self) -> None:
        while data := await self.read():
            await self._connection.write(data)
        self._connection.write_eof()

    async def _carry_out(self, feeding: asyncio.Task[None]) -> None:
        while data := await self._connection.read():
            if not await self.write(data):
                feeding.cancel()
                return
        self.write_eof()
        # A service that is gone altogether takes nothing more: the client is not to send for ever.
        await self._connection.finish()
        feeding.cancel()


class ForwardedTcp(Forwarded, asyncssh.SSHTCPSession[bytes]):
    """A connection to or from a port of the guest."""


class ForwardedUnix(Forwarded, asyncssh.SSHUNIXSession[bytes]):
    """A connection to or from a Unix socket of the guest."""


def refusal(error: QuicksandError) -> asyncssh.ChannelOpenError:
    """Returns the refusal told to the client when a connection could not be made in the guest."""
    code = asyncssh.OPEN_CONNECT_FAILED
    if isinstance(error, AgentRefusedError) and error.code in ("forbidden", "bad_request"):
        code = asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED
    elif isinstance(error, StateError):
        code = asyncssh.OPEN_RESOURCE_SHORTAGE
    return asyncssh.ChannelOpenError(code, clean(text_of(error)))


Offer = Callable[[GuestConnection], Awaitable[object]]
"""Offers a connection from the guest to the client. Raises asyncssh.ChannelOpenError."""


class GuestForward(asyncssh.SSHListener):
    """A socket in the guest, whose connections are forwarded to the client."""

    def __init__(self, listener: GuestListener, offer: Offer, tasks: Tasks) -> None:
        super().__init__()
        self._listener = listener
        self._offer = offer
        self._tasks = tasks
        self._task = tasks.start(self._accept(), "listen")

    def get_port(self) -> int:
        return self._listener.port or 0

    async def _accept(self) -> None:
        try:
            while True:
                try:
                    connection = await self._listener.accept()
                except StateError:
                    continue  # too many at once: the agent closes it
                self._tasks.start(self._hand_over(connection), "accepted")
        except QuicksandError:
            return  # the guest is gone, and the whole connection ends
        finally:
            self._listener.close()

    async def _hand_over(self, connection: GuestConnection) -> None:
        try:
            await self._offer(connection)
        except (asyncssh.Error, OSError):  # the client does not want it
            connection.close()

    def close(self) -> None:
        self._task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait((self._task,))


LOOPBACK = ("127.0.0.1", "::1")

CHANNELS_MAX = 64
"""Channels that a client may have open in one connection. An agent has 256 for each of its
clients, and a command or a forward takes one."""

P = TypeVar("P", bound=Pipe)


class GuestServer(asyncssh.SSHServer):
    """Lets a client into one guest. It never returns True for a forward: then asyncssh would dial,
    or listen, on this host."""

    def __init__(self, sandbox: Sandbox | QuicksandError, tasks: Tasks) -> None:
        """``sandbox`` may be the reason why there is none, which the client is told."""
        self._sandbox = sandbox
        self._tasks = tasks
        self._guest: Guest | None = None
        self.connection: asyncssh.SSHServerConnection | None = None
        self._flow: Flow | None = None
        self._channels = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self.connection = conn
        self._flow = Flow(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._flow is not None:
            self._flow.end()

    async def begin_auth(self, username: str) -> bool:
        """Finds the user who logs in; nobody has to prove anything, since the pipe is its user's.
        Raises asyncssh.DisconnectError, which the client shows."""
        self._guest = await log_in(self._sandbox, None if username == USUAL_USER else username)
        return False

    async def _enter(self) -> Guest:
        """Returns the guest, and the user who has logged in. Raises asyncssh.ChannelOpenError once
        the guest is gone."""
        if self._guest is None:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "the guest is gone")
        return self._guest

    def send_away(self, error: QuicksandError) -> None:
        """Ends the connection, and has the client show the reason. Nothing more is opened in it."""
        self._guest = None
        if self.connection is not None:
            reason = told(error)
            self.connection.disconnect(reason.code, reason.reason)

    @contextlib.contextmanager
    def _channel(self) -> Iterator[None]:
        """Counts a channel that is being opened, until `_counted` takes it over or it fails. Raises
        asyncssh.ChannelOpenError if there are too many."""
        if self._channels >= CHANNELS_MAX:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_RESOURCE_SHORTAGE, f"{CHANNELS_MAX} channels are open"
            )
        self._channels += 1
        try:
            yield
        except BaseException:
            self._uncount()
            raise

    def _counted(self, pipe: P) -> P:
        pipe.when_lost = self._uncount
        return pipe

    def _uncount(self) -> None:
        self._channels -= 1

    async def session_requested(self) -> GuestSession:
        with self._channel():
            return self._counted(GuestSession(await self._enter(), self._tasks))

    async def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> ForwardedTcp:
        """Dials a port in the guest. Raises asyncssh.ChannelOpenError."""
        with self._channel():
            who = await self._enter()
            try:
                found = await who.sandbox.dial(dest_port, host=dest_host)
            except QuicksandError as error:
                raise refusal(error) from error
            return self._counted(ForwardedTcp(found, self._tasks))

    async def unix_connection_requested(self, dest_path: str) -> ForwardedUnix:
        """Dials a Unix socket in the guest. Raises asyncssh.ChannelOpenError."""
        with self._channel():
            who = await self._enter()
            try:
                found = await who.sandbox.dial(path=dest_path, user=who.user)
            except QuicksandError as error:
                raise refusal(error) from error
            return self._counted(ForwardedUnix(found, self._tasks))

    async def server_requested(self, listen_host: str, listen_port: int) -> GuestForward | bool:
        """Listens on the guest's loopback, whatever address the client names, as sshd does without
        GatewayPorts."""
        host = listen_host if listen_host in LOOPBACK else LOOPBACK[0]
        try:
            listener = await (await self._enter()).sandbox.listen(listen_port, host=host)
        except (QuicksandError, asyncssh.ChannelOpenError):
            return False
        port = listener.port or listen_port

        async def offer(found: GuestConnection) -> None:
            assert self.connection is not None
            make = partial(ForwardedTcp, found, self._tasks)
            await self.connection.create_connection(
                make, listen_host, port, host, found.peer_port or 0
            )

        return GuestForward(listener, offer, self._tasks)

    async def unix_server_requested(self, listen_path: str) -> GuestForward | bool:
        """Listens at a Unix socket of the guest, by the rights of the user who has logged in."""
        try:
            who = await self._enter()
            listener = await who.sandbox.listen(path=listen_path, user=who.user)
        except (QuicksandError, asyncssh.ChannelOpenError):
            return False

        async def offer(found: GuestConnection) -> None:
            assert self.connection is not None
            make = partial(ForwardedUnix, found, self._tasks)
            await self.connection.create_unix_connection(make, listen_path)

        return GuestForward(listener, offer, self._tasks)


async def log_in(sandbox: Sandbox | QuicksandError, user: str | None) -> Guest:
    """Lets a user in, None for the image's own. Raises DisconnectError, which the client shows."""
    try:
        if isinstance(sandbox, QuicksandError):
            raise sandbox
        return Guest(sandbox, user, await sandbox.find_user(user))
    except QuicksandError as error:
        raise told(error) from error


def told(error: QuicksandError) -> asyncssh.DisconnectError:
    """Returns an error as the client shows it. Our own stderr often leads nowhere
    (ControlPersist)."""
    hint = hint_of(error)
    text = f"{text_of(error)} ({hint})" if hint else text_of(error)
    return asyncssh.DisconnectError(asyncssh.DISC_BY_APPLICATION, clean(text))


TELL_S = 0.2
"""Seconds for the sessions to tell their clients that the guest is gone."""

REASON_S = 0.5
"""Seconds to find out the end of a sandbox. The connection is to end at once."""

OPTIONS: Final[dict[str, Any]] = {
    "encryption_algs": (
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
        "chacha20-poly1305@openssh.com",
    ),
    "compression_algs": None,
    "server_version": "quicksand",
    "encoding": None,
    "line_editor": False,
    "agent_forwarding": False,
    "x11_forwarding": False,
    "allow_scp": False,
    "tcp_keepalive": False,
    "password_auth": False,
    "kbdint_auth": False,
    "host_based_auth": False,
    "gss_host": None,
}
"""Options of asyncssh. Its line editor would take keys, and its forwarding lead to this host."""


async def wait_gone(sandbox: Sandbox) -> QuicksandError:
    """Waits for the end of the guest that a client was let into, and returns its reason: a revert
    is an end, too. Raises QuicksandError if the guest cannot be reached at all."""
    error: QuicksandError = await sandbox.wait_disconnected()
    if sandbox.host != LOCAL:  # the reason of the end is not seen from here
        return error
    if isinstance(error, AgentUnreachableError) and not isinstance(error, RevertedError):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REASON_S):
                error = await why_gone(sandbox, error)
    return error


STDIN, STDOUT = 0, 1
CHUNK = 256 * 1024
BUFFER = 1024 * 1024
"""The most bytes that wait between the pipes and the server, in each direction."""

KEY_EXCHANGES = ("curve25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256")
"""The quickest key exchanges: a pipe of this host needs no protection of its own. At a port
asyncssh offers its own choice."""

LOOK_S = 2.0
"""Seconds between looks which machine a name leads to."""

END_S = 1.0
"""Seconds for the last message to the client."""


def serve_stdio(word: str, machine: str = "") -> int:
    """Serves a client of the sandbox that ``word`` stands for, or that has this name on
    ``machine``, until the client leaves or the sandbox ends; returns the exit code. Raises
    HostError if there can be no host key."""
    found = there(word.removesuffix(SUFFIX), machine) if machine else find_ssh_name(word)
    if not found.host:
        _leave_terminal()
    prepare_files()
    places = paths()
    if (sockets := sockets_dir(places)) is not None:
        make_private_dir(sockets)  # for the master that the client is about to become
    key = asyncssh.import_private_key(read_file(key_file(places)))

    async def main(signals: Signals) -> int:
        async with contextlib.AsyncExitStack() as stack:
            sandbox: Sandbox | QuicksandError
            try:
                sandbox = await stack.enter_async_context(reached(_way(found), found.name))
            except QuicksandError as error:
                sandbox = error
            _leave_terminal()  # ssh has asked all its questions on the terminal
            await _serve(sandbox, key, _elsewhere(found))
        return 0

    return run_async(main)


def _leave_terminal() -> None:
    """Leaves the terminal of the client: a key typed there, while the client stays in the
    background, is not for this process."""
    with contextlib.suppress(PermissionError):  # this process leads a group of its own already
        os.setsid()


def _way(found: SshName) -> Way | None:
    """Returns the way to the machine of a name; None for this one. Raises ConfigError."""
    if not found.host:
        return None
    from quicksand_tui.cli.hosts.hosts import find_destination  # noqa: PLC0415

    return find_destination(found.host)


async def _elsewhere(found: SshName) -> QuicksandError:
    """Waits until a name of another machine leads to another machine; returns the error for the
    client: a kept connection is found by that name."""
    destination = _way(found)
    if destination is None:
        await asyncio.Event().wait()
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            now = _way(found)
        except QuicksandError as error:
            return error
        if now is not None and now != destination:
            return StateError(f"{found.host} is another machine now: {now.short}")


async def _serve(
    sandbox: Sandbox | QuicksandError,
    key: asyncssh.SSHKey,
    elsewhere: Coroutine[Any, Any, QuicksandError],
) -> None:
    tasks = Tasks()
    server = GuestServer(sandbox, tasks)
    with _pipes_as_socket() as ours:
        talking = asyncio.create_task(_talk(ours, server, key), name="quicksand-ssh-connection")
        watching = asyncio.create_task(_watch(sandbox), name="quicksand-ssh-guest")
        looking = asyncio.create_task(elsewhere, name="quicksand-ssh-machine")
        try:
            await asyncio.wait((talking, watching, looking), return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                await tasks.end(TELL_S)
                server.send_away((watching if watching.done() else looking).result())
                await asyncio.wait((talking,), timeout=END_S)
        finally:
            if server.connection is not None:
                server.connection.abort()
                await asyncio.wait((talking,), timeout=END_S)
            await tasks.end(HANG_UP_S)
            for task in (talking, watching, looking):
                task.cancel()
            await asyncio.wait((talking, watching, looking))


async def _talk(ours: socket.socket, server: GuestServer, key: asyncssh.SSHKey) -> None:
    """Talks to the client until it leaves or is sent away."""
    # A broken pipe means that the client has gone.
    with contextlib.suppress(OSError, asyncssh.Error):
        connection = await asyncssh.run_server(
            ours,
            server_factory=lambda: server,
            server_host_keys=[key],
            public_key_auth=False,
            kex_algs=KEY_EXCHANGES,
            **OPTIONS,
        )
        await connection.wait_closed()


async def _watch(sandbox: Sandbox | QuicksandError) -> QuicksandError:
    """Returns the end of the guest. Does not return while the guest runs, or if there is none: then
    the login fails, and tells why."""
    try:
        if not isinstance(sandbox, Sandbox):
            raise sandbox
        return await wait_gone(sandbox)
    except QuicksandError as failure:
        await asyncio.Event().wait()
        return failure


@contextlib.contextmanager
def _pipes_as_socket() -> Iterator[socket.socket]:
    """Yields a socket that stands for stdin and stdout: ssh gives us pipes, and asyncssh wants a
    socket. Threads copy, which asyncio would take longer for."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    threading.Thread(target=_copy_in, args=(theirs,), daemon=True).start()
    writer = threading.Thread(target=_copy_out, args=(theirs,), daemon=True)
    writer.start()
    try:
        yield ours
    finally:
        ours.close()
        writer.join(END_S)


def _copy_in(theirs: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(STDIN, CHUNK):
            theirs.sendall(data)
    with contextlib.suppress(OSError):
        theirs.shutdown(socket.SHUT_WR)


def _copy_out(theirs: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := theirs.recv(CHUNK):
            view = memoryview(data)
            while view:
                view = view[os.write(STDOUT, view) :]
    with contextlib.suppress(OSError):
        theirs.shutdown(socket.SHUT_RD)  # nobody reads any more

"""The server that talks to a client over one connection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import asyncssh
from quicksand.base.errors import QuicksandError
from quicksand.guest.connections import GuestConnection
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.ssh.ssh_files import USUAL_USER
from quicksand_tui.cli.ssh_server.pipes import Flow, Pipe
from quicksand_tui.cli.ssh_server.sessions import Guest, GuestSession
from quicksand_tui.cli.ssh_server.tunnels import ForwardedTcp, ForwardedUnix, GuestForward, refusal
from quicksand_tui.model.remedy_words import hint_of, text_of
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand_tui.cli.ssh_server.common import Tasks

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

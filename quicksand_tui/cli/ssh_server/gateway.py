"""The same server on a port, for other machines and for clients that run no programs. Whoever comes
has to have a key, and gets where that leads to, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncssh
from quicksand.base.errors import QuicksandError, SandboxNotFoundError
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.runner import attached
from quicksand_tui.cli.ssh_server.common import OPTIONS, TELL_S, wait_gone
from quicksand_tui.cli.ssh_server.keys import Key, read_keys
from quicksand_tui.cli.ssh_server.server import GuestServer, log_in
from quicksand_tui.cli.ssh_server.tasks import Tasks
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand_tui.cli.ssh_server.sessions import Guest

STRANGERS_MAX = 20
"""Connections, at most, whose client has not proved anything yet."""

CONNECTIONS_MAX = 200

LOGIN_S = 20
"""Seconds for a login."""

KEYS_TRIED_MAX = 10
"""Keys that a client may offer. OpenSSH's own limit is 6 (MaxAuthTries in sshd_config(5))."""

KEEPALIVE_S: Final = 15

END_S = 1.0
"""Seconds for hanging up the commands of a connection that has ended."""


@dataclass
class Gateway:
    """What the connections have in common."""

    keys_file: Path
    log: Callable[[str], None]
    tasks: Tasks = field(default_factory=Tasks)
    strangers: int = 0
    connections: int = 0

    def make_server(self) -> GatewayServer:
        return GatewayServer(self)


class GatewayServer(GuestServer):
    """One connection. The client's user name is NAME, or NAME+USER for a user of the guest."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(SandboxNotFoundError("nobody has logged in"), Tasks())
        self._gateway = gateway
        self._is_stranger = False
        self._keys: list[Key] = []
        self._tried = 0
        self._name, self._user = "", ""
        self._peer = "?"
        self._held = contextlib.ExitStack()
        self._watching: asyncio.Task[None] | None = None
        self._entered: asyncio.Future[Guest] = asyncio.get_running_loop().create_future()

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        super().connection_made(conn)
        self._peer = ":".join(str(part) for part in (conn.get_extra_info("peername") or "?")[:2])
        self._gateway.connections += 1
        self._gateway.strangers += 1
        self._is_stranger = True
        many = self._gateway.connections > CONNECTIONS_MAX
        if many or self._gateway.strangers > STRANGERS_MAX:
            self._note("refused: too many connections")
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gateway.connections -= 1
        self._known()
        if self._name:
            self._note("gone")
        self._entered.cancel()
        self._gateway.tasks.start(self._clean_up(), "clean-up")

    async def _clean_up(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._tasks.end(END_S)
        self._held.close()

    def _known(self) -> None:
        """Counts the client as no stranger any more."""
        if self._is_stranger:
            self._is_stranger = False
            self._gateway.strangers -= 1

    def _note(self, what: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._gateway.log(clean(f"{stamp} {self._peer} {self._name or '-'} {what}"))

    # Proving who one is: every refusal looks the same, whatever its reason.

    async def begin_auth(self, username: str) -> bool:
        self._name, _, self._user = username.partition("+")
        try:
            self._keys = await asyncio.to_thread(read_keys, self._gateway.keys_file)
        except QuicksandError as error:
            self._keys = []
            self._note(str(error))
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        self._tried += 1
        if self._tried > KEYS_TRIED_MAX:
            raise asyncssh.DisconnectError(
                asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, "too many keys"
            )
        if not any(one.public == key and one.leads_to(self._name) for one in self._keys):
            self._note(f"refused {key.get_fingerprint()}")
            return False
        return True

    async def auth_completed(self) -> None:
        """Lets the client in. Raises asyncssh.DisconnectError, which the client shows."""
        self._known()
        self._note(f"in as {self._user or 'the usual user'}")
        sandbox: Sandbox | QuicksandError
        try:
            sandbox = self._held.enter_context(attached(self._name))
            if sandbox.name != self._name:  # it is called by its id, which no key is for
                sandbox = SandboxNotFoundError(f"no sandbox is called {self._name!r}")
        except QuicksandError as error:
            sandbox = error
        guest = await log_in(sandbox, self._user or None)
        if not self._entered.done():
            self._entered.set_result(guest)
            self._guest = guest
            self._watching = self._gateway.tasks.start(self._watch(guest.sandbox), "guest")

    async def _enter(self) -> Guest:
        if not self._entered.done():
            await asyncio.wait((self._entered,))
        return await super()._enter()

    async def _watch(self, sandbox: Sandbox) -> None:
        try:
            error = await wait_gone(sandbox)
        except QuicksandError as failure:
            error = failure
        await self._tasks.end(TELL_S)
        self.send_away(error)


async def serve_at(host: str, port: int, key: asyncssh.SSHKey, gateway: Gateway) -> int:
    """Begins to listen; returns the port. Raises OSError."""
    acceptor = await asyncssh.listen(
        host,
        port,
        server_factory=gateway.make_server,
        server_host_keys=[key],
        login_timeout=LOGIN_S,
        keepalive_interval=KEEPALIVE_S,
        reuse_address=True,
        **OPTIONS,
    )
    return int(acceptor.get_port())

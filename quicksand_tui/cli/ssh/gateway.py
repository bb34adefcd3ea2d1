"""`quicksand-tui ssh-gateway`: the same server on a port, for other machines and for clients that
run no programs. Every client must have a key, and gets only where that leads to."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncssh
import click
from quicksand.base.errors import (
    ConfigError,
    HostError,
    PortInUseError,
    QuicksandError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.base.files import map_os_errors
from quicksand.base.listening import close_server
from quicksand.base.paths import paths
from quicksand.base.regular import open_regular, read_file
from quicksand.records.registry import Registry
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.click_commands import command_of, parse_address
from quicksand_tui.cli.output import Exit, say
from quicksand_tui.cli.runner import attach_here, run_async
from quicksand_tui.cli.ssh.server import OPTIONS, TELL_S, GuestServer, log_in, wait_gone
from quicksand_tui.cli.ssh.sessions import HANG_UP_S, Tasks
from quicksand_tui.cli.ssh.ssh_config import key_file, prepare_files, ssh_dir
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand_tui.cli.runner import Signals
    from quicksand_tui.cli.ssh.sessions import Guest


_LINE = re.compile(r'sandboxes="(?P<names>[A-Za-z0-9._*?,-]+)"\s+(?P<key>\S.*)')

SIZE_MAX = 1024 * 1024
"""The most bytes of the file."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key, and the sandboxes that it leads to."""

    public: asyncssh.SSHKey
    names: tuple[str, ...]
    """Names of sandboxes, with * and ? as in shells."""
    comment: str

    def leads_to(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.names)


def read_keys(file: Path) -> list[Key]:
    """Reads a file with a line for each key, such as ``sandboxes="web,ci-*" ssh-ed25519 AAAA… me``.

    Raises ConfigError for a file that others can write, and for any other line, by its number: an
    unknown option might have been meant as a limit. Raises HostError.
    """
    with map_os_errors(file):
        descriptor = open_regular(file)
    with map_os_errors(file), os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(f"others can write {file}", hint=f"chmod go-w {file}")
        if found.st_size > SIZE_MAX:
            raise ConfigError(f"{file} has more than {SIZE_MAX} bytes")
        text = opened.read(SIZE_MAX).decode("utf-8", "replace")
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        try:
            if match is None:
                raise ValueError('it does not begin with sandboxes="NAME,…"')
            key = asyncssh.import_public_key(match["key"])
        except (ValueError, asyncssh.KeyImportError) as error:
            raise ConfigError(
                f"{file}, line {number}: {error}",
                hint='a line is sandboxes="web,ci-*" and the key as in id_ed25519.pub; "*" is all',
            ) from error
        keys.append(Key(key, tuple(match["names"].split(",")), match["key"].split(None, 2)[-1]))
    return keys


STRANGERS_MAX = 20
"""The most connections whose client has not proved anything yet."""

STRANGERS_EACH_MAX = 10
"""The most of them from one address: the first client is not to keep all others out."""

CONNECTIONS_MAX = 200

CONNECTIONS_EACH_MAX = 8
"""The most connections into one sandbox; each takes one of its agent's ports (AGENT_PORTS)."""

USERS_TRIED_MAX = 5
"""User names that a client may try in one connection. OpenSSH allows one."""

LOGIN_S = 20
"""Seconds for a login."""

KEYS_TRIED_MAX = 10
"""Keys that a client may offer. OpenSSH's own limit is 6 (MaxAuthTries in sshd_config(5))."""

KEEPALIVE_S: Final = 15

END_S = 1.0
"""Seconds for the last message to a client."""


@dataclass
class Gateway:
    """The state that the connections share."""

    keys_file: Path
    log: Callable[[str], None]
    tasks: Tasks = field(default_factory=Tasks)
    strangers: Counter[str] = field(default_factory=Counter)
    """The connections of strangers, by their addresses."""
    inside: Counter[str] = field(default_factory=Counter)
    """Connections by the names of their sandboxes."""
    servers: set[GatewayServer] = field(default_factory=set)
    """The servers, one for each connection."""
    acceptor: asyncssh.SSHAcceptor | None = None
    has_ended: bool = False

    def make_server(self) -> GatewayServer:
        return GatewayServer(self)

    async def end(self) -> None:
        """Ends the connections, and waits until their commands in the guests are hung up."""
        self.has_ended = True  # asyncio may tell of a connection that was accepted just before
        if self.acceptor is not None:
            await close_server(self.acceptor)
        for server in list(self.servers):
            server.send_away(StateError("the gateway has ended"))
        # asyncssh tells a server that its connection is lost in one of the next rounds.
        left = [asyncio.create_task(server.lost.wait()) for server in self.servers]
        if left:
            _, waiting = await asyncio.wait(left, timeout=END_S)
            for task in waiting:
                task.cancel()
        await self.tasks.end(HANG_UP_S + END_S)


class GatewayServer(GuestServer):
    """One connection. The client's user name is NAME, or NAME+USER for a user of the guest."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(SandboxNotFoundError("nobody has logged in"), Tasks())
        self._gateway = gateway
        self.lost = asyncio.Event()
        self._is_stranger = False
        self._inside = ""
        """The name of the sandbox that it counts for."""
        self._keys: list[Key] = []
        self._tried = self._users_tried = 0
        self._name, self._user = "", ""
        self._address, self._peer = "?", "?"
        self._held = contextlib.ExitStack()
        self._login: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._entered = asyncio.Event()
        """Set once it is known whether the client gets in."""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        super().connection_made(conn)
        peer = [str(part) for part in (conn.get_extra_info("peername") or "?")[:2]]
        self._address, self._peer = peer[0], ":".join(peer)
        gateway = self._gateway
        gateway.servers.add(self)
        gateway.strangers[self._address] += 1
        self._is_stranger = True
        if gateway.has_ended:
            conn.abort()
        elif (
            len(gateway.servers) > CONNECTIONS_MAX
            or gateway.strangers.total() > STRANGERS_MAX
            or gateway.strangers[self._address] > STRANGERS_EACH_MAX
        ):
            self._note("refused: too many connections")
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._gateway.servers.discard(self)
        self._known()
        if self._name:
            self._note("gone")
        self._guest = None
        self._entered.set()
        self._gateway.tasks.start(self._clean_up(), "clean-up")
        self.lost.set()

    async def _clean_up(self) -> None:
        for task in (self._login, self._watching):
            if task is not None:
                task.cancel()
        await self._tasks.end(HANG_UP_S)
        self._held.close()
        if self._inside:
            _less(self._gateway.inside, self._inside)

    def _known(self) -> None:
        """Notes that the client is no longer a stranger."""
        if self._is_stranger:
            self._is_stranger = False
            _less(self._gateway.strangers, self._address)

    def _note(self, what: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._gateway.log(clean(f"{stamp} {self._peer} {self._name or '-'} {what}"))

    # Authentication: every refusal looks the same, whatever its reason.

    async def begin_auth(self, username: str) -> bool:
        self._users_tried += 1
        if self._users_tried > USERS_TRIED_MAX:
            raise asyncssh.DisconnectError(
                asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, "too many user names"
            )
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

    def auth_completed(self) -> None:
        """Lets the client in, in a task: if it leaves before, nobody is to wait for a guest."""
        self._known()
        self._login = self._tasks.start(self._let_in(self._name, self._user), "login")

    async def _let_in(self, name: str, user: str) -> None:
        """Logs in, or sends the client away and says why."""
        sandbox: Sandbox | QuicksandError
        try:
            sandbox = self._find(name)
        except QuicksandError as error:
            sandbox = error
        try:
            self._guest = guest = await log_in(sandbox, user or None)
            self._note(f"in as {guest.login.name}")
            self._watching = self._gateway.tasks.start(self._watch(guest.sandbox), "guest")
        except asyncssh.DisconnectError as error:
            self._note(f"sent away: {error.reason}")
            if self.connection is not None:
                self.connection.disconnect(error.code, error.reason)
        finally:
            self._entered.set()

    def _find(self, name: str) -> Sandbox:
        """Returns the sandbox with exactly the name that the key was checked for: the client learns
        of no other. Raises SandboxNotFoundError, StateError."""
        unknown = SandboxNotFoundError(f"no sandbox is called {name!r}")
        if self._gateway.inside[name] >= CONNECTIONS_EACH_MAX:
            raise StateError(f"{CONNECTIONS_EACH_MAX} connections into it are open")
        if (entry := Registry(paths()).named(name)) is None:
            raise unknown
        try:
            sandbox = self._held.enter_context(contextlib.closing(attach_here(entry.id)))
        except SandboxNotFoundError:
            raise unknown from None
        self._inside = name
        self._gateway.inside[name] += 1
        return sandbox

    async def _enter(self) -> Guest:
        await self._entered.wait()
        return await super()._enter()

    async def _watch(self, sandbox: Sandbox) -> None:
        try:
            error = await wait_gone(sandbox)
        except QuicksandError as failure:
            error = failure
        await self._tasks.end(TELL_S)
        self.send_away(error)


def _less(counted: Counter[str], name: str) -> None:
    """Counts one less, and keeps no name without any."""
    counted[name] -= 1
    if counted[name] <= 0:
        del counted[name]


async def serve_at(host: str, port: int, key: asyncssh.SSHKey, gateway: Gateway) -> int:
    """Begins to listen, until `Gateway.end`; returns the port. Raises OSError."""
    gateway.acceptor = await asyncssh.listen(
        host,
        port,
        server_factory=gateway.make_server,
        server_host_keys=[key],
        login_timeout=LOGIN_S,
        keepalive_interval=KEEPALIVE_S,
        reuse_address=True,
        **OPTIONS,
    )
    return int(gateway.acceptor.get_port())


@command_of("ssh-gateway")
def ssh_gateway_command(listen: str, keys: Path | None) -> int:
    """Serve SSH at a port until Ctrl-C, for machines and clients that cannot run quicksand-tui.

    ADDRESS is HOST:PORT, or PORT alone, at 127.0.0.1. 0.0.0.0 and [::] stand for all addresses. A
    client's user name is the sandbox, or sandbox+user:

    \b
    ssh -p 2222 web@HOST
    ssh -p 2222 web+joe@HOST uname -a

    Only public keys are accepted: those in FILE, one to a line, each with the sandboxes that it
    leads to. A change of FILE counts from the next login on:

    \b
    sandboxes="web,ci-*" ssh-ed25519 AAAA... me@laptop

    Logins, their ends and refusals are logged to stderr.
    """
    host, port = parse_address(listen)
    file = keys if keys is not None else ssh_dir(paths()) / "authorized_keys"
    prepare_files()
    if not file.exists():
        raise ConfigError(
            f"there is no {file}",
            hint='give each key a line: sandboxes="*" and what is in its id_ed25519.pub',
        )
    known = read_keys(file)
    key = asyncssh.import_private_key(read_file(key_file(paths())))

    async def main(signals: Signals) -> int:
        gateway = Gateway(file, say)
        try:
            bound = await serve_at(host, port, key, gateway)
        except OSError as error:
            kind = PortInUseError if error.errno == errno.EADDRINUSE else HostError
            raise kind(f"cannot listen at {listen}: {error.strerror or error}") from error
        shown = f"[{host}]:{bound}"
        count = f"{len(known)} key{'' if len(known) == 1 else 's'}"
        click.echo(f"listening at {shown} for {count} of {clean(file)}")
        click.echo(f"host key {key.get_fingerprint()}; for a known_hosts elsewhere:")
        click.echo(f"{shown} {key.export_public_key().decode().strip()}")
        try:
            await asyncio.Event().wait()
        finally:
            await gateway.end()
        return Exit.OK

    return run_async(main)

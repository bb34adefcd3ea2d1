"""Serves one client on stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import asyncssh
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import make_private_dir, paths
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.runner import Signals, attached, run_async
from quicksand_tui.cli.ssh_files import key_file, prepare_files, sockets_dir
from quicksand_tui.cli.ssh_server.common import OPTIONS, TELL_S, wait_gone
from quicksand_tui.cli.ssh_server.server import GuestServer
from quicksand_tui.cli.ssh_server.tasks import Tasks

STDIN, STDOUT = 0, 1
CHUNK = 256 * 1024
BUFFER = 1024 * 1024
"""Bytes that wait between the pipes and the server, in each direction."""

KEY_EXCHANGES = ("curve25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256")
"""The quickest ones: what goes through a pipe of this host needs no protection of its own. At a
port asyncssh offers its own choice."""

END_S = 1.0
"""Seconds for hanging up commands, and for the last message to the client."""


def serve_stdio(name: str) -> int:
    """Serves a client of the sandbox ``name`` until it leaves, or the sandbox ends; returns the
    exit code. Raises HostError if there can be no host key."""
    # A key typed at the terminal of a client that stays in the background is not for this process.
    with contextlib.suppress(PermissionError):  # it leads a group of its own already
        os.setsid()
    prepare_files()
    places = paths()
    if (sockets := sockets_dir(places)) is not None:
        make_private_dir(sockets)  # for the master that the client is about to become
    key = asyncssh.read_private_key(key_file(places))

    async def main(signals: Signals) -> int:
        with contextlib.ExitStack() as stack:
            sandbox: Sandbox | QuicksandError
            try:
                sandbox = stack.enter_context(attached(name))
            except QuicksandError as error:
                sandbox = error
            await _serve(sandbox, key)
        return 0

    return run_async(main)


async def _serve(sandbox: Sandbox | QuicksandError, key: asyncssh.SSHKey) -> None:
    tasks = Tasks()
    server = GuestServer(sandbox, tasks)
    with _pipes_as_socket() as ours:
        talking = asyncio.create_task(_talk(ours, server, key), name="quicksand-ssh-connection")
        watching = asyncio.create_task(_watch(sandbox), name="quicksand-ssh-guest")
        try:
            await asyncio.wait((talking, watching), return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                await tasks.end(TELL_S)
                server.send_away(watching.result())
                await asyncio.wait((talking,), timeout=END_S)
        finally:
            if server.connection is not None:
                server.connection.abort()
                await asyncio.wait((talking,), timeout=END_S)
            await tasks.end(END_S)
            for task in (talking, watching):
                task.cancel()
            await asyncio.wait((talking, watching))


async def _talk(ours: socket.socket, server: GuestServer, key: asyncssh.SSHKey) -> None:
    """Talks to the client until it leaves or is sent away."""
    # The client of a pipe that breaks has gone.
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
    """Returns how the guest has ended. Does not return while there is one, or if there is none:
    then the login fails, and tells why."""
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

"""Serves one client on stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import asyncssh
from quicksand.base.errors import QuicksandError, StateError
from quicksand.base.paths import make_private_dir, paths
from quicksand.base.regular import read_file
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.hosts.sandbox_there import reached
from quicksand_tui.cli.runner import Signals, run_async
from quicksand_tui.cli.ssh.ssh_files import SUFFIX, key_file, prepare_files, sockets_dir
from quicksand_tui.cli.ssh.ssh_names import SshName, find_ssh_name, there
from quicksand_tui.cli.ssh_server.common import OPTIONS, TELL_S, Tasks, wait_gone
from quicksand_tui.cli.ssh_server.server import GuestServer
from quicksand_tui.cli.ssh_server.sessions import HANG_UP_S

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
                sandbox = await stack.enter_async_context(reached(found))
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


async def _elsewhere(found: SshName) -> QuicksandError:
    """Waits until a name of another machine leads to another machine; returns the error for the
    client: a kept connection is found by that name."""
    if not found.host:
        await asyncio.Event().wait()
    from quicksand_tui.cli.hosts.hosts import find_destination  # noqa: PLC0415

    destination = find_destination(found.host)
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            now = find_destination(found.host)
        except QuicksandError as error:
            return error
        if now != destination:
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

"""Mounting directories in a guest, and treating mounts when the guest's memory is replaced.

The guest's kernel is the client. Its state of a mount (a connection, names of open files, unwritten
data) is in every checkpoint of its memory, so a guest that continues from one has mounts whose
servers are gone. These are detached by force before anything is mounted again: each server has a
secret of its own, so no data of the past reaches the host a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import secrets
import socket
import sys
import termios
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from quicksand_smb import HANG_UP

from quicksand.base.effort import best_effort
from quicksand.base.errors import (
    AgentError,
    AgentRefusedError,
    ConfigError,
    MountError,
    QuicksandError,
    StateError,
)
from quicksand.base.files import map_os_errors
from quicksand.base.threads import to_the_end
from quicksand.guest.agent import values
from quicksand.guest.agent.refusals import LinuxErrno
from quicksand.guest.agent.session import Ask
from quicksand.mounts import shares
from quicksand.mounts.directories import KnownDirectory
from quicksand.mounts.mounter import Mounter, look
from quicksand.mounts.share_server import start_refuser, start_server
from quicksand.mounts.shares import DETACH_S, GuestShares, Share, ask_for_shares, streams_of
from quicksand.records.config import SHARE_IP, SHARE_PORT, NetworkMode, SandboxConfig
from quicksand.records.layout import MachineDir, log_of
from quicksand.records.mount import Mount

Served = list[tuple[Share, str]]
"""Shares that are served but not mounted yet, each with its secret."""

MOUNT_S = 60.0
"""Seconds for the guest's mount(2), which may first have to load the client."""
SYNC_S = 5.0
"""Seconds in which a guest may write its unwritten data to its mounts."""
HANG_UP_S = 2.0
"""Seconds for QEMU to pass 64 KiB on; a busy host takes that long."""
GIVE_UP_S = 5.0
"""Seconds for a guest to give up a mount whose server has ended. By itself it takes 21."""
HANG_UP_AGAIN_S = 0.1
"""Seconds for the same where the guest may no longer have a connection: it is asked again."""

LEFT_S = 0.2
"""Seconds within which a client that is no longer needed has closed its connection."""
LEFT_POLL_S = 0.02

CLIENT_IS_BUSY = (LinuxErrno.EHOSTDOWN, LinuxErrno.EAGAIN)
"""The errors of a busy client: after its mount was detached by force, it keeps its connection for a
while, or as long as a program has a file open there. It tries to reconnect, and refuses every new
mount from the same address until it has."""
STREAMS_TRIED = 12
"""The most streams that are tried. A client on a fast machine whose mounts are detached by force,
one each second, is busy on six. Where no other stream is free, it is asked again."""
BUSY_S = 1.0
"""Seconds until then. It tries to reconnect every three."""
ASKED_AGAIN = 4
"""Times that it is asked on one stream before its connection there is ended."""

OPTIONS = (
    f"ip={SHARE_IP}",
    "vers=3.1.1",
    "sec=ntlmssp",
    "user=quicksand",
    "posix",
    # Without it, a new file has the mode 0755 until it is looked up again: git would take it for a
    # program.
    "modefromsid",
    # With it, the server can agree to chown.
    "idsfromsid",
    # Locks are kept in the guest: those of SMB are mandatory, which databases do not expect.
    "nobrl",
    "noperm",
    # An open file is cached, and looked up again when it is opened again: this is the only way to
    # use the page cache without asking the host before each read.
    "cache=loose",
    "actimeo=1",
    # A restarted server is noticed after three of these seconds at the latest.
    "echo_interval=2",
    "soft",
    "nodfs",
)
"""Options of Linux's client (mount.cifs(8)), chosen by measurement (docs/internals/mounts.md)."""

KEPT_DIRECTORIES = (
    # Directories whose contents the client caches. Its default is 16, but a tree has more.
    ("max_cached_dirs=1024",),
    # A client that is older than this option makes mistakes with cached directories.
    ("nohandlecache",),
)
"""Tried in this order."""

NO_FSYNC = ("nostrictsync",)
"""For a mount without `Mount.fsync`: nothing is flushed at the server. With fsync the client also
flushes each open file whose times are set, as `tar` does."""


def check_possible(config: SandboxConfig) -> None:
    """Raise StateError if a sandbox cannot have mounts."""
    if config.network_mode is NetworkMode.NONE:
        raise StateError(
            "this sandbox has no network card, which mounts need",
            hint="make one with network_mode mounts_only: then only mounts and forwarded ports "
            "are open; or with a mount of type 9p at its start, which needs no network",
        )


async def serve_all(
    machine: MachineDir,
    mounts: Sequence[tuple[Mount, KnownDirectory]],
    *,
    avoid: Collection[int] = (),
) -> Served:
    """Start the servers of a machine that has none yet; the streams ``avoid`` are taken last. The
    servers end with the machine. Raises MountError, StateError; then no server is left."""
    started: list[Share] = []

    async def start(mount: Mount, known: KnownDirectory) -> tuple[Share, str]:
        secret = secrets.token_hex(16)
        share = await start_server(machine, mount, secret, known=known, avoid=avoid)
        started.append(share)
        return share, secret

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(start(mount, known)) for mount, known in mounts]
    except BaseException as error:
        for share in started:
            share.end()
        if isinstance(error, BaseExceptionGroup):
            raise error.exceptions[0] from None
        raise
    return [task.result() for task in tasks]


async def mount_served(machine: MachineDir, share: Share, secret: str, ask: Ask) -> Share:
    """Have the guest mount a served share, and record it as mounted; on another stream if its
    client is still busy with an earlier server of this one. After a failure nothing is served.
    Raises MountError, AgentError, HostError."""
    share = await mount_untold(machine, share, secret, ask)
    shares.note(machine, share)
    return share


async def mount_untold(machine: MachineDir, share: Share, secret: str, ask: Ask) -> Share:
    """The same, but the record keeps saying that the share is being mounted."""
    tried: list[int] = []
    while True:
        try:
            await _mount_on(machine, share, secret, ask)
            return share
        except AgentRefusedError as error:
            tried.append(share.number)
            if error.errno not in CLIENT_IS_BUSY or len(tried) == STREAMS_TRIED:
                shares.forget(machine, share)
                raise _explain(share.mount, error) from error
        is_other_free = await asyncio.to_thread(shares.free_streams, machine) - set(tried)
        if not is_other_free and tried.count(share.number) % ASKED_AGAIN != 1:
            await asyncio.sleep(BUSY_S)
            continue
        shares.forget(machine, share)
        await asyncio.to_thread(shares.end_on, machine, share.number)
        if not is_other_free:
            # Requests for which its client still waits on this stream fail, and it reconnects.
            await _hang_up(machine, [share.number])
        share = await start_server(machine, share.mount, secret, known=share.known, avoid=tried)


async def _mount_on(machine: MachineDir, share: Share, secret: str, ask: Ask) -> None:
    """Mount it on one stream. Raises AgentRefusedError if the guest cannot mount it; the share is
    then still served, unlike after any other error. Raises MountError, AgentError, HostError."""
    try:
        # First, so that no other client takes it for the remains of a killed one.
        shares.note(machine, replace(share, mounter=Mounter.me()))
        await _ask_to_mount(share, secret, ask)
        await look(share.mount, ask)
    except AgentRefusedError:
        raise
    except BaseException:
        shares.forget(machine, share)
        with best_effort("take the mount back", log_of(machine), AgentError):
            await to_the_end(_give_up(machine, share.name, ask))
        raise


async def _ask_to_mount(share: Share, secret: str, ask: Ask) -> None:
    for directories in KEPT_DIRECTORIES:
        params = {
            "share": share.name,
            **values.parameter("target", share.mount.guest),
            "options": [
                *OPTIONS,
                *directories,
                *(() if share.mount.fsync else NO_FSYNC),
                f"port={SHARE_PORT + share.number}",
                f"pass={secret}",
            ],
            "read_only": share.mount.readonly,
        }
        try:
            await ask("mount_share", params, MOUNT_S)
            return
        except AgentRefusedError as error:
            is_last = directories is KEPT_DIRECTORIES[-1]
            if is_last or error.errno != LinuxErrno.EINVAL:
                raise


def _explain(mount: Mount, error: AgentRefusedError) -> QuicksandError:
    if error.code == "no_such_method":
        return StateError(
            "the guest's agent is older than mounts",
            hint="stop the sandbox and start it again",
        )
    return MountError(f"{mount.host} cannot be mounted at {mount.guest}: {error}")


async def add_mount(
    machine: MachineDir,
    mount: Mount,
    known: KnownDirectory,
    ask: Ask,
) -> Share:
    """Serve a directory and have a running guest mount it. The caller holds the history's lock.
    Raises ConfigError if something is mounted there, MountError, StateError, AgentError."""
    await end_unknown(machine)
    await check_free(machine, mount.guest)
    await _end_idle(machine, ask)
    secret = secrets.token_hex(16)
    share = await start_server(machine, mount, secret, known=known)
    return await mount_served(machine, share, secret, ask)


async def end_unknown(machine: MachineDir) -> None:
    """`shares.end_unknown`. Raises HostError."""
    with map_os_errors(machine.root):
        await asyncio.to_thread(shares.end_unknown, machine)


async def check_free(machine: MachineDir, guest: str) -> None:
    """Raise ConfigError if something is mounted at this path of the guest."""
    here = await asyncio.to_thread(shares.list_shares, machine)
    if any(share.mount.guest == guest for share in here):
        raise ConfigError(f"something is mounted at {guest} already", hint="unmount it first")


async def remove_mount(machine: MachineDir, share: Share, ask: Ask, *, force: bool) -> None:
    """Remove a mount. With ``force`` it goes whatever the guest does with it; otherwise it is
    refused while a program uses it. Raises MountError, AgentError."""
    params = {**values.parameter("target", share.mount.guest), "force": force}
    try:
        if force:
            # First, so that all files that the guest still has open there are closed in any case.
            share.end()
        await ask("unmount_share", params, DETACH_S)
    except AgentRefusedError as error:
        if error.code == "busy":
            raise MountError(
                f"{share.mount.guest} is in use in the guest",
                hint="end the programs that use it, or unmount by force",
            ) from error
        if error.code != "not_found":
            raise MountError(f"{share.mount.guest} cannot be unmounted: {error}") from error
        # The guest has unmounted it itself; or it is still mounting it, for a killed client.
        shares.forget(machine, share)
        await _give_up(machine, share.name, ask)
        return
    shares.forget(machine, share)
    if force:
        await _end_for_the_guest(machine, [share.number], ask)
    else:
        await _have_forgotten(machine, [share.number])
        with best_effort("end what refused a share that is gone", log_of(machine), AgentError):
            await _end_idle(machine, ask)


async def write_back(ask: Ask | None, log: Path) -> None:
    """Have the guest write its unwritten data to its mounts, before it is left. This must not take
    long, and may fail: the host's side is as complete as the guest has made it."""
    if ask is not None:
        with best_effort("have the guest write back its mounts", log, AgentError, TimeoutError):
            await ask("sync_shares", {}, SYNC_S)


async def find_past(machine: MachineDir, ask: Ask) -> GuestShares:
    """Return the shares that a guest has from the past of its memory. It gives up those that it was
    mounting then. Raises AgentError."""
    past = await ask_for_shares(ask)
    await asyncio.gather(*(_give_up(machine, name, ask) for name in past.mounting))
    return past


async def _give_up(machine: MachineDir, name: str, ask: Ask) -> None:
    """Have a guest give up the mount that it may be making of a share whose server has ended. Else
    its kernel would wait for it, and every later mount for that one. Raises AgentError."""
    streams = streams_of([name])
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GIVE_UP_S):
            await _hang_up(machine, streams)
            now = await ask_for_shares(ask)
            while name in now.mounting:
                # It had sent the server no request yet, and does so when it has reconnected.
                await _hang_up(machine, streams, HANG_UP_AGAIN_S)
                now = await ask_for_shares(ask)
            if name in now.mounted:
                await detach_stale(machine, [name], ask)


async def detach_stale(machine: MachineDir, stale: Collection[str], ask: Ask) -> None:
    """Detach mounts of the past, by the names of their shares. A program that has a file open
    there, or on an earlier detached mount, gets an error. Raises AgentError."""
    if stale:
        await ask("detach_shares", {"shares": sorted(stale)}, DETACH_S)
    served = {share.number for share in await asyncio.to_thread(shares.list_shares, machine)}
    await _end_for_the_guest(machine, streams_of(stale) - served, ask)


async def _end_for_the_guest(machine: MachineDir, numbers: Collection[int], ask: Ask) -> None:
    """Make the guest's kernel finish with shares that are gone. As long as a program has a file
    open there, or data must still be written, it would wait for a server, and so would programs
    that sync all file systems: so its requests are refused. Raises AgentError."""
    await _hang_up(machine, numbers)
    deadline = asyncio.get_running_loop().time() + LEFT_S
    while True:
        connected = (await ask_for_shares(ask)).connected
        if connected is None:
            left = frozenset(numbers)
            break
        served = {share.number for share in await asyncio.to_thread(shares.list_shares, machine)}
        left = connected - served
        if not left or asyncio.get_running_loop().time() >= deadline:
            break
        await asyncio.sleep(LEFT_POLL_S)
    await _have_forgotten(machine, set(numbers) - left)
    if connected is not None:
        await _end_idle_but(machine, connected)
    for number in sorted(left):
        with best_effort("refuse what is wanted of a share that is gone", log_of(machine)):
            await start_refuser(machine, number)


async def _end_idle(machine: MachineDir, ask: Ask) -> None:
    """End the refusers of shares with which the guest has finished, which may take it longer than
    `LEFT_S`. Raises AgentError, HostError."""
    if await asyncio.to_thread(shares.list_refusers, machine):
        connected = (await ask_for_shares(ask)).connected
        if connected is not None:
            await _end_idle_but(machine, connected)


async def _end_idle_but(machine: MachineDir, connected: Collection[int]) -> None:
    with map_os_errors(machine.root):
        idle = await asyncio.to_thread(shares.end_idle_refusers, machine, connected)
    await _have_forgotten(machine, idle)


async def _have_forgotten(machine: MachineDir, numbers: Iterable[int]) -> None:
    """Make QEMU's network forget connections that the guest has closed, on streams that nobody
    serves: when more data comes, the guest resets them."""
    await _hang_up(machine, numbers, HANG_UP_AGAIN_S)


async def _hang_up(machine: MachineDir, numbers: Iterable[int], seconds: float = HANG_UP_S) -> None:
    """End the guest's connections on streams that nobody serves, if it has any within ``seconds``:
    requests that wait for an answer there fail at once."""
    paths = map(machine.share_socket, numbers)
    await asyncio.gather(*(_hang_up_one(path, seconds) for path in paths))


async def _hang_up_one(path: Path, seconds: float) -> None:
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(HANG_UP)
            await _until_taken(writer.get_extra_info("socket"), seconds)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _until_taken(socket: socket.socket, seconds: float) -> None:
    """Wait until QEMU has read the written bytes. It does not if the guest has no connection."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while loop.time() < deadline:
        left = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
        if not int.from_bytes(left, sys.byteorder):
            return
        await asyncio.sleep(0.001)

"""Mounting directories in a guest, and treating mounts when the guest's memory is replaced.

The guest's kernel is the client. Its state of a mount (a connection, names of open files, data that
it has not written yet) is in every checkpoint of its memory, so a guest that continues from one has
mounts whose servers are gone. They are detached by force before anything is mounted again: each
server has a secret of its own, so nothing of the past reaches the host a second time.
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
from dataclasses import dataclass, replace
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
from quicksand.guest.agent import raw
from quicksand.guest.agent.refusals import LinuxErrno
from quicksand.guest.agent.session import Ask
from quicksand.mounts import shares
from quicksand.mounts.directories import KnownDirectory
from quicksand.mounts.mounter import Mounter, look
from quicksand.mounts.serving import share_name, start_refuser, start_server
from quicksand.mounts.shares import Share
from quicksand.records.config import SHARE_IP, SHARE_PORT, NetworkMode, SandboxConfig
from quicksand.records.layout import SHARES, MachineDir, log_of
from quicksand.records.mount import Mount

Served = list[tuple[Share, str]]
"""Shares that are served and not mounted yet, each with its secret."""

MOUNT_S = 60.0
"""Seconds for the guest's mount(2), which may have to load the client first."""
SYNC_S = 5.0
"""Seconds in which a guest may write what it still holds of its mounts."""
DETACH_S = 20.0
HANG_UP_S = 2.0
"""Seconds for QEMU to pass 64 KiB on; a busy host takes that long."""
GIVE_UP_S = 5.0
"""Seconds for a guest to give up a mount whose server has ended. By itself it takes 21."""
HANG_UP_AGAIN_S = 0.1
"""Seconds for the same where the guest may have no connection any more: it is asked again."""

LEFT_S = 0.2
"""Seconds within which a client that nobody needs any more has closed its connection."""
LEFT_POLL_S = 0.02

CLIENT_IS_BUSY = (LinuxErrno.EHOSTDOWN, LinuxErrno.EAGAIN)
"""A client that was taken off a mount by force keeps its connection for a while, or as long as a
program has a file open there; it tries to make it anew, and refuses every new mount from the same
address until it has."""
STREAMS_TRIED = 12
"""A client on a fast machine that is taken off mounts by force, one each second, is busy on six."""

OPTIONS = (
    f"ip={SHARE_IP}",
    "vers=3.1.1",
    "sec=ntlmssp",
    "user=quicksand",
    "posix",
    # Without it, a file that was just made has the mode 0755 until it is looked at again: git would
    # take it for a program.
    "modefromsid",
    # With it, chown is something that the server can agree to.
    "idsfromsid",
    # Locks are kept in the guest: those of SMB are mandatory, which databases do not expect.
    "nobrl",
    "noperm",
    # An open file is cached, and looked at again when it is opened again: the only way to a page
    # cache without asking the host before each read.
    "cache=loose",
    "actimeo=1",
    # A server that was begun anew is noticed after three of these seconds at the latest.
    "echo_interval=2",
    "soft",
    "nodfs",
)
"""Options of Linux's client (mount.cifs(8)), chosen by measurement (docs/internals/mounts.md)."""

KEPT_DIRECTORIES = (
    # Those of which the client keeps what it has read. 16 if nobody says so: a tree has more.
    ("max_cached_dirs=1024",),
    # A client that is older than that option makes mistakes with directories that it keeps.
    ("nohandlecache",),
)
"""Tried in this order."""

NO_FSYNC = ("nostrictsync",)
"""For a mount without `Mount.fsync`: nothing is flushed at the server. With it the client flushes
each file that is open and whose times are set, too, as `tar` does."""


def check_possible(config: SandboxConfig) -> None:
    """Raise StateError if a sandbox can have no mounts."""
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
    """Start the servers of a machine that has none yet; the streams ``avoid`` are taken last. They
    end with the machine. Raises MountError, StateError; then none is left."""
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
    """Have the guest mount what is served, and note it; on another stream if its client is still
    busy with a server that was on this one. After a failure nothing is served. Raises MountError,
    AgentError, HostError."""
    tried: set[int] = set()
    while True:
        try:
            await _mount_on(machine, share, secret, ask)
            return share
        except AgentRefusedError as error:
            tried.add(share.number)
            if error.errno not in CLIENT_IS_BUSY or len(tried) == STREAMS_TRIED:
                raise _explain(share.mount, error) from error
        share = await start_server(machine, share.mount, secret, known=share.known, avoid=tried)


async def _mount_on(machine: MachineDir, share: Share, secret: str, ask: Ask) -> None:
    """Raises AgentRefusedError if the guest cannot mount it; nothing is served then."""
    try:
        # First, so that no other client takes it for what a killed one left.
        shares.note(machine, replace(share, mounter=Mounter.me()))
        await _ask_to_mount(share, secret, ask)
        await look(share.mount, ask)
        shares.note(machine, share)
    except AgentRefusedError:
        shares.forget(machine, share)
        raise
    except BaseException:
        shares.forget(machine, share)
        with best_effort("take the mount back", log_of(machine), AgentError):
            await to_the_end(_give_up(machine, share.number, ask))
        raise


async def _ask_to_mount(share: Share, secret: str, ask: Ask) -> None:
    for directories in KEPT_DIRECTORIES:
        params = {
            "share": share_name(share.number),
            **raw.parameter("target", share.mount.guest),
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
    *,
    avoid: Collection[int] = (),
) -> Share:
    """Serve a directory and have a running guest mount it; to be called with the history's lock.
    The streams ``avoid`` are taken last. Raises ConfigError if something is mounted there,
    MountError, StateError, AgentError."""
    with map_os_errors(machine.root):
        await asyncio.to_thread(shares.end_unknown, machine)
    here = await asyncio.to_thread(shares.list_shares, machine)
    if any(share.mount.guest == mount.guest for share in here):
        raise ConfigError(f"something is mounted at {mount.guest} already", hint="unmount it first")
    await _end_idle(machine, ask)
    secret = secrets.token_hex(16)
    share = await start_server(machine, mount, secret, known=known, avoid=avoid)
    return await mount_served(machine, share, secret, ask)


async def remove_mount(machine: MachineDir, share: Share, ask: Ask, *, force: bool) -> None:
    """Take a mount away. With ``force`` it is gone whatever the guest does with it; otherwise it is
    refused while a program uses it. Raises MountError, AgentError."""
    params = {**raw.parameter("target", share.mount.guest), "force": force}
    try:
        if force:
            # First, so that what the guest still has open is closed here in any case.
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
        # The guest has unmounted it itself; or it is mounting it still, for a client that was
        # killed.
        shares.forget(machine, share)
        await _give_up(machine, share.number, ask)
        return
    shares.forget(machine, share)
    if force:
        await _end_for_the_guest(machine, [share.number], ask)
    else:
        await _have_forgotten(machine, [share.number])
        with best_effort("end what refused a share that is gone", log_of(machine), AgentError):
            await _end_idle(machine, ask)


async def write_back(ask: Ask | None, log: Path) -> None:
    """Have the guest write what it still holds of its mounts, before it is left. It must not take
    long, and may fail: the host's side is as good as the guest has made it."""
    if ask is not None:
        with best_effort("have the guest write back its mounts", log, AgentError, TimeoutError):
            await ask("sync_shares", {}, SYNC_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestStreams:
    """What a guest does with the streams of a machine, by their numbers."""

    mounted: frozenset[int] = frozenset()
    mounting: frozenset[int] = frozenset()
    """What its kernel is mounting."""
    connected: frozenset[int] | None = None
    """Those to which its kernel has a connection, for a share that is mounted or was; None if it
    cannot tell, or an older agent does not."""

    @property
    def in_use(self) -> frozenset[int]:
        """Those on which the guest's client may still be busy with a server of the past."""
        return self.mounted | (self.connected or frozenset())


async def find_past(machine: MachineDir, ask: Ask) -> GuestStreams:
    """The streams of the mounts that a guest has from the past of its memory. Those that it was
    making then, it gives up. Raises AgentError."""
    past = await _ask_for_streams(ask)
    await asyncio.gather(*(_give_up(machine, number, ask) for number in past.mounting))
    return past


async def _ask_for_streams(ask: Ask) -> GuestStreams:
    """Ask a guest what it does with the streams. Raises AgentError."""
    try:
        reply = await ask("shares", {}, DETACH_S)
    except AgentRefusedError:
        return GuestStreams()  # an agent that is older than mounts has none

    def streams(names: object) -> frozenset[int]:
        found = names if isinstance(names, list) else []
        return frozenset(n for n in range(SHARES) if share_name(n) in found)

    connected = reply.get("connected")
    return GuestStreams(
        mounted=streams(reply.get("shares")),
        mounting=streams(reply.get("mounting")),
        connected=streams(connected) if isinstance(connected, list) else None,
    )


async def _give_up(machine: MachineDir, number: int, ask: Ask) -> None:
    """Have a guest give up the mount that it may be making of a share whose server has ended. Its
    kernel would wait for the server, and every later mount for that one. Raises AgentError."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GIVE_UP_S):
            await _hang_up(machine, [number])
            now = await _ask_for_streams(ask)
            while number in now.mounting:
                # It had asked the server nothing yet, and does so when it has connected anew.
                await _hang_up(machine, [number], HANG_UP_AGAIN_S)
                now = await _ask_for_streams(ask)
            if number in now.mounted:
                await detach_stale(machine, [number], ask)


async def detach_stale(machine: MachineDir, stale: Collection[int], ask: Ask) -> None:
    """Detach mounts of the past. A program that has a file open there, or on one that was detached
    before, gets an error. Raises AgentError."""
    if stale:
        await ask("detach_shares", {"shares": [share_name(n) for n in stale]}, DETACH_S)
    await _end_for_the_guest(machine, stale, ask)


async def _end_for_the_guest(machine: MachineDir, numbers: Collection[int], ask: Ask) -> None:
    """Have the guest's kernel be done with shares that are gone. As long as a program has a file
    open there, or data is still to be written, it would wait for a server, and whoever syncs all
    file systems with it: so it is refused. Raises AgentError."""
    await _hang_up(machine, numbers)
    deadline = asyncio.get_running_loop().time() + LEFT_S
    while True:
        connected = (await _ask_for_streams(ask)).connected
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
    """End what refuses shares that the guest is done with by now, which may take it longer than
    `LEFT_S`. Raises AgentError, HostError."""
    if await asyncio.to_thread(shares.list_refusers, machine):
        connected = (await _ask_for_streams(ask)).connected
        if connected is not None:
            await _end_idle_but(machine, connected)


async def _end_idle_but(machine: MachineDir, connected: Collection[int]) -> None:
    with map_os_errors(machine.root):
        idle = await asyncio.to_thread(shares.end_idle_refusers, machine, connected)
    await _have_forgotten(machine, idle)


async def _have_forgotten(machine: MachineDir, numbers: Iterable[int]) -> None:
    """Have QEMU's network forget connections that the guest has closed, on streams that nobody
    serves. It does when the guest resets them, as it does when more comes."""
    await _hang_up(machine, numbers, HANG_UP_AGAIN_S)


async def _hang_up(machine: MachineDir, numbers: Iterable[int], seconds: float = HANG_UP_S) -> None:
    """End the guest's connections on streams that nobody serves, as far as it has some within
    ``seconds``: what waits for an answer there fails at once."""
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
    """Wait until QEMU has read what was written. It does not where the guest has no connection."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while loop.time() < deadline:
        left = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
        if not int.from_bytes(left, sys.byteorder):
            return
        await asyncio.sleep(0.001)

"""Starting the server of one share (quicksand_smb), which ends when its QEMU does."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import quicksand_smb

from quicksand.base.effort import best_effort, note
from quicksand.base.error_text import printable
from quicksand.base.errors import MountError, StateError
from quicksand.base.files import map_os_errors, try_lock
from quicksand.base.processes import send_signal, start_of
from quicksand.base.threads import to_the_end
from quicksand.mounts.directories import KnownDirectory, find, opened
from quicksand.mounts.git_commands import find_commands
from quicksand.mounts.shares import Share, a_stream, count_start, note_refuser, share_name
from quicksand.records.layout import MachineDir, log_of
from quicksand.records.mount import Mount

START_S = 20.0
"""Seconds for a server to start, in tens of milliseconds; a host that swaps may need seconds."""

PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from quicksand_smb.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
"""The program. In this way, Python reads nothing of the environment and imports no site packages,
which would take most of the time of a start."""

CONFIG = "/dev/stdin"
"""The place of the configuration: it has the secret, which no file holds."""


SERVERS_PACKAGE = Path(quicksand_smb.__file__).parent

COMPLAINT = "quicksand_smb: "
"""The beginning of each message of the program that is meant for its user."""


def require_program() -> None:
    """Raises MountError if no server can be started, since the package is gone."""
    if not (SERVERS_PACKAGE / "__main__.py").is_file():
        raise MountError(
            f"the program that serves mounts is gone: {SERVERS_PACKAGE}",
            hint="it was upgraded or removed: end the program that you use and start it again",
        )


def new_share_name(number: int) -> str:
    """Return a name for a share on a stream: that of the specification, followed by a part that no
    share of the sandbox has had. A guest that continues from its past has past and present mounts,
    and the past ones are detached by their names."""
    return f"{share_name(number)}-{secrets.token_hex(8)}"


async def start_server(
    machine: MachineDir,
    mount: Mount,
    secret: str,
    *,
    known: KnownDirectory | None = None,
    avoid: Collection[int] = (),
) -> Share:
    """Serve a directory to clients that know ``secret`` on a stream of a machine that is not in
    use, on one of ``avoid`` only if there is no other.

    The directory is ``known``, or else the one to which the mount's path leads. The server gets it
    open, and outlives this process. Raises MountError if the directory cannot be served, StateError
    if the machine has ended or has no such stream. A cancellation leaves no server.
    """
    if not machine.share_socket(0).exists():
        raise StateError(
            "this sandbox has no way to the host's files",
            hint="it was started by an older version, or has ended: start it again",
        )
    if known is None:
        known = await asyncio.to_thread(find, mount)
    commands = () if mount.readonly else await asyncio.to_thread(find_commands, known.path)
    with a_stream(machine, avoid) as (number, lock), opened(mount, known) as directory:
        count_start(machine)
        share = {
            "path": known.path,
            "directory": directory,
            "read_only": mount.readonly,
            "protect": mount.protect,
            "commands": commands,
        }
        name = new_share_name(number)
        config = {
            "shares": {name: share},
            "secret": secret,
            "posix": True,
            "resynchronise": True,
            "leases": "directories",
        }
        socket = machine.share_socket(number)
        starting = asyncio.create_task(
            _start(machine, socket, config, (lock, directory)), name="quicksand-share"
        )
        try:
            pid = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await to_the_end(_undo(starting, log_of(machine)))
            raise
        except MountError as error:
            raise MountError(f"{mount.host} cannot be served: {error}") from error
    return Share(number=number, name=name, mount=mount, pid=pid, started=start_of(pid), known=known)


async def start_refuser(machine: MachineDir, number: int) -> None:
    """Refuse all further requests of the guest on the stream of a share that is gone, until QEMU
    ends or the stream is needed, and make the guest repeat them at once. Does nothing if the stream
    is in use. Raises MountError, HostError."""
    with map_os_errors(machine.root):
        lock = try_lock(machine.share_lock(number))
    if lock is None:
        return
    try:
        # Nobody knows the secret, so the guest's kernel is told that its login fails.
        config = {
            "shares": {},
            "secret": secrets.token_hex(16),
            "posix": True,
            "resynchronise": True,
            "hang_up": True,
        }
        pid = await to_the_end(_start(machine, machine.share_socket(number), config, (lock,)))
    finally:
        os.close(lock)
    note_refuser(machine, number, pid)


async def _start(
    machine: MachineDir, socket: Path, config: dict[str, Any], inherited: Sequence[int]
) -> int:
    """Start a server, which inherits the lock and the directory, and return the process id of its
    supervisor. Raises MountError."""
    require_program()
    words = [
        "-I",
        "-S",
        "-c",
        PROGRAM,
        str(SERVERS_PACKAGE.parent),
        "--config",
        CONFIG,
        "--supervise",
        str(socket),
    ]
    starter = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
        pass_fds=inherited,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(START_S):
            said, complaint = await starter.communicate(json.dumps(config).encode())
    except TimeoutError:
        starter.kill()  # a server that has started ends when it cannot report that
        await starter.wait()
        raise MountError(f"its server did not start within {START_S:g} s") from None
    match said.split():
        case [b"ready", pid]:
            return int(pid)
        case _:
            raise MountError(_reason(complaint, log_of(machine)))


def _reason(complaint: bytes, log: Path) -> str:
    """Why a server did not start. What is not meant for its user is noted in a log instead."""
    said = complaint.decode("utf-8", "replace").strip().splitlines()
    if said and all(line.startswith(COMPLAINT) for line in said):
        return printable("; ".join(line.removeprefix(COMPLAINT) for line in said))
    note(log, f"a server of a mount ended: {' / '.join(said)}")
    return f"its server ended; {log} says why"


async def _undo(starting: asyncio.Task[int], log: Path) -> None:
    with best_effort("end a server that was being started", log, MountError):
        pid = await starting
        send_signal(pid, start_of(pid), signal.SIGKILL)

"""The shares of one machine: which server has which directory on which stream.

A server holds the lock of its stream as long as it lives, and has a record beside it. A record
whose server has ended counts for nothing; a server without a record was left by a killed client.

A guest's own report (`GuestShares`) says which of them it has mounted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quicksand.base.error_text import printable
from quicksand.base.errors import AgentRefusedError, StateError
from quicksand.base.fields import JsonRecord, later, read_by
from quicksand.base.files import is_locked, map_os_errors, read_json, tail, try_lock, write_json
from quicksand.base.processes import holders_of, is_process, send_signal, start_of
from quicksand.base.regular import append_to, open_file
from quicksand.guest.agent.session import Ask
from quicksand.mounts.directories import KnownDirectory
from quicksand.mounts.mounter import Mounter
from quicksand.records.layout import SHARES, MachineDir
from quicksand.records.mount import Mount, decode_mount
from quicksand.things.sandbox_facts import GuestTraffic

STARTS_MAX = 1000
"""The most servers started beside one QEMU, which keeps memory for each connection that a guest
leaves half open (docs/internals/mounts.md)."""
WORDS_MAX = 2000
"""The most bytes that are read of the last words of servers."""
END_S = 2.0
"""Seconds within which killed processes end; one that waits for a disk may need longer."""
END_POLL_S = 0.005
ENDED = "the server ended"
TRAFFIC = struct.Struct("=QQ")
"""Bytes that a guest has received and sent (quicksand_smb/traffic.py)."""


def share_name(number: int) -> str:
    """Return the beginning of a share's name on a stream, which was the whole in older versions."""
    return f"QUICKSAND{number}"


def stream_of(name: str) -> int | None:
    """Return the stream of a share by its name; None if it is not one of ours."""
    begin = name.partition("-")[0]
    return next((number for number in range(SHARES) if share_name(number) == begin), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share(JsonRecord):
    """A served directory."""

    WHAT = "bad record of a share"

    number: int
    """The number of its stream: 0 to SHARES - 1."""
    name: str = field(metadata=later(""))
    """The guest's name for it. No other share of the sandbox has had it, except in older
    versions."""
    mount: Mount = field(metadata=read_by(decode_mount))
    pid: int
    started: str
    """The time when the process of that id started, as the system writes it."""
    known: KnownDirectory | None = field(
        default=None, metadata=later(None, **read_by(KnownDirectory.from_json))
    )
    """The directory itself; None in records of older versions."""
    mounter: Mounter | None = field(
        default=None, metadata=later(None, **read_by(Mounter.from_json))
    )
    """The process that is having the guest mount it; None once the guest was seen to have it
    mounted."""

    @property
    def is_served(self) -> bool:
        """Whether its server lives."""
        return is_process(self.pid, self.started)

    def end(self) -> None:
        """End its server, and so close everything that the guest has open there. Idempotent."""
        send_signal(self.pid, self.started, signal.SIGKILL)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", share_name(self.number))


def read_shares(machine: MachineDir) -> list[Share]:
    """Return the shares of a machine, including those whose servers have ended. Blocks for I/O."""
    found = []
    for number in range(SHARES):
        with contextlib.suppress(OSError, ValueError):
            share = Share.from_json(read_json(machine.share_record(number)))
            if share.number == number:
                found.append(share)
    return found


def list_shares(machine: MachineDir) -> list[Share]:
    """Return the machine's shares with live servers, the lowest stream first. Blocks for I/O."""
    return [share for share in read_shares(machine) if share.is_served]


def end_unknown(machine: MachineDir) -> None:
    """End the servers that a killed client has left without a record. The caller holds the
    history's lock: no other client is just starting one. Blocks for I/O. Raises OSError."""
    known = {share.number for share in list_shares(machine)} | list_refusers(machine)
    for number in range(SHARES):
        if number not in known:
            _end_holders(machine.share_lock(number))


def note_refuser(machine: MachineDir, number: int, pid: int) -> None:
    """Record that this process refuses all requests on a stream. Raises HostError."""
    record = {"pid": pid, "started": start_of(pid)}
    write_json(machine.share_refuser(number), record, durable=False)


def list_refusers(machine: MachineDir) -> set[int]:
    """Return the streams on which all requests are refused. Blocks for I/O."""
    found = set()
    for number in range(SHARES):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record = read_json(machine.share_refuser(number))
            if is_process(int(record["pid"]), str(record["started"])):
                found.add(number)
    return found


def end_refusers(machine: MachineDir, numbers: Collection[int]) -> None:
    """End the refusers of these streams. Blocks for I/O. Raises OSError."""
    for number in list_refusers(machine) & set(numbers):
        _end_holders(machine.share_lock(number))
        machine.share_refuser(number).unlink(missing_ok=True)


def end_idle_refusers(machine: MachineDir, connected: Collection[int]) -> set[int]:
    """End the refusers that the guest no longer needs: its connections, ``connected``, are others.
    Returns their streams. Blocks for I/O. Raises OSError."""
    idle = list_refusers(machine) - set(connected)
    end_refusers(machine, idle)
    return idle


def _end_holders(lock: Path) -> None:
    """End all processes that have a lock. One that is just starting may fork a child that a look at
    the processes misses, so repeat this until the lock is free."""
    deadline = time.monotonic() + END_S
    while is_locked(lock) and time.monotonic() < deadline:
        for pid in holders_of(lock):
            send_signal(pid, start_of(pid), signal.SIGKILL)
        time.sleep(END_POLL_S)


def end_on(machine: MachineDir, number: int) -> None:
    """End the server on a stream, and wait for its end, but not for ever. Blocks for I/O."""
    _end_holders(machine.share_lock(number))


def free_streams(machine: MachineDir) -> set[int]:
    """Return the streams that can be taken. Blocks for I/O. Raises OSError."""
    used = {n for n in range(SHARES) if is_locked(machine.share_lock(n))}
    return {*range(SHARES)} - used | list_refusers(machine)


@contextlib.contextmanager
def a_stream(machine: MachineDir, avoid: Collection[int] = ()) -> Iterator[tuple[int, int]]:
    """Take a stream that is not in use; yield its number, and the descriptor of its lock, which the
    server inherits. One of ``avoid``, or one on which everything is refused, is taken only if there
    is no other. Raises StateError if all are in use, HostError."""
    refused = list_refusers(machine)
    for number in sorted(range(SHARES), key=lambda n: (n in avoid, n in refused, n)):
        with map_os_errors(machine.root):
            if number in refused:
                end_refusers(machine, [number])
            lock = try_lock(machine.share_lock(number))
        if lock is not None:
            try:
                yield number, lock
            finally:
                os.close(lock)
            return
    raise StateError(
        f"{SHARES} directories are mounted, which is the most", hint="unmount one of them"
    )


def traffic_of(machine: MachineDir, number: int) -> GuestTraffic | None:
    """Return the bytes that a stream has carried; None if nobody counts. Blocks for I/O."""
    try:
        with open_file(machine.share_traffic(number)) as file:
            received, sent = TRAFFIC.unpack(file.read(TRAFFIC.size))
    except (OSError, struct.error):
        return None
    return GuestTraffic(received=received, sent=sent)


def last_words(machine: MachineDir, number: int) -> str:
    """Return the last words of the last server on a stream that ended, in one printable line; "" if
    none has ended. Blocks for I/O."""
    lines = tail(machine.share_log(number), limit=WORDS_MAX).splitlines()
    begins = [at for at, line in enumerate(lines) if ENDED in line]
    if not begins:
        return printable(lines[-1]) if lines else ""
    how, said = lines[begins[-1]], lines[begins[-1] + 1 :]
    return printable(": ".join([how, *said[-1:]]))


def count_start(machine: MachineDir) -> None:
    """Count one more server beside a QEMU. Raises StateError if there were `STARTS_MAX`,
    HostError."""
    with map_os_errors(machine.root), append_to(machine.share_starts) as file:
        if file.tell() >= STARTS_MAX:
            raise StateError(
                f"{STARTS_MAX} directories were mounted since this QEMU was started, and it keeps "
                "memory of each",
                hint="stop the sandbox and start it: that starts another",
            )
        file.write(b"\n")


def may_be_mounted(machine: MachineDir) -> bool:
    """Whether a machine's guest may have a share mounted. The lock of a stream that was ever taken
    stays, and only the guest knows the state of the mount. Blocks for I/O."""
    locks = map(machine.share_lock, range(SHARES))
    return machine.past_shares.exists() or any(lock.exists() for lock in locks)


def note(machine: MachineDir, share: Share) -> None:
    """Write the record of a share. Raises HostError."""
    path = machine.share_record(share.number)
    write_json(path, share.to_json(), read=Share.from_json, durable=False)


def forget(machine: MachineDir, share: Share) -> None:
    """End a share's server and remove its record. Idempotent."""
    share.end()
    machine.share_record(share.number).unlink(missing_ok=True)


DETACH_S = 20.0
"""Seconds for a guest to detach mounts, or to list them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestShares:
    """A guest's use of the shares of a machine."""

    mounted: frozenset[str] = frozenset()
    """The names of those that are mounted."""
    mounting: frozenset[str] = frozenset()
    """The names of those that its kernel is mounting."""
    connected: frozenset[int] | None = None
    """The streams to which its kernel has a connection, for a present or former mount; None if it
    cannot tell, as an older agent."""

    @property
    def in_use(self) -> frozenset[int]:
        """The streams on which its client may still be busy with a server of the past."""
        return streams_of(self.mounted) | (self.connected or frozenset())


def streams_of(names: Iterable[str]) -> frozenset[int]:
    return frozenset(number for name in names if (number := stream_of(name)) is not None)


async def ask_for_shares(ask: Ask) -> GuestShares:
    """Ask a guest for its use of the shares. Raises AgentError."""
    try:
        reply = await ask("shares", {}, DETACH_S)
    except AgentRefusedError:
        return GuestShares()  # an agent that is older than mounts has none

    def ours(names: object) -> frozenset[str]:
        found = names if isinstance(names, list) else []
        return frozenset(
            name for name in found if isinstance(name, str) and stream_of(name) is not None
        )

    connected = reply.get("connected")
    return GuestShares(
        mounted=ours(reply.get("shares")),
        mounting=ours(reply.get("mounting")),
        connected=streams_of(ours(connected)) if isinstance(connected, list) else None,
    )

"""Claiming a spare: of all starts that reach for it, one becomes its owner.

Its keeper decides: it serves one request after the other, and only the first finds a sandbox that
waits. From its reply on the spare ends with this process, like a machine that it has launched
itself, even if it dies before it has read the reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from quicksand.base.effort import best_effort
from quicksand.base.errors import MachineError
from quicksand.base.files import is_locked, write_json
from quicksand.base.processes import processes_of
from quicksand.base.threads import in_thread_to_the_end
from quicksand.qemu.process import (
    END_POLL_S,
    KILL_WAIT_S,
    Leash,
    Offer,
    OwnedProcess,
    remove_quietly,
)
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.registry import Registry, taken_hint
from quicksand.records.sandboxes import Record
from quicksand.warm.spares.spare import Spare, list_spares

ANSWER_S = 1.0
"""Seconds within which the keeper must answer; it takes a millisecond."""

REPLY_MAX = 4096
PASSED = 3
"""Descriptors that come with the reply: both ends of the leash, and the sandbox's lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A spare that belongs to this process. Its guest is still paused."""

    spare: Spare
    record: Record
    """The record of the sandbox that the spare will become; uncommitted."""
    process: OwnedProcess
    lock: int
    """The descriptor of the sandbox's lock. The holder of this object closes it."""


async def claim(registry: Registry, record: Record, spare: Spare) -> Claimed | None:
    """Become the owner of ``spare`` for the first start of ``record``, whose id is replaced by that
    of the spare. None if another start was quicker, or if the spare has ended or does not answer.

    Raises NameTakenError, StateError, HostError; nothing has changed then.
    """
    own = replace(record, id=spare.id, name=spare.id if record.name == record.id else record.name)
    granted: list[int] = []
    offer = Offer.make()
    try:
        keeper_pid = await in_thread_to_the_end(
            lambda: _become_owner(registry, own, offer.theirs, granted)
        )
    except BaseException as error:
        offer.withdraw()
        for descriptor in granted:
            os.close(descriptor)
        why = error
        await in_thread_to_the_end(
            lambda: _remove(registry, spare, is_ours=bool(granted), error=why)
        )
        if isinstance(error, OSError | ValueError | MachineError):
            return None
        raise
    theirs, ours, lock = granted
    process = offer.accepted(
        Leash(theirs, ours), keeper_pid=keeper_pid, qemu_pid=spare.run.qemu_pid
    )
    return Claimed(spare=spare, record=own, process=process, lock=lock)


def _become_owner(
    registry: Registry, record: Record, offered: Sequence[int], granted: list[int]
) -> int:
    """Ask the keeper, and write the sandbox's record; returns the keeper's process id. Descriptors
    that the keeper passes are added to ``granted``. Raises as `claim`, and OSError, ValueError."""
    # A spare's id is not the name of any sandbox.
    naming: AbstractContextManager[None] = contextlib.nullcontext()
    if record.name != record.id:
        naming = registry.giving_name(record.name, hint=taken_hint(record.name))
    with naming:
        keeper = runtime_dir(registry.paths, record.id).keeper_socket
        pid = ask_keeper(keeper, record.discard, offered, granted)
        # Not durable: until it is committed, losing it in a crash of the host loses nothing.
        place = sandbox_dir(registry.paths, record.id)
        write_json(place.record, record.to_json(), read=Record.from_json, durable=False)
    return pid


def end(registry: Registry, spare: Spare) -> bool:
    """End a spare and remove it; returns False if a start is taking it at this moment. Blocks."""
    granted: list[int] = []
    pipes = os.pipe(), os.pipe()
    keeper = runtime_dir(registry.paths, spare.id).keeper_socket
    error: Exception | None = None
    try:
        ask_keeper(keeper, True, (pipes[0][0], pipes[1][1]), granted)
    except (OSError, ValueError, MachineError) as found:
        error = found
    for descriptor in (*pipes[0], *pipes[1], *granted):
        os.close(descriptor)
    return _remove(registry, spare, is_ours=bool(granted), error=error)


def _remove(
    registry: Registry, spare: Spare, *, is_ours: bool, error: BaseException | None
) -> bool:
    """Wait for the end of a spare whose owner has just let it go, and remove it; returns whether it
    is gone. One that belongs to another process is left alone. Blocks."""
    place = sandbox_dir(registry.paths, spare.id)
    if isinstance(error, TimeoutError) and not place.record.exists():
        # Its keeper hangs (it is stopped, say), and each start would wait for it. If it was only
        # slow, and another start has just got the spare, that start does without it.
        for process in processes_of(place.root):
            process.send(signal.SIGKILL)
    elif not is_ours and is_locked(place.lock):
        return False
    deadline = time.monotonic() + KILL_WAIT_S
    while is_locked(place.lock) and time.monotonic() < deadline:
        time.sleep(END_POLL_S)
    with best_effort(f"remove the spare {spare.id}", registry.paths.engine_log):
        registry.remove(spare.id)
    return not place.root.exists()


def ask_keeper(path: Path, discard: bool, offered: Sequence[int], granted: list[int]) -> int:
    """Ask the keeper that listens at ``path`` for its sandbox, which waits for an owner; returns
    the keeper's process id. The keeper gets the descriptors ``offered``; those that it passes are
    added to ``granted``. Blocks. Raises MachineError if it refuses, OSError, ValueError."""
    request = json.dumps({"op": "own", "discard": discard}).encode() + b"\n"
    text = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(str(path))
        socket.send_fds(connection, [request], offered)
        while b"\n" not in text and len(text) < REPLY_MAX:
            data, passed, _, _ = socket.recv_fds(
                connection, REPLY_MAX, PASSED, socket.MSG_CMSG_CLOEXEC
            )
            granted += passed
            if not data:
                raise ConnectionResetError("the keeper has ended")
            text += data
    reply = json.loads(text)
    if "error" in reply or len(granted) != PASSED:
        raise MachineError(f"the keeper did not give the spare away: {reply.get('error')}")
    return int(reply["keeper_pid"])


async def let_go(registry: Registry, claimed: Claimed) -> None:
    """End a claimed spare that did not become a sandbox, and remove it."""
    claimed.process.kill()
    try:
        async with asyncio.timeout(KILL_WAIT_S):
            await claimed.process.wait()
    except TimeoutError:  # its keeper hangs
        pass
    finally:
        claimed.process.let_go()  # this alone ends QEMU
        os.close(claimed.lock)
    remove_quietly(sandbox_dir(registry.paths, claimed.spare.id).root)


OVERDUE_S = 60.0
"""Seconds past its time after which a spare's keeper must have failed to end it."""


def end_all(registry: Registry) -> int:
    """End all spares; returns how many. Blocks."""
    return _end_each(registry, list_spares(registry.paths))


def end_useless(registry: Registry) -> int:
    """End the spares whose image is gone, and those that are past their time; returns how many.
    Blocks."""
    useless = [spare for spare in list_spares(registry.paths) if _is_useless(spare)]
    return _end_each(registry, useless)


def _is_useless(spare: Spare) -> bool:
    if spare.until is not None and time.time() > spare.until + OVERDUE_S:
        return True
    return not all(Path(path).exists() for path in spare.record.chain)


def _end_each(registry: Registry, spares: list[Spare]) -> int:
    ended = 0
    for spare in spares:
        with best_effort(f"end the spare {spare.id}", registry.paths.engine_log):
            ended += end(registry, spare)
    return ended

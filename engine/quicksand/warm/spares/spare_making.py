"""Making a spare: a start from a template, rehearsed, paused, and given to its keeper.

The rehearsal is the hand-over itself (`handover`) and a first command: QEMU's TCG has then
translated all of that code. Such a guest holds no user's data, so it may run anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import replace

from quicksand.base.capacity import OVERHEAD, available_memory
from quicksand.base.error_text import size_text
from quicksand.base.errors import AgentRefusedError, MachineError, MemoryBudgetError, StateError
from quicksand.base.files import write_json
from quicksand.base.remedies import Words
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.guest import execution
from quicksand.guest.agent.session import Session
from quicksand.guest.fitness import read_clock, require_fit
from quicksand.qemu.guest_resume import renew, resume
from quicksand.qemu.keeper_link import KeeperLink
from quicksand.qemu.planning import Parts, gather_parts, hostname
from quicksand.qemu.process import StartedMachine, remove_quietly
from quicksand.qemu.qemu_hypervisor import Qemu
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, new_id
from quicksand.warm.spares.spare import Fit, Spare
from quicksand.warm.starting import boot
from quicksand.warm.templates import Templates


def check_room(config: SandboxConfig) -> None:
    """Raise MemoryBudgetError unless two such machines fit now: a spare must not take the memory
    that a start then lacks."""
    wanted = 2 * (config.memory_bytes + OVERHEAD)
    available = available_memory()
    if wanted > available:
        raise MemoryBudgetError(
            f"a spare with {size_text(config.memory_bytes)} of memory needs {size_text(wanted)}, "
            "twice its own (and QEMU's), because a start must still fit beside it, but this host "
            f"has {size_text(available)} available",
            hint=Words(
                "order machines with less memory",
                Words(" (--memory)", python=" (memory=)"),
                ", or stop a sandbox",
            ),
        )


WAIT_S = 600.0
"""Seconds for which a spare waits unless the user has ordered some."""

FIRST_COMMANDS: tuple[str | list[str], ...] = (
    "true",
    ["echo", "ready"],
    "ls / | cat",
    "bash -c 'echo ready'",
)
"""Commands that warm up what a sandbox's first command probably needs: the shell, a program without
it, output, a pipe of two programs, and bash where it is. No two need the same code.
"""

COMMAND_S = 20.0
HELLO_S = 20.0
"""Seconds for the agent's first answer: nobody waits for a spare, and a busy host may take long."""
REHEARSALS = 2
"""Rehearsals: the first hand-over and command translate most of the code, the second the rest."""


def record_of_spare(record: Record) -> Record:
    """Return the record of a spare for machines like that of ``record``: without the options that a
    hand-over gives, and ephemeral, since it holds nobody's data."""
    id_ = new_id()
    config = replace(record.config, port_forwards=(), mounts=())
    return replace(
        record,
        id=id_,
        name=id_,
        config=config,
        created=time.time(),
        committed=False,
        discard=True,
    )


async def make_spare(registry: Registry, record: Record, *, seconds: float | None) -> Spare:
    """Make a spare for machines like that of ``record``, whose image is resolved. Its keeper ends
    it after ``seconds`` (None: never), or when the host is short of memory.

    Raises StateError if there can be none or the machine has no template, MemoryBudgetError if the
    host has no memory for two more such machines, HostError, ImageError, HistoryError,
    MachineError, AgentError. After an error or a cancellation nothing is left; but if the
    cancellation comes while the keeper takes the spare, the spare exists.
    """
    own = record_of_spare(record)
    parts = await gather_parts(registry, own)
    fit = await asyncio.to_thread(Fit.of, registry.paths, record, parts)
    if fit.refusal:
        raise StateError(f"there can be no spare: {fit.refusal}")
    if await asyncio.to_thread(Templates(registry.paths, own, parts).find) is None:
        raise StateError("there is no template of this machine")
    await asyncio.to_thread(check_room, own.config)
    lock = registry.create(own, unlisted=True)
    try:
        machine, spare = await _start(registry, own, lock, parts, fit.key, seconds)
        # A start may take it as soon as its keeper has it: a cancellation then comes too late.
        await to_the_end(_give_away(registry, machine, seconds))
        return spare
    finally:
        os.close(lock)


async def _start(
    registry: Registry, own: Record, lock: int, parts: Parts, key: str, seconds: float | None
) -> tuple[StartedMachine, Spare]:
    """Start a machine and make it ready. Nothing is left after a failure."""
    try:
        machine = await boot(registry, own, lock, warm=True)
        try:
            if machine.timing.mode != "template":
                raise MachineError(f"it did not start from the template: {machine.timing.note}")
            return machine, await _prepare(registry, machine, parts, key, seconds)
        except BaseException:
            await machine.end()
            raise
    except BaseException:
        await in_thread_to_the_end(lambda: _remove(registry, own.id))
        raise


async def _prepare(
    registry: Registry, machine: StartedMachine, parts: Parts, key: str, seconds: float | None
) -> Spare:
    record = replace(
        machine.record,
        image_digest=parts.image.digest,
        chain=tuple(str(path) for path in parts.image.chain),
    )
    current = runtime_dir(registry.paths, record.id).current()
    current.state.unlink()  # no client may attach to it
    port = await _rehearse(registry, machine)
    until = None if seconds is None else time.time() + seconds
    spare = Spare(id=record.id, key=key, record=record, run=machine.run, port=port, until=until)
    place = sandbox_dir(registry.paths, record.id)
    await in_thread_to_the_end(
        lambda: write_json(place.spare, spare.to_json(), read=Spare.from_json, durable=False)
    )
    return spare


async def _give_away(registry: Registry, machine: StartedMachine, seconds: float | None) -> None:
    """Give the machine to its keeper. If the keeper does not take it, nothing is left."""
    id_, memory = machine.record.id, machine.record.config.memory_bytes + OVERHEAD
    try:
        async with await KeeperLink.connect(runtime_dir(registry.paths, id_).keeper_socket) as link:
            end = machine.process.leash_end
            await link.ask("wait", seconds=seconds, memory=memory, pass_descriptors=(end,))
    except BaseException:
        await machine.end()
        await in_thread_to_the_end(lambda: _remove(registry, id_))
        raise
    machine.process.let_go()


def _remove(registry: Registry, id_: str) -> None:
    remove_quietly(sandbox_dir(registry.paths, id_).root)


async def _rehearse(registry: Registry, machine: StartedMachine) -> int:
    """Go through the hand-over and the first command; returns the agent port that was used.
    Afterwards the guest is paused, and its agent has no client. Raises MachineError, AgentError."""
    runtime = runtime_dir(registry.paths, machine.record.id)
    current = runtime.current()
    hypervisor = await Qemu.connect(current)
    link = machine.link
    port = 0
    try:
        session = await link.session()
        for _ in range(REHEARSALS):
            await _run_first(session)
            await hypervisor.pause()
            link.close()
            session = await link.dial(current, port)
            await resume(session, machine.run.token, hypervisor, patience=HELLO_S)
            await renew(session, {"hostname": hostname(machine.record.name)}, {})
        clock = await read_clock(session)
        await _run_first(session)
        await require_fit(session, clock, machine.record.config.network_mode, window_s=0.0)
        await hypervisor.pause()
    finally:
        link.close()
        await hypervisor.close()
    return port


async def _run_first(session: Session) -> None:
    for words in FIRST_COMMANDS:
        params = execution.command_params(
            words, timeout=COMMAND_S, cwd=None, shell="/bin/sh", user=None, env=None
        )
        with contextlib.suppress(AgentRefusedError):  # an image need not have these programs
            command = await execution.spawn(session, params, stdin=False)
            await execution.run(command, stdin=None, on_stdout=None, on_stderr=None)

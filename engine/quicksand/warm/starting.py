"""Starting a machine: `boot` either returns a machine whose agent has answered, or raises with
nothing left behind, even if it is cancelled at any await."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from quicksand.base.effort import best_effort
from quicksand.base.errors import (
    AgentError,
    AgentUnreachableError,
    BootTimeoutError,
    GuestPanicError,
    HistoryError,
    HostError,
    MachineError,
    QemuDiedError,
)
from quicksand.base.files import map_os_errors, tail
from quicksand.base.paths import make_private_dir
from quicksand.base.progress import COLD, BootTiming, Progress, Stopwatch
from quicksand.base.sharing import can_share_blocks
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.display.vnc import serve_at
from quicksand.guest.agent.link import AgentLink
from quicksand.guest.fitness import Reading, put_right, read_clock
from quicksand.guest.network import network_notices
from quicksand.mounts.at_start import MountsAtStart
from quicksand.qemu.command import MachinePlan, plan
from quicksand.qemu.guest_resume import IDENTITY_S
from quicksand.qemu.keeper_parts import FIRST
from quicksand.qemu.keeper_successor import widen_backlogs
from quicksand.qemu.planning import (
    Found,
    Parts,
    Ports,
    look_for_parts,
    machine_id,
    make_run_state,
    pick_ports,
    plan_machine,
)
from quicksand.qemu.process import (
    Listeners,
    OwnedProcess,
    StartedMachine,
    launch,
    owned_here,
    remove_quietly,
    why_gone,
    why_panicked,
)
from quicksand.records.config import Accelerator
from quicksand.records.inspection import Held, find_panic, say_held
from quicksand.records.layout import MachineDir, SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.nodes import Head, Node, new_id
from quicksand.records.port_forwards import Protocol
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import Record, RunState
from quicksand.saves.boot_disk import finish_start, prepare_disk
from quicksand.snapshots.history import History, Origin, import_node
from quicksand.snapshots.keeping import keep_given_up
from quicksand.snapshots.restore import check_disk_and_image, go_on
from quicksand.warm.publishing import Published
from quicksand.warm.templates import Templates, make_in_background

T = TypeVar("T")

PANIC_POLL_S = 0.25

WANTS = (
    "VFS: Unable to mount root fs",
    "No working init found",
    "Requested init",
    "Attempted to kill init",
    "Out of memory",
    "System is deadlocked on memory",
)
"""Panics that recur at each start, since the guest has no root file system, no driver for it, no
init or too little memory (init/do_mounts.c, init/main.c, kernel/exit.c, mm/oom_kill.c). Any other
panic at boot is a fault of the kernel or of the emulated processor."""


async def boot(
    registry: Registry,
    record: Record,
    lock: int,
    *,
    progress: Progress | None = None,
    at: str | None = None,
    warm: bool = False,
    found: Found | None = None,
) -> StartedMachine:
    """Start the sandbox of ``record``, whose lock the caller holds as the descriptor ``lock``. It
    boots, or continues from its checkpoint ``at`` or, if ``warm``, from a template of its machine.
    If there is no template, it boots and one is made in the background. ``found`` is the result of
    `look_for_parts` for it, if that was called.

    Raises CheckpointNotFoundError, HistoryError, SaveError, HostError, ImageError, MachineError,
    AgentError. Nothing runs then and the runtime directory is removed; the caller keeps or removes
    the sandbox's directory.
    """
    say_held(lock, Held.START)
    found = found or await look_for_parts(registry, record, progress)
    watch, parts = found.watch, found.parts
    watch.begin("disk")
    if not warm:
        return await _start_again_after_fault(registry, record, lock, watch, parts, at)
    templates = Templates(registry.paths, record, parts)
    template = await asyncio.to_thread(templates.find)
    if template is not None:
        try:
            return await _start(registry, record, lock, watch, parts, origin=template)
        except (HistoryError, MachineError, AgentError) as error:
            # A bad template is discarded: it can be made again, and a boot needs none.
            await in_thread_to_the_end(templates.discard)
            watch.mode = COLD  # it may have failed late
            watch.note = f"the template did not work: {error}"
    else:
        watch.note = templates.refusal or "there was no template of this machine yet"
    machine = await _start_again_after_fault(registry, record, lock, watch, parts)
    try:
        with best_effort("have a template made", registry.paths.engine_log):
            await make_in_background(templates, beside=machine.run.qemu_pid)
    except BaseException:
        await machine.end()
        raise
    return machine


def _publish(
    machine: MachineDir, run: RunState, published: Published, record: Record, lock: int
) -> None:
    """Let others find the sandbox, and connect its ports. Raises HostError."""
    say_held(lock, Held.RUN)
    widen_backlogs(run.qemu_pid, run.forwarded)
    published.claim(machine.root.parent)
    publish_state(machine, run)
    published.hand_over(record.id)


async def _start_again_after_fault(
    registry: Registry,
    record: Record,
    lock: int,
    watch: Stopwatch,
    parts: Parts,
    at: str | None = None,
) -> StartedMachine:
    """As `_start`. Once in some thousand boots on a busy host an emulated processor fails early: it
    runs an instruction that the kernel is replacing, or believes that it is in an interrupt. The
    kernel then panics in one place or another. It is started again, once, as the sandbox's user
    would do."""
    try:
        return await _start(registry, record, lock, watch, parts, at=at)
    except GuestPanicError:
        panic = await asyncio.to_thread(find_panic, sandbox_dir(registry.paths, record.id))
        is_emulated = parts.status.accelerator is Accelerator.TCG
        if not is_emulated or not panic or any(want in panic for want in WANTS):
            raise
    machine = await _start(registry, record, lock, watch, parts, at=at)
    notice = f"the emulated guest was started twice, since its kernel failed at first: {panic}"
    machine.notices = (*machine.notices, notice)
    return machine


async def _start(
    registry: Registry,
    record: Record,
    lock: int,
    watch: Stopwatch,
    parts: Parts,
    *,
    at: str | None = None,
    origin: Origin | None = None,
) -> StartedMachine:
    place, runtime = sandbox_dir(registry.paths, record.id), runtime_dir(registry.paths, record.id)
    async with History(place).locked(), contextlib.AsyncExitStack() as undo:
        published = undo.enter_context(Published.listen(record.config.port_forwards))
        start = await _plan(registry, record, parts, at, origin)
        node, mounts = start.node, start.mounts
        watch.lap("setup_disk_s")
        watch.begin("qemu")
        undo.callback(remove_quietly, runtime.root)
        machine_dir, listeners, process = await _launch(registry, record, lock, parts, start)
        undo.push_async_callback(_kill, process)
        await published.begin()
        await serve_at(machine_dir, start.ports.vnc)
        watch.lap("launch_process_s")
        watch.begin("guest")
        undo.push_async_callback(mounts.give_up)
        await mounts.begin(machine_dir)
        run = start.run_state(parts, listeners, process, published)
        gone = partial(why_gone, place, doing="the guest booted")
        link = AgentLink(record.name, runtime, run.token, why_gone=gone)
        undo.callback(link.close)
        clock = None
        if start.memory is None:
            clock = await _meet_agent(record, place, process, link)
        else:
            resolved = replace(record, image_digest=parts.image.digest)
            token = await go_on(resolved, place, machine_dir, start.memory, run, link)
            watch.mode = "checkpoint" if origin is None else "template"
            run = replace(run, token=token)
            link.renew_token(token)
        await mounts.finish(machine_dir, link.request)
        said = "" if clock is None else await put_right(await link.session(), clock)
        if node is not None:
            await in_thread_to_the_end(lambda: finish_start(place, start.head, node))
        await keep_given_up(History(place))
        watch.lap("connect_agent_s")
        notices = (*mounts.notices, *await asyncio.to_thread(_notices, record, place))
        await in_thread_to_the_end(lambda: _publish(machine_dir, run, published, record, lock))
        watch.lap("post_boot_s")
        # The machine is the caller's from here on, so nothing may be awaited any more.
        undo.pop_all()
    return StartedMachine(
        record=record,
        run=run,
        timing=_timing(watch, link),
        process=process,
        link=link,
        image=parts.image,
        notices=(*notices, said) if said else notices,
        clock=said,
    )


def _notices(record: Record, place: SandboxDir) -> tuple[str, ...]:
    """Return the notices about the guest's network and its memory. Blocks for I/O."""
    return (*network_notices(record.config.network_mode), *_memory_notice(record, place))


def _memory_notice(record: Record, place: SandboxDir) -> tuple[str, ...]:
    """Return the notice for a new sandbox about the volume with its memory's directory."""
    if record.committed or record.config.memory_dir is None:
        return ()
    try:
        can = "share" if can_share_blocks(place.memory) else "cannot share"
    except HostError:
        return ()  # whoever writes a checkpoint there reports it
    return (f"its memory goes to {record.config.memory_dir}, where files {can} blocks (reflink)",)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """The plan of a start."""

    node: Node | None
    """The checkpoint from which it continues."""
    memory: Node | None
    """The same, if it has memory; without memory the machine boots."""
    head: Head
    ports: Ports
    mounts: MountsAtStart
    machine: MachinePlan

    def run_state(
        self, parts: Parts, listeners: Listeners, process: OwnedProcess, published: Published
    ) -> RunState:
        """The state of the machine as it is launched."""
        node = self.node
        made = make_run_state(
            self.machine,
            parts,
            listeners,
            pids=(process.keeper_pid, process.qemu_pid),
            token=secrets.token_hex(16) if self.memory is None else self.memory.token,
            run=self.head.run or new_id(),
            origin="" if node is None or node.hidden else node.tag,
            vnc_port=self.ports.vnc,
            forwards=published.pairs(Protocol.TCP),
            udp_forwards=published.pairs(Protocol.UDP),
        )
        return owned_here(made)


async def _plan(
    registry: Registry, record: Record, parts: Parts, at: str | None, origin: Origin | None
) -> _Planned:
    """Prepare the disk and plan the machine. Raises as `boot`."""
    place = sandbox_dir(registry.paths, record.id)
    node = await in_thread_to_the_end(lambda: _find_node(place, at, origin))
    head = await in_thread_to_the_end(lambda: prepare_disk(record, parts.image, place, node))
    ports = pick_ports(record)
    memory = node if node is not None and node.tier.has_memory else None
    is_past = memory is not None and origin is None and memory.shares
    mounts = MountsAtStart(record, registry.paths, is_past=is_past)
    directories = await asyncio.to_thread(mounts.choose_devices, parts.binaries)
    machine = plan_machine(record, parts, head, ports, place, at=memory, directories=directories)
    return _Planned(
        node=node, memory=memory, head=head, ports=ports, mounts=mounts, machine=machine
    )


async def _launch(
    registry: Registry, record: Record, lock: int, parts: Parts, start: _Planned
) -> tuple[MachineDir, Listeners, OwnedProcess]:
    """Make the runtime directory and launch QEMU; the listeners are closed here afterwards. The
    caller removes that directory after a failure. Raises PathError, MachineError."""
    runtime = runtime_dir(registry.paths, record.id)
    make_private_dir(registry.paths.runtime)
    # The caller holds the lock, so an existing directory is left from an earlier run.
    registry.clear_runtime(record.id)
    with map_os_errors(runtime.root):
        machine_dir = runtime.make(FIRST)
    with contextlib.closing(Listeners(machine_dir)) as listeners:
        with map_os_errors(runtime.root):
            await in_thread_to_the_end(listeners.open)
        start.mounts.note(machine_dir)
        process = await launch(
            parts.binaries,
            plan(start.machine, listeners.inherited),
            sandbox=sandbox_dir(registry.paths, record.id),
            runtime=runtime,
            lock=lock,
            listeners=listeners,
            discard=record.discard,
        )
    return machine_dir, listeners, process


def _find_node(place: SandboxDir, at: str | None, origin: Origin | None) -> Node | None:
    """Return the checkpoint from which to continue, imported from ``origin`` if that is given; the
    files that QEMU opens are checked. Raises CheckpointNotFoundError, HistoryError, HostError."""
    if origin is None and at is None:
        return None
    node = import_node(origin, place) if origin is not None else History(place).find(str(at))
    check_disk_and_image(place, node)
    return node


async def _meet_agent(
    record: Record, place: SandboxDir, process: OwnedProcess, link: AgentLink
) -> Reading:
    """Wait until the agent of a booting guest has answered, and give a new sandbox its identity;
    returns the guest's clock at the agent's answer. Raises as `_await_agent`, AgentError."""
    await _await_agent(record, place, process, link)
    session = await link.session()
    clock = await read_clock(session)
    if not record.committed:
        # Its disk may hold the identity of the image, or of the sandbox it was cloned from.
        params = {"machine_id": machine_id(record.id), "ssh_host_keys": "new"}
        await session.request("set_identity", params, timeout=IDENTITY_S)
    return clock


async def _await_agent(
    record: Record, place: SandboxDir, process: OwnedProcess, link: AgentLink
) -> None:
    """Return when the agent has answered. Raises BootTimeoutError after ``boot_timeout`` seconds,
    QemuDiedError as soon as QEMU ends, GuestPanicError as soon as the kernel has panicked."""
    timeout, doing = record.config.boot_timeout, "the guest booted"
    try:
        async with asyncio.timeout(timeout):
            ended = first_of(process.wait(), _until_panic(place))
            await first_of(link.session(timeout=timeout + 60), ended)
    except (TimeoutError, AgentUnreachableError):
        raise BootTimeoutError(
            f"the guest's agent did not answer within {timeout:g} s of the start",
            hint="a slow host may need a larger boot_timeout; the end of the console is below",
            log=tail(place.console_log, limit=2000),
        ) from None
    if link.connected is None:
        panic = await asyncio.to_thread(why_panicked, place, doing=doing)
        raise panic or why_gone(place, doing=doing) or QemuDiedError("QEMU ended at start")


async def _until_panic(place: SandboxDir) -> None:
    """Wait until the guest's kernel has panicked. QEMU ends then if the guest has the driver for
    that (pvpanic), which may be a module that is not loaded yet; without it the kernel reboots, and
    panics again."""
    while not await asyncio.to_thread(find_panic, place):  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(PANIC_POLL_S)


async def first_of(wanted: Awaitable[T], ended: Awaitable[object]) -> None:
    """Wait until either is done, and cancel the other. Errors of ``wanted`` are raised."""
    tasks = [asyncio.ensure_future(wanted), asyncio.ensure_future(ended)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            await tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()


def _timing(watch: Stopwatch, link: AgentLink) -> BootTiming:
    """The timing as the host measured it, with the guest's own phases of its boot."""
    session = link.connected
    boot = session.hello.get("boot") if session is not None else None
    marks = (
        [boot.get(k) for k in ("init_s", "network_s", "serving_s")]
        if isinstance(boot, dict)
        else []
    )
    timing = watch.timing()
    if watch.mode != COLD:
        return timing  # the guest's figures are those of an earlier boot, kept in its memory
    if len(marks) == 3 and all(isinstance(mark, int | float) for mark in marks):
        init, network, serving = (float(mark) for mark in marks if mark is not None)
        timing = replace(
            timing,
            kernel_boot_s=init,
            init_system_s=max(0.0, network - init),
            agent_startup_s=max(0.0, serving - network),
        )
    return timing


async def _kill(process: OwnedProcess) -> None:
    process.kill()
    try:
        await to_the_end(process.wait())
    finally:
        process.let_go()

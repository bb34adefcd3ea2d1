"""From a claimed spare to a running sandbox: before any program of the user runs, the spare gets
the options that can be given at the hand-over, and its secrets and its clock are renewed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from quicksand.base.errors import QuicksandError
from quicksand.base.progress import Stopwatch
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.display.in_guest import tell_name
from quicksand.guest.agent.link import AgentLink
from quicksand.guest.network import network_notices
from quicksand.mounts.at_start import MountsAtStart
from quicksand.qemu.guest_resume import renew, resume
from quicksand.qemu.planning import Parts, hostname
from quicksand.qemu.process import StartedMachine, owned_here, why_gone
from quicksand.qemu.qemu_hypervisor import Qemu
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.port_forwards import Protocol
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import Record
from quicksand.warm.publishing import Published
from quicksand.warm.spares.claiming import Claimed, claim, let_go
from quicksand.warm.spares.spare import growth, list_fitting

MODE = "spare"
"""The `BootTiming.mode` of a start with a spare."""

CONNECT_S = 1.0
"""Seconds within which QEMU must answer; it takes milliseconds."""

GROW_S = 60.0
LIMIT_S = 10.0
"""Seconds for all steps together, each of which takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A sandbox that was a spare."""

    machine: StartedMachine
    lock: int
    """The descriptor of its lock, to be closed once it is committed."""


async def take(
    registry: Registry,
    record: Record,
    parts: Parts,
    watch: Stopwatch,
    *,
    named: Callable[[str], None],
) -> Taken | None:
    """Start a new sandbox by taking over a spare, whose id it gets: ``named`` is called with the
    id. None if no spare fits, or if the hand-over fails: then nothing is left of the spare, and
    `watch.note` tells why.

    Raises NameTakenError, StateError, HostError, ImageError; nothing has changed then.
    """
    with Published.listen(record.config.port_forwards) as published:
        return await _take(registry, record, parts, watch, published, named)


async def _take(
    registry: Registry,
    record: Record,
    parts: Parts,
    watch: Stopwatch,
    published: Published,
    named: Callable[[str], None],
) -> Taken | None:
    for spare in await asyncio.to_thread(list_fitting, registry.paths, record, parts):
        watch.begin("qemu")
        claimed = await claim(registry, record, spare)
        if claimed is None:
            continue
        try:
            named(spare.id)
            await published.begin()
            machine = await _hand_over(registry, claimed, parts, published, watch)
            return Taken(machine, claimed.lock)
        except (QuicksandError, OSError, TimeoutError) as error:
            await to_the_end(let_go(registry, claimed))
            watch.note = f"the spare did not work: {error}"
            return None
        except BaseException:
            await to_the_end(let_go(registry, claimed))
            raise
    return None


async def _hand_over(
    registry: Registry,
    claimed: Claimed,
    parts: Parts,
    published: Published,
    watch: Stopwatch,
) -> StartedMachine:
    spare, record = claimed.spare, claimed.record
    place, runtime = sandbox_dir(registry.paths, spare.id), runtime_dir(registry.paths, spare.id)
    machine = runtime.current()
    async with contextlib.AsyncExitStack() as undo:
        mounts = MountsAtStart(record, registry.paths, is_past=False)
        link = AgentLink(
            record.name,
            runtime,
            spare.run.token,
            why_gone=lambda: why_gone(place, doing="it was in use"),
        )
        undo.callback(link.close)
        hypervisor = await Qemu.connect(machine, timeout=CONNECT_S)
        undo.push_async_callback(hypervisor.close)
        run = replace(
            owned_here(spare.run),
            keeper_pid=claimed.process.keeper_pid,
            forwards=published.pairs(Protocol.TCP),
            udp_forwards=published.pairs(Protocol.UDP),
            started=time.time(),
        )
        undo.push_async_callback(mounts.give_up)
        await mounts.begin(machine)
        async with asyncio.timeout(LIMIT_S):
            if size := growth(spare, record):
                await hypervisor.grow_disk(size)
            watch.lap("launch_process_s")
            watch.begin("guest")
            session = await link.dial(machine, spare.port)
            await resume(session, spare.run.token, hypervisor)
            await renew(session, {"hostname": hostname(record.name)}, {})
            if record.config.enable_display:
                await tell_name(session)
        if size:
            await session.request("grow_root", timeout=GROW_S)
        await mounts.finish(machine, link.request)
        watch.lap("connect_agent_s")
        await hypervisor.close()
        await in_thread_to_the_end(lambda: published.claim(runtime.root))
        publish_state(machine, run)
        published.hand_over(spare.id)
        undo.pop_all()
    watch.mode = MODE
    watch.lap("post_boot_s")
    return StartedMachine(
        record=record,
        run=run,
        timing=watch.timing(),
        process=claimed.process,
        link=link,
        image=parts.image,
        notices=(*mounts.notices, *network_notices(record.config.network_mode)),
    )

"""A second QEMU that waits with a checkpoint's memory, so that a revert to it is only a hand-over.

After a checkpoint or a revert a client that stays has such a QEMU started (next_revert.py), and the
keeper keeps it for a while. It has the checkpoint's memory, and its VM is paused. ``waiting.json``
in its directory names the checkpoint; the head names its top layer, so that no sweep removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import Any

from quicksand.base.effort import best_effort
from quicksand.base.errors import AgentError, HistoryError, MachineError, StateError
from quicksand.base.fields import Fields
from quicksand.base.files import read_json, write_json
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.qemu.planning import Parts, gather_parts
from quicksand.records.nodes import Head, Node
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, RunState
from quicksand.snapshots import rehearsal
from quicksand.snapshots.history import history_of
from quicksand.snapshots.successor import Successor
from quicksand.snapshots.taking import RunningSandbox, working_on

WAIT_S = 600.0
"""Seconds after which the keeper ends it: it takes some 60 MiB of memory."""

ADOPT_S = 1.0
"""Seconds within which it must answer; a slower one is replaced by a new QEMU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """The contents of ``waiting.json``."""

    node: str
    """The id of the checkpoint."""
    head: Head
    """The sandbox's head once it has taken over."""
    run: RunState
    rehearsed: bool
    """Whether its guest has run its first steps already (rehearsal.py)."""

    def to_json(self) -> dict[str, Any]:
        head, run = self.head.to_json(), self.run.to_json()
        return {"node": self.node, "head": head, "run": run, "rehearsed": self.rehearsed}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Standby:
        """Parse ``waiting.json``. Raises ValueError."""
        found = Fields(value, "bad waiting.json")
        return cls(
            node=found.text("node"),
            head=Head.from_json(found.fields("head")),
            run=RunState.from_json(found.fields("run")),
            rehearsed=found.flag("rehearsed", default=False),
        )


async def make_ready(registry: Registry, record: Record, node_id: str) -> None:
    """Start a QEMU that waits for a revert to the checkpoint ``node_id``, unless there is one. One
    that waits for another checkpoint is ended. Raises as `revert`; nothing is left then."""
    async with working_on(registry, record) as live:
        for waiting in find_all(live):
            if waiting.node == node_id:
                return
            await _end(live, waiting)
        node = await asyncio.to_thread(live.history.get, node_id)
        parts = await gather_parts(registry, record)
        if rehearsal.is_worth_it(record, node, live.run, live.hypervisor.features):
            # If that fails (an old checkpoint's agent, a slow guest), do without a rehearsal.
            with best_effort(
                "rehearse the revert", live.log, AgentError, MachineError, StateError, TimeoutError
            ):
                await _prepare(live, node, parts, rehearse=True)
                return
        await _prepare(live, node, parts, rehearse=False)


async def _prepare(live: RunningSandbox, node: Node, parts: Parts, *, rehearse: bool) -> None:
    """Launch a QEMU and let it wait. Nothing is left after a failure."""
    successor = Successor.new(live, node)
    try:
        await _note_layer(live, successor.head.top)
        await successor.launch(parts)
        if rehearse:
            await successor.rehearse()
        waiting = Standby(
            node=node.id, head=successor.head, run=successor.run, rehearsed=successor.rehearsed
        )
        path = live.runtime.machine(successor.head.machine).waiting
        await in_thread_to_the_end(lambda: write_json(path, waiting.to_json()))
        await successor.let_wait(WAIT_S)
    except BaseException:
        await to_the_end(_undo(live, successor))
        raise


async def take(live: RunningSandbox, node: Node) -> Successor | None:
    """Take over the QEMU that waits for a revert to ``node``; None if there is none. Those that
    wait for other checkpoints are ended."""
    found = None
    for waiting in find_all(live):
        if found is None and waiting.node == node.id:
            found = await _adopt(live, node, waiting)
        else:
            await _end(live, waiting)
    return found


async def forget_removed(registry: Registry, record: Record) -> None:
    """End a QEMU that waits for a checkpoint that was deleted: it still has the files open. Raises
    HostError, MachineError."""
    history = history_of(registry, record.id)
    # If the head cannot be read or the sandbox is not running, no QEMU waits.
    with best_effort("end what waits for it", history.place.engine_log, StateError, HistoryError):
        if not await asyncio.to_thread(lambda: history.head().waiting):
            return
        async with working_on(registry, record) as live:
            there = {node.id for node in await asyncio.to_thread(live.history.nodes)}
            for waiting in find_all(live):
                if waiting.node not in there:
                    await _end(live, waiting)


def find_all(live: RunningSandbox) -> list[Standby]:
    """All QEMUs that wait: at most one, unless a client died while it replaced one."""
    found = []
    for name in live.runtime.names():
        with contextlib.suppress(OSError, ValueError):
            found.append(Standby.from_json(read_json(live.runtime.machine(name).waiting)))
    return found


async def _adopt(live: RunningSandbox, node: Node, waiting: Standby) -> Successor | None:
    """Take over a waiting QEMU; None if it has ended meanwhile."""
    successor = Successor(live, node, waiting.head)
    try:
        await live.keeper.ask("take", name=waiting.head.machine)
        live.runtime.machine(waiting.head.machine).waiting.unlink(missing_ok=True)
        await successor.adopt(waiting.run, timeout=ADOPT_S)
        successor.rehearsed = waiting.rehearsed
    except (MachineError, AgentError, StateError):
        await successor.remove()
        return None
    except BaseException:
        await to_the_end(successor.remove())
        raise
    return successor


async def _end(live: RunningSandbox, waiting: Standby) -> None:
    machine = waiting.head.machine
    with best_effort("end the machine that waits", live.log, MachineError):
        await live.keeper.ask("take", name=machine)
        await live.keeper.ask("kill", name=machine)
    await in_thread_to_the_end(lambda: live.runtime.remove_machine(machine))
    await _note_layer(live, "")


async def _undo(live: RunningSandbox, successor: Successor) -> None:
    await successor.remove()
    await _note_layer(live, "")


async def _note_layer(live: RunningSandbox, top: str) -> None:
    """Write the top layer of the waiting QEMU ("" for none) to the sandbox's head."""
    history = live.history
    head = await asyncio.to_thread(history.head)
    if head.waiting != top:
        await in_thread_to_the_end(lambda: history.set_head(replace(head, waiting=top)))

"""A QEMU that waits with a checkpoint's memory: going back there again is a hand-over then.

After a revert a client that stays has a second QEMU made ready (next_revert.py), and the keeper
keeps it for a while. ``waiting.json`` in its directory says for what. It has the checkpoint's
memory and runs nothing; the layer that the guest would write to is in the head, so that it is not
swept away.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import Any

from quicksand.errors import AgentError, HistoryError, MachineError, StateError
from quicksand.host.files import read_json, write_json
from quicksand.host.threads import in_thread_to_the_end
from quicksand.planning import Parts, gather_parts
from quicksand.registry import Record, Registry, RunState, remove_tree
from quicksand.snapshots import rehearsal
from quicksand.snapshots.operations import Live, working_on
from quicksand.snapshots.records import Head, Node
from quicksand.snapshots.successor import Successor

WAIT_S = 600.0
"""So long it waits: it takes some 60 MiB."""

ADOPT_S = 1.0
"""One that does not answer at once is no help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What ``waiting.json`` says."""

    node: str
    head: Head
    """Where the sandbox stands once it has taken over."""
    run: RunState
    rehearsed: bool
    """Whether its guest has gone through its first steps already."""

    def to_json(self) -> dict[str, Any]:
        head, run = self.head.to_json(), self.run.to_json()
        return {"node": self.node, "head": head, "run": run, "rehearsed": self.rehearsed}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Waiting:
        """Raises ValueError."""
        try:
            head, run = Head.from_json(value["head"]), RunState.from_json(value["run"])
            rehearsed = value.get("rehearsed") is True
            return cls(node=str(value["node"]), head=head, run=run, rehearsed=rehearsed)
        except (KeyError, TypeError) as error:
            raise ValueError(f"bad waiting.json: {error!r}") from error


async def make_ready(registry: Registry, record: Record, node_id: str) -> None:
    """Have a QEMU wait for a revert to that checkpoint. No error if one does; one that waits for
    another checkpoint ends. Raises as `revert` does; nothing is left then."""
    async with working_on(registry, record) as live:
        for waiting in find_all(live):
            if waiting.node == node_id:
                return
            await _end(live, waiting)
        node = await asyncio.to_thread(live.history.get, node_id)
        parts = await gather_parts(registry, record)
        if rehearsal.is_worth_it(record, node, live.run):
            # Without, then: the agent of an old checkpoint does not know it, a guest is too slow.
            with contextlib.suppress(AgentError, MachineError, StateError, TimeoutError):
                await _prepare(live, node, parts, rehearse=True)
                return
        await _prepare(live, node, parts, rehearse=False)


async def _prepare(live: Live, node: Node, parts: Parts, *, rehearse: bool) -> None:
    """Launch one and let it wait; nothing is left if that fails."""
    successor = Successor.new(live, node)
    try:
        await _note_layer(live, successor.head.top)
        await successor.launch(parts)
        if rehearse:
            await successor.rehearse()
        waiting = Waiting(
            node=node.id, head=successor.head, run=successor.run, rehearsed=successor.rehearsed
        )
        path = live.runtime.machine(successor.head.machine).waiting
        await in_thread_to_the_end(lambda: write_json(path, waiting.to_json()))
        await successor.let_wait(WAIT_S)
    except BaseException:
        await asyncio.shield(_undo(live, successor))
        raise


async def take(live: Live, node: Node) -> Successor | None:
    """The one that waits for a revert to ``node``, this client's now; None if there is none. Those
    that wait for something else end."""
    found = None
    for waiting in find_all(live):
        if found is None and waiting.node == node.id:
            found = await _adopt(live, node, waiting)
        else:
            await _end(live, waiting)
    return found


async def forget_removed(registry: Registry, record: Record) -> None:
    """End what waits for a checkpoint that is not there any more; it has its files open still.
    Raises HostError."""
    history = registry.history(record.id)
    # Without a head that can be read, or while it does not run, nothing waits.
    with contextlib.suppress(StateError, HistoryError):
        if not await asyncio.to_thread(lambda: history.head().waiting):
            return
        async with working_on(registry, record) as live:
            there = {node.id for node in await asyncio.to_thread(live.history.nodes)}
            for waiting in find_all(live):
                if waiting.node not in there:
                    await _end(live, waiting)


def find_all(live: Live) -> list[Waiting]:
    """There is at most one, unless a client died in between."""
    found = []
    for name in live.runtime.names():
        with contextlib.suppress(OSError, ValueError):
            found.append(Waiting.from_json(read_json(live.runtime.machine(name).waiting)))
    return found


async def _adopt(live: Live, node: Node, waiting: Waiting) -> Successor | None:
    """None if it has ended meanwhile."""
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
        await asyncio.shield(successor.remove())
        raise
    return successor


async def _end(live: Live, waiting: Waiting) -> None:
    machine = waiting.head.machine
    with contextlib.suppress(MachineError):  # it has ended by itself
        await live.keeper.ask("take", name=machine)
        await live.keeper.ask("kill", name=machine)
    await in_thread_to_the_end(lambda: remove_tree(live.runtime.machine(machine).root))
    await _note_layer(live, "")


async def _undo(live: Live, successor: Successor) -> None:
    await successor.remove()
    await _note_layer(live, "")


async def _note_layer(live: Live, top: str) -> None:
    """The layer of the one that waits, "" for none, in the sandbox's head."""
    history = live.history
    head = await asyncio.to_thread(history.head)
    if head.waiting != top:
        await in_thread_to_the_end(lambda: history.set_head(replace(head, waiting=top)))

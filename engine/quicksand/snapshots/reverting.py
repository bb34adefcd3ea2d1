"""Going back to a checkpoint: a new QEMU is made ready while the old one runs, or waits already;
then it takes over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

from quicksand.errors import (
    CheckpointNotFoundError,
    HistoryError,
    MachineError,
    QuicksandError,
    StateError,
)
from quicksand.host.threads import in_thread_to_the_end
from quicksand.layout import sandbox_dir
from quicksand.planning import check_space, gather_parts
from quicksand.registry import Record, Registry
from quicksand.snapshots import restore, standby
from quicksand.snapshots.capture import Capture
from quicksand.snapshots.history import History, prune_automatic
from quicksand.snapshots.operations import (
    Live,
    find_shape,
    start_capture,
    working_on,
)
from quicksand.snapshots.origins import Origin, import_node
from quicksand.snapshots.records import DISK, TAG_MAX, Node
from quicksand.snapshots.successor import Successor, human, is_keeper_gone, plan_forwards
from quicksand.snapshots.tags import automatic_tag
from quicksand.stopping import end_strays


async def revert(
    registry: Registry, record: Record, tag: str | None, *, keep_now: bool = True
) -> tuple[Node, Node | None]:
    """Go back to a checkpoint; without ``tag`` to the last automatic one, which takes the last
    revert back, whoever made it. With ``keep_now`` the present is kept as an automatic checkpoint.

    Returns the checkpoint and the automatic one. Raises CheckpointNotFoundError, HistoryError,
    HostError, MachineError, StateError where there is nothing to take back; until the new QEMU has
    taken over, the old one goes on after any failure.
    """
    async with working_on(registry, record) as live:
        if tag is None:
            node = last_automatic(live.history, record.name)
        else:
            node = await find_or_import(registry, live, tag)
        if node.tier == DISK:
            raise HistoryError(
                f"the checkpoint {node.tag!r} has a disk and no memory to go back to",
                hint=f"stop the sandbox, then `quicksand-tui start --at {node.id} {record.name}`",
            )
        shape = await find_shape(live)
        restore.check_shape(node, shape)
        await in_thread_to_the_end(live.history.sweep)
        check_space(live.place.root)
        waiting = await standby.take(live, node)
        successor = waiting or Successor.new(live, node)
        capture = start_capture(live) if keep_now else None
        keeping: asyncio.Task[Node] | None = None
        try:
            await _both(
                _launch(registry, record, successor) if waiting is None else _nothing(),
                capture.prepare() if capture is not None else _nothing(),
            )
            await live.keeper.ask("guard", on=not live.run.paused, forwards=plan_forwards(live.run))
            if capture is None:
                await live.monitor.execute("stop")
                await successor.reserve()
            else:
                await capture.freeze(resume=False)
                await successor.reserve()
                # The files are written while the new guest takes its first steps.
                keeping = asyncio.create_task(
                    _keep_present(live, node, capture, shape), name="quicksand-keep-present"
                )
            await successor.take_over()
        except BaseException:
            # What is tidied up comes second to the error that is on its way to the caller.
            with contextlib.suppress(QuicksandError):
                await asyncio.shield(_give_up(live, successor, capture, keeping))
            raise
        try:
            auto = await keeping if keeping is not None else None
        finally:
            await asyncio.shield(_end_old(live))
        await in_thread_to_the_end(lambda: prune_automatic(live.history))
        return node, auto


def last_automatic(history: History, name: str) -> Node:
    """Raises StateError if there is none."""
    automatic = [node for node in history.nodes() if node.auto]
    if not automatic:
        raise StateError(f"the sandbox {name!r} was never reverted: nothing to undo")
    return automatic[-1]


async def _give_up(
    live: Live, successor: Successor, capture: Capture | None, keeping: asyncio.Task[Node] | None
) -> None:
    if keeping is not None:
        await asyncio.wait((keeping,))
        if not keeping.cancelled():
            keeping.exception()  # seen: what made us give up is what counts
    await (_end_old(live) if successor.is_current() else _stay(live, successor, capture))


async def _launch(registry: Registry, record: Record, successor: Successor) -> None:
    await successor.launch(await gather_parts(registry, record))


async def _both(one: Awaitable[None], other: Awaitable[None]) -> None:
    """Do both at the same time, each to its end, then raise what one has raised."""
    for result in await asyncio.gather(one, other, return_exceptions=True):
        if result is not None:
            raise result


async def _nothing() -> None: ...


async def find_or_import(registry: Registry, live: Live, tag: str) -> Node:
    """The sandbox's checkpoint ``tag``, or, as OTHER:TAG, one of another sandbox, which becomes its
    own too. Raises CheckpointNotFoundError, SandboxNotFoundError, HistoryError, HostError."""
    try:
        return live.history.find(tag)
    except CheckpointNotFoundError:
        name, colon, rest = tag.partition(":")
        if not colon:
            raise
    other = sandbox_dir(registry.paths, registry.find(name).id)
    history = History(other)
    async with history.locked():
        node = history.find(rest)
        restore.check_shape(node, await find_shape(live))
        origin = Origin(place=other, node=node)
        return await in_thread_to_the_end(
            lambda: import_node(origin, live.place, tag=tag[:TAG_MAX], auto=False, pinned=False)
        )


async def _keep_present(live: Live, node: Node, capture: Capture, shape: dict[str, Any]) -> Node:
    """Commit what was the present before the revert. The old QEMU stands still meanwhile."""
    what = "before undo" if node.auto else f"before revert to {node.tag}"
    tag = automatic_tag(live.history, what)
    try:
        return await capture.store(tag=tag, note="", auto=True, tier_note="", shape=shape)
    except BaseException as error:
        await asyncio.shield(capture.forget())
        if isinstance(error, QuicksandError):
            raise HistoryError(
                f"the sandbox is reverted to {node.tag!r}, but what was before could not be kept: "
                f"{error}"
            ) from error
        raise


async def _end_old(live: Live) -> None:
    """End the QEMU that another one has taken over from. Raises MachineError when the sandbox has
    ended as a whole, or its keeper has."""
    try:
        await live.keeper.ask("kill", name=live.machine.name)
    except MachineError:
        if await is_keeper_gone(live):
            end_strays(live.place, only=live.run.qemu_pid)
            raise
        # It has ended by itself just before.


async def _stay(live: Live, successor: Successor, capture: Capture | None) -> None:
    """The revert failed: the old QEMU goes on as if nothing had been."""
    with contextlib.suppress(QuicksandError):
        await successor.remove()
    # Now that it is gone its ports are free for the old one, which may have them still.
    for rule in plan_forwards(live.run):
        with contextlib.suppress(QuicksandError):
            await human(live.monitor, f"hostfwd_add net0 {rule}")
    if not live.run.paused:
        with contextlib.suppress(QuicksandError):
            await live.monitor.execute("cont")
    with contextlib.suppress(QuicksandError):
        if (current := live.runtime.current()).root.exists():
            live.history.settle(current.name)
        # Else all has ended, and the next start decides whose disk counts.
    with contextlib.suppress(QuicksandError):
        if capture is not None:
            await capture.discard()
    with contextlib.suppress(QuicksandError):
        await in_thread_to_the_end(live.history.sweep)
    await live.keeper.ask("guard", on=False)

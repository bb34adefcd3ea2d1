"""Ending a running sandbox with a last checkpoint, which keeps its memory and processes too."""

from __future__ import annotations

import asyncio

from quicksand.base.capacity import check_space
from quicksand.base.effort import best_effort
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.qemu.stopping import stop_machine
from quicksand.records.nodes import Node
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.snapshots.capture import Capture
from quicksand.snapshots.history import prune_automatic
from quicksand.snapshots.memory_copying import Fate
from quicksand.snapshots.tags import automatic_tag
from quicksand.snapshots.taking import (
    RunningSandbox,
    find_shape,
    refuse_unsavable,
    start_capture,
    working_on,
)
from quicksand.snapshots.thumbnails import keep_thumbnail, look_at_screen


async def end_with_checkpoint(
    registry: Registry, record: Record, *, what: str, within_s: float
) -> Node:
    """Take an automatic checkpoint of a running sandbox, tagged ``what`` and the time, and end the
    sandbox before the guest runs again.

    Raises HistoryError, HostError, MachineError, StateError, and TimeoutError if the checkpoint
    takes longer than ``within_s`` seconds. The sandbox then keeps running without the checkpoint,
    as after a cancellation; only if it could not be ended is the checkpoint there.
    """
    async with working_on(registry, record) as live:
        await refuse_unsavable(live)
        await in_thread_to_the_end(live.history.sweep)
        check_space(live.place.root)
        capture = start_capture(live)
        # If this process dies now, the keeper resumes the guest.
        await live.keeper.ask("guard", on=not live.run.paused)
        try:
            async with asyncio.timeout(within_s):
                node = await _keep(live, capture, what)
        except BaseException:
            await to_the_end(_let_go_on(live, capture))
            raise
        await stop_machine(registry, record, None, live.run, grace=0)
        await in_thread_to_the_end(lambda: prune_automatic(live.history))
        return node


async def _keep(live: RunningSandbox, capture: Capture, what: str) -> Node:
    await capture.prepare(fate=Fate.STAYS_PAUSED)
    has_display = live.record.config.enable_display
    screen = await look_at_screen(live.machine, has_display=has_display)
    await capture.freeze(resume=False)
    shape = await find_shape(live)
    await keep_thumbnail(screen, live.place, capture.id)
    tag = await asyncio.to_thread(automatic_tag, live.history, what)
    node = await capture.store(tag=tag, note="", auto=True, tier_note="", shape=shape)
    await capture.advance_head(node)
    return node


async def _let_go_on(live: RunningSandbox, capture: Capture) -> None:
    """Resume the guest if it is paused, and remove the unfinished checkpoint."""
    with best_effort("resume the guest", live.log):
        if not live.run.paused:
            await live.hypervisor.resume()
    with best_effort("remove the unfinished checkpoint", live.log):
        await capture.discard()
    with best_effort("end the keeper's guard of the pause", live.log):
        await live.keeper.ask("guard", on=False)

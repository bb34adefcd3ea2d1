"""Ending a running sandbox with a last checkpoint, which keeps its memory and processes too; and
keeping the disk as it was last stopped, which a start at a checkpoint leaves behind."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from quicksand_disks import DiskFileError
from quicksand_disks.qcow2 import Layer

from quicksand.base.capacity import check_space
from quicksand.base.effort import best_effort
from quicksand.base.files import map_os_errors
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.qemu.stopping import stop_machine
from quicksand.records.nodes import BLANK, Head, Node, new_id
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.snapshots.capture import Capture
from quicksand.snapshots.history import History, automatic_tag, prune_automatic
from quicksand.snapshots.layers import add_layer, seal_layers
from quicksand.snapshots.memory_copying import Fate
from quicksand.snapshots.recognition import keep_thumbnail, look_at_screen
from quicksand.snapshots.taking import (
    RunningSandbox,
    find_shape,
    refuse_unsavable,
    start_capture,
    working_on,
)
from quicksand.things.checkpoint import DISK


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


BLOCK = 512
"""Bytes of a block as stat(2) counts them."""

NOTE = "the sandbox was stopped, and what was in memory is gone"


def keep_left_behind(history: History, left: Head, at: Node) -> Node | None:
    """Make the disk of the head ``left`` an automatic checkpoint of the tier "disk". Returns None
    if a checkpoint has the same disk already.

    The caller holds the history's lock, and the head on disk names ``left`` as previous. Previous
    then gets a new layer over that disk. Raises HostError, HistoryError.
    """
    place = history.place
    has_data = _has_data(history, left.top)
    layers = (*left.layers, left.top) if has_data else left.layers
    if not layers or any(node.layers == layers for node in history.nodes()):
        return None
    seal_layers(place, layers)
    if has_data:
        # If the start fails after all, the sandbox goes on in a layer that is nobody else's.
        top = new_id()
        add_layer(place, top, below=left.top)
        previous = replace(left, layers=layers, top=top)
        history.set_head(replace(history.head(), previous=previous))
    node = Node(
        id=new_id(),
        tag=automatic_tag(history, "before start" if at.auto else f"before start at {at.tag}"),
        parent=history.find_visible(left.node),
        created=time.time(),
        note="",
        tier=DISK,
        tier_note=NOTE,
        auto=True,
        pinned=False,
        pause_s=0.0,
        bytes_written=place.layer(layers[-1]).stat().st_blocks * BLOCK,
        layers=layers,
        shape={},
        memory=BLANK,
        pages=(),
        index=None,
        devices=None,
        token="",
        owner=place.root.name,
    )
    with map_os_errors(place.checkpoints):
        (place.checkpoints / node.id).mkdir(mode=0o700)
    history.commit(node)
    return node


def _has_data(history: History, layer: str) -> bool:
    """Whether data was written to the layer; also true if it cannot be read."""
    path = history.place.layer(layer)
    try:
        opened = Layer(path)
        try:
            return any(True for _ in opened.allocated())
        finally:
            opened.close()
    except (DiskFileError, OSError):
        return path.exists()

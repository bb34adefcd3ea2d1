"""Reverting to a checkpoint: in the running QEMU (in_place.py), or, where that is not possible, in
a new one that takes over (successor.py). First the present is captured (present.py), and kept as an
automatic checkpoint."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from quicksand.base.capacity import check_space
from quicksand.base.errors import (
    CheckpointNotFoundError,
    HistoryError,
    QemuDiedError,
    QuicksandError,
    StateError,
)
from quicksand.base.remedies import Remedy, Words
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.records.layout import sandbox_dir
from quicksand.records.nodes import TAG_MAX, Node
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.snapshots import restore
from quicksand.snapshots.awakening import Moments
from quicksand.snapshots.differences import MemoryDiffersError
from quicksand.snapshots.history import History, Origin, import_node, prune_automatic
from quicksand.snapshots.in_place import InPlace, why_not
from quicksand.snapshots.present import Present
from quicksand.snapshots.successor import revert_in_new_qemu
from quicksand.snapshots.taking import RunningSandbox, find_shape, refuse_unsavable, working_on

if TYPE_CHECKING:
    from quicksand.guest.agent.link import AgentLink


class Form(StrEnum):
    """The form of a revert."""

    WARM = "warm"
    """In the running QEMU, which keeps its translations of the guest's code."""
    FLUSHED = "flushed"
    """In the running QEMU, which translates the guest's code anew."""
    NEW_QEMU = "new QEMU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverted:
    """The result of a revert."""

    node: Node
    """The checkpoint."""
    kept: Node | HistoryError | None
    """The automatic checkpoint of the earlier state; the error for which it could not be kept; None
    if it was not requested."""
    form: Form
    why: str
    """The reason why no better form was used; "" for the best one."""
    pause_s: float
    """Seconds for which the guest was paused."""
    answer_s: float
    """Seconds from the call to the guest's answer: all later work concerns the earlier state."""


async def revert(
    registry: Registry,
    record: Record,
    tag: str | None,
    *,
    keep_now: bool = True,
    link: AgentLink | None = None,
) -> Reverted:
    """Revert to the checkpoint ``tag`` or, if that is None, to the last automatic one, which undoes
    the last revert of any client. With ``keep_now`` the present is kept as an automatic checkpoint.
    The caller's ``link`` takes over the connection to the guest.

    Raises StateError if the sandbox is not running or there is nothing to undo,
    CheckpointNotFoundError, HistoryError, HostError, MachineError, AgentError. Until the present is
    given up, it goes on after any failure.
    """
    called_at = time.perf_counter()
    async with working_on(registry, record, even_unfinished=True) as live:
        node = await _find_goal(registry, live, tag)
        shape = await find_shape(live)
        restore.check_shape(node, shape)
        keep = keep_now and not live.is_unfinished
        if keep:
            await refuse_unsavable(live)
        await in_thread_to_the_end(live.history.sweep)
        check_space(live.place.root)
        present = Present(live, node, shape, keep=keep)
        try:
            form, why, moments = await _reach(registry, live, node, present, link)
            kept = await present.kept()
        except BaseException:
            # Nobody else waits for this, and the history's lock is held until then.
            await to_the_end(present.settle())
            raise
        await in_thread_to_the_end(lambda: prune_automatic(live.history))
        return Reverted(
            node=node,
            kept=kept,
            form=form,
            why=why,
            pause_s=moments.resumed_at - moments.frozen_at,
            answer_s=moments.answered_at - called_at,
        )


async def _reach(
    registry: Registry,
    live: RunningSandbox,
    node: Node,
    present: Present,
    link: AgentLink | None,
) -> tuple[Form, str, Moments]:
    """Have the sandbox go on from ``node``, in the best possible form; returns the form, the reason
    why there is no better one, and the moments."""
    why = await why_not(live, node)
    if not why:
        change = InPlace(live, node)
        try:
            moments = await change.revert(present, link)
        except (QemuDiedError, MemoryDiffersError):
            raise
        except QuicksandError as error:
            why = str(error)
        else:
            form = Form.FLUSHED if change.why_flushed else Form.WARM
            return form, change.why_flushed, moments
    moments = await revert_in_new_qemu(registry, live, node, present, link)
    return Form.NEW_QEMU, why, moments


async def _find_goal(registry: Registry, live: RunningSandbox, tag: str | None) -> Node:
    """The checkpoint ``tag``, or the last automatic one, which has memory to revert to. Raises
    StateError, CheckpointNotFoundError, SandboxNotFoundError, HistoryError, HostError."""
    name = live.record.name
    if tag is None:
        node = last_automatic(live.history, name)
    else:
        node = await find_or_import(registry, live, tag)
    if not node.tier.has_memory:
        raise HistoryError(
            f"the checkpoint {node.tag!r} has a disk but no memory to revert to"
            + (f": {node.tier_note}" if node.tier_note else ""),
            hint=Words("stop the sandbox, then ", Remedy("start_at", at=node.id, name=name)),
        )
    return node


def last_automatic(history: History, name: str) -> Node:
    """The latest automatic checkpoint. Raises StateError if there is none."""
    automatic = [node for node in history.nodes() if node.auto]
    if not automatic:
        raise StateError(f"the sandbox {name!r} was never reverted: nothing to undo")
    return automatic[-1]


async def find_or_import(registry: Registry, live: RunningSandbox, tag: str) -> Node:
    """The sandbox's checkpoint ``tag``; OTHER:TAG imports the checkpoint TAG of the sandbox OTHER.
    Raises CheckpointNotFoundError, SandboxNotFoundError, HistoryError, HostError."""
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

"""Reverting to a checkpoint: a new QEMU, the successor, is started while the old one runs (or waits
already, standby.py); then it takes over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from quicksand.base.effort import best_effort
from quicksand.base.errors import (
    CheckpointNotFoundError,
    HistoryError,
    MachineError,
    QuicksandError,
    StateError,
)
from quicksand.base.remedies import Remedy, Words
from quicksand.base.space import check_space
from quicksand.base.threads import both, in_thread_to_the_end, to_the_end
from quicksand.display.vnc import listen
from quicksand.qemu.backlog import widen_backlogs
from quicksand.qemu.command import forward_rules
from quicksand.qemu.planning import gather_parts
from quicksand.qemu.stopping import end_strays
from quicksand.records.layout import sandbox_dir
from quicksand.records.nodes import TAG_MAX, Node
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.snapshots import restore, standby
from quicksand.snapshots.capture import Capture
from quicksand.snapshots.history import History, prune_automatic
from quicksand.snapshots.origins import Origin, import_node
from quicksand.snapshots.successor import Successor, is_keeper_gone
from quicksand.snapshots.tags import automatic_tag
from quicksand.snapshots.taking import (
    RunningSandbox,
    find_shape,
    refuse_unsavable,
    start_capture,
    working_on,
)
from quicksand.snapshots.thumbnails import keep_thumbnail, look_at_screen

if TYPE_CHECKING:
    from quicksand.display.picture import Picture
    from quicksand.guest.agent.link import AgentLink


async def revert(
    registry: Registry,
    record: Record,
    tag: str | None,
    *,
    keep_now: bool = True,
    link: AgentLink | None = None,
) -> tuple[Node, Node | HistoryError | None]:
    """Revert to the checkpoint ``tag`` or, if that is None, to the last automatic one, which undoes
    the last revert of any client. With ``keep_now`` the present is kept as an automatic checkpoint.
    The caller's ``link`` goes on with the connection to the new guest.

    Returns the checkpoint, and the automatic one or why it could not be kept. Raises StateError if
    the sandbox is not running or there is nothing to undo, CheckpointNotFoundError, HistoryError,
    HostError, MachineError, AgentError. Until the new QEMU has taken over, the old one keeps
    running after any failure.
    """
    async with working_on(registry, record) as live:
        node = await _find_goal(registry, live, tag)
        shape = await find_shape(live)
        restore.check_shape(node, shape)
        if keep_now:
            await refuse_unsavable(live)
        await in_thread_to_the_end(live.history.sweep)
        check_space(live.place.root)
        waiting = await standby.take(live, node)
        successor = waiting or Successor.new(live, node)
        capture = start_capture(live) if keep_now else None
        keeping: asyncio.Task[Node] | None = None
        try:
            await both(
                _launch(registry, record, successor) if waiting is None else _nothing(),
                capture.prepare(stays_paused=True) if capture is not None else _nothing(),
            )
            await live.keeper.ask("guard", on=not live.run.paused, forwards=_rules(live))
            has_display = live.record.config.enable_display and capture is not None
            screen = await look_at_screen(live.machine, has_display=has_display)
            await both(_stop(live, capture), successor.load_devices())
            await successor.reserve()
            if capture is not None:
                # The files are written while the new guest is resumed.
                keeping = asyncio.create_task(
                    _keep_present(live, node, capture, shape, screen),
                    name="quicksand-keep-present",
                )
            await successor.take_over(link)
        except BaseException:
            # Errors of the cleanup must not replace the one that is raised to the caller.
            with best_effort("undo a revert that failed", live.log):
                await to_the_end(_give_up(live, successor, capture, keeping))
            raise
        return node, await _finish(live, successor, keeping)


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
            f"the checkpoint {node.tag!r} has a disk but no memory to revert to",
            hint=Words("stop the sandbox, then ", Remedy("start_at", at=node.id, name=name)),
        )
    return node


def last_automatic(history: History, name: str) -> Node:
    """The latest automatic checkpoint. Raises StateError if there is none."""
    automatic = [node for node in history.nodes() if node.auto]
    if not automatic:
        raise StateError(f"the sandbox {name!r} was never reverted: nothing to undo")
    return automatic[-1]


async def _give_up(
    live: RunningSandbox,
    successor: Successor,
    capture: Capture | None,
    keeping: asyncio.Task[Node] | None,
) -> None:
    if keeping is not None:
        await asyncio.wait((keeping,))
        if not keeping.cancelled():
            keeping.exception()  # retrieved, since the failure that led here is the one to raise
    await (_end_old(live) if successor.is_current() else _stay(live, successor, capture))


async def _launch(registry: Registry, record: Record, successor: Successor) -> None:
    await successor.launch(await gather_parts(registry, record))


async def _nothing() -> None: ...


async def _stop(live: RunningSandbox, capture: Capture | None) -> None:
    """Pause the old guest, and capture its state if that is to be kept."""
    if capture is None:
        await live.hypervisor.pause()
    else:
        await capture.freeze(resume=False)


async def _finish(
    live: RunningSandbox, successor: Successor, keeping: asyncio.Task[Node] | None
) -> Node | HistoryError | None:
    """Wait until the present is kept, and end the old QEMU; returns the automatic checkpoint, or
    why there is none."""
    kept: Node | HistoryError | None
    try:
        kept = await keeping if keeping is not None else None
    except HistoryError as error:
        kept = error
    except BaseException:
        await to_the_end(both(_end_old(live), in_thread_to_the_end(successor.settle)))
        raise
    await to_the_end(both(_end_old(live), _tidy(live, successor)))
    return kept


async def _tidy(live: RunningSandbox, successor: Successor) -> None:
    """Write the new head, then remove the automatic checkpoints that are too many."""
    await in_thread_to_the_end(successor.settle)
    await in_thread_to_the_end(lambda: prune_automatic(live.history))


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


async def _keep_present(
    live: RunningSandbox,
    node: Node,
    capture: Capture,
    shape: dict[str, Any],
    screen: Picture | None,
) -> Node:
    """Store the state before the revert as an automatic checkpoint. The old QEMU is still there,
    paused. Raises HistoryError if that fails."""
    what = "before undo" if node.auto else f"before revert to {node.tag}"
    tag = automatic_tag(live.history, what)
    try:
        await keep_thumbnail(screen, live.place, capture.id)
        return await capture.store(tag=tag, note="", auto=True, tier_note="", shape=shape)
    except BaseException as error:
        await to_the_end(capture.forget())
        if isinstance(error, QuicksandError):
            raise HistoryError(
                f"the sandbox is reverted to {node.tag!r}, but its state before could not be kept: "
                f"{error}"
            ) from error
        raise


async def _end_old(live: RunningSandbox) -> None:
    """End the old QEMU after the successor has taken over, without waiting for it: to free much
    memory takes long. Raises MachineError if the whole sandbox or its keeper has ended."""
    try:
        await live.keeper.ask("kill", name=live.machine.name, behind=True)
    except MachineError:
        if await is_keeper_gone(live):
            end_strays(live.place, only=live.run.qemu_pid)
            raise
        # Otherwise the old QEMU has just ended by itself.


def _rules(live: RunningSandbox) -> list[str]:
    return forward_rules(live.run.forwards, live.run.http_port)


async def _stay(live: RunningSandbox, successor: Successor, capture: Capture | None) -> None:
    """After a failed revert: remove the successor and let the old QEMU continue."""
    with best_effort("remove the new machine", live.log):
        await successor.remove()
    # The successor's ports are free now. The old QEMU refuses those that it still has.
    for rule in _rules(live):
        with best_effort(f"forward {rule} again, unless it is still", live.log):
            await live.hypervisor.add_forward(rule)
    await asyncio.to_thread(widen_backlogs, live.run.qemu_pid, live.run.forwarded)
    if live.run.vnc_port is not None:
        with best_effort("serve the screen at its port again", live.log):
            await listen(live.hypervisor, live.machine, live.run.vnc_port)
    if not live.run.paused:
        with best_effort("resume the guest", live.log):
            await live.hypervisor.resume()
    with best_effort("write the head of the old machine", live.log):
        if (current := live.runtime.current()).root.exists():
            live.history.settle(current.name)
        # Otherwise the sandbox has ended, and the next start decides which head counts.
    with best_effort("remove the unfinished checkpoint", live.log):
        if capture is not None:
            await capture.discard()
    with best_effort("remove files that nothing needs", live.log):
        await in_thread_to_the_end(live.history.sweep)
    await live.keeper.ask("guard", on=False)

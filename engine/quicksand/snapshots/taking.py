"""Taking a checkpoint of a running sandbox, from the lock to the cleanup."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.capacity import check_space
from quicksand.base.effort import best_effort
from quicksand.base.errors import ConfigError, DisplayError, StateError
from quicksand.base.hypervisor import Hypervisor
from quicksand.base.remedies import Remedy, Words
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.display.hands import let_go_all, may_hold
from quicksand.mounts.ninep import refuse_mounted
from quicksand.qemu.keeper_check import ensure_keeper
from quicksand.qemu.keeper_link import KeeperLink
from quicksand.qemu.qemu_hypervisor import Qemu
from quicksand.records.layout import MachineDir, RuntimeDir, SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.nodes import Node, check_note, check_tag
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, RunState
from quicksand.snapshots import restore
from quicksand.snapshots.capture import Capture
from quicksand.snapshots.history import History, history_of
from quicksand.snapshots.keeping import keep_given_up
from quicksand.snapshots.recognition import keep_thumbnail, look_at_screen
from quicksand.snapshots.tier_choice import choose_tier


@dataclass(slots=True, kw_only=True)
class RunningSandbox:
    """A running sandbox with the connections to work on it, from `working_on`."""

    record: Record
    run: RunState
    place: SandboxDir
    runtime: RuntimeDir
    machine: MachineDir
    """The directory of the running QEMU."""
    hypervisor: Hypervisor
    keeper: KeeperLink
    history: History

    @property
    def log(self) -> Path:
        """The log of attempts that failed."""
        return self.place.engine_log

    @property
    def is_unfinished(self) -> bool:
        """Whether the guest's memory is neither one state nor another: a revert in place was begun
        and not finished."""
        return self.machine.unfinished.exists()

    async def resume(self) -> bool:
        """Let the guest go on, unless its user has paused it; returns whether QEMU was there to do
        it."""
        with best_effort("resume the guest", self.log):
            if self.run.paused:
                await self.hypervisor.is_running()
            else:
                await self.hypervisor.resume()
            return True
        return False

    def settle_head(self) -> None:
        """Write the head of the running machine, after a failed hand-over to another one. Raises
        HistoryError, HostError."""
        if (current := self.runtime.current()).root.exists():
            self.history.settle(current.name)
        # Otherwise the sandbox has ended, and the next start decides which head counts.


FINISH_S = 60.0
"""Seconds to wait for the end of a revert that its client has not finished."""

FINISH_POLL_S = 0.05

FINISH_ATTEMPTS = 3
"""The most reverts in a row, begun and left by other clients, for which this one waits."""


@contextlib.asynccontextmanager
async def working_on(
    registry: Registry, record: Record, *, even_unfinished: bool = False
) -> AsyncIterator[RunningSandbox]:
    """Lock the history of a running sandbox and connect to its QEMU and its keeper.

    An unfinished revert of another client is finished first, unless the caller takes the sandbox
    ``even_unfinished``, to give it another memory. Raises StateError if it is not running,
    HistoryError if another client works on it, MachineError.
    """
    place, runtime = sandbox_dir(registry.paths, record.id), runtime_dir(registry.paths, record.id)
    history = history_of(registry, record.id)
    locked = history.locked() if even_unfinished else finished_history(registry, record)
    async with locked:
        await ensure_keeper(registry, record)  # first: a new one is in the machine's state
        entry = registry.inspect(record.id)
        if entry is None or entry.run is None:
            raise StateError(f"the sandbox {record.name!r} is not running")
        async with await KeeperLink.connect(runtime.keeper_socket) as keeper:
            machine = runtime.current()
            if not machine.root.exists():  # it has just ended
                raise StateError(f"the sandbox {record.name!r} is not running")
            history.settle(machine.name)
            await keep_given_up(history)
            _remove_unborn(runtime, machine)
            hypervisor = await Qemu.connect(machine, entry.run.qemu_command)
            try:
                yield RunningSandbox(
                    record=record,
                    run=entry.run,
                    place=place,
                    runtime=runtime,
                    machine=machine,
                    hypervisor=hypervisor,
                    keeper=keeper,
                    history=history,
                )
            finally:
                await hypervisor.close()


@contextlib.asynccontextmanager
async def finished_history(registry: Registry, record: Record) -> AsyncIterator[None]:
    """Lock the history of a sandbox. A revert that another client leaves unfinished, even while
    this one waits for the lock, is finished first. Raises StateError if it is not finished
    afterwards, HistoryError if another client works on the sandbox, MachineError."""
    machines = runtime_dir(registry.paths, record.id)
    for _ in range(FINISH_ATTEMPTS):
        await until_finished(registry, record)
        async with history_of(registry, record.id).locked():
            if not machines.current().unfinished.exists():
                yield
                return
    raise _unfinished(record)


async def until_finished(registry: Registry, record: Record) -> None:
    """Have an abandoned revert finished, and wait for its end. Raises StateError if it is not
    finished then, MachineError."""
    runtime = runtime_dir(registry.paths, record.id)
    if not runtime.current().unfinished.exists():
        return
    deadline = asyncio.get_running_loop().time() + FINISH_S
    is_finishing = await _have_finished(registry, record, again=True)
    while is_finishing and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(FINISH_POLL_S)
        is_finishing = await _have_finished(registry, record, again=False)
    if runtime.current().unfinished.exists():
        raise _unfinished(record)


async def _have_finished(registry: Registry, record: Record, *, again: bool) -> bool:
    """Have a revert finished if nobody is doing so, and ``again`` is true or it was not tried;
    returns whether somebody is doing so."""
    runtime = runtime_dir(registry.paths, record.id)
    await ensure_keeper(registry, record)
    if not runtime.current().unfinished.exists():
        return False
    async with await KeeperLink.connect(runtime.keeper_socket) as keeper:
        return bool((await keeper.ask("finish", again=again))["running"])


def _unfinished(record: Record) -> StateError:
    return StateError(
        f"the last revert of {record.name!r} was interrupted, and is not finished",
        hint=Words(
            "revert it again, or stop it, then ", Remedy("start_at", at="TAG", name=record.name)
        ),
    )


def _remove_unborn(runtime: RuntimeDir, machine: MachineDir) -> None:
    """Remove directories of machines that a client was about to launch when it was killed. This
    client holds the history's lock, so no other client is launching one now."""
    for name in runtime.names():
        if name.isdigit() and name != machine.name:
            runtime.remove_machine(name)


async def take_checkpoint(
    registry: Registry,
    record: Record,
    tag: str | None,
    *,
    note: str = "",
    replace_tag: bool = False,
    tier: str | None = None,
) -> Node:
    """Take a checkpoint of a running sandbox; without ``tag`` it is numbered. ``tier``: a tier
    instead of the best possible one (tier_choice.py).

    Raises ConfigError for a bad or taken tag, a bad note or tier, StateError, HistoryError,
    HostError, MachineError. After an error there is no checkpoint, and the sandbox keeps running.
    """
    if tag is not None:
        check_tag(tag)
    check_note(note)
    async with working_on(registry, record) as live:
        old = None
        if tag is None:
            tag = await asyncio.to_thread(_next_tag, live.history)
        elif (
            old := await asyncio.to_thread(_find_tag, live.history, tag)
        ) is not None and not replace_tag:
            raise ConfigError(
                f"there is a checkpoint {tag!r} already", hint="choose another tag, or replace it"
            )
        elif old is not None and old.pinned:
            raise ConfigError(f"the checkpoint {tag!r} is pinned", hint="choose another tag")
        node = await checkpoint_live(live, tag, note=note, tier=tier)
        if old is not None:
            superseded = old
            await in_thread_to_the_end(lambda: live.history.remove(superseded))
        return node


async def checkpoint_live(
    live: RunningSandbox, tag: str, *, note: str = "", hidden: bool = False, tier: str | None = None
) -> Node:
    """Take a checkpoint of a sandbox on which the caller works. Raises as `take_checkpoint`."""
    await refuse_unsavable(live)
    await in_thread_to_the_end(live.history.sweep)
    check_space(live.place.root)
    if live.record.config.enable_display:
        # A paused guest, or one that takes no input, keeps them; a revert lifts them (`lift_all`).
        with best_effort("release keys and buttons", live.log, StateError, DisplayError):
            await let_go_all(live.machine, live.hypervisor)
    capture = start_capture(live, tier)
    await live.keeper.ask("guard", on=not live.run.paused)
    try:
        await capture.prepare()
        # Clones take over a hidden checkpoint, with its picture.
        has_display = live.record.config.enable_display
        screen = await look_at_screen(live.machine, has_display=has_display)
        shape = await find_shape(live)  # before the pause: viewers may disconnect during it
        await capture.freeze(resume=not live.run.paused)
        await live.keeper.ask("guard", on=False)
        await keep_thumbnail(screen, live.place, capture.id)
        node = await capture.store(
            tag=tag, note=note, auto=False, hidden=hidden, tier_note="", shape=shape
        )
        await capture.advance_head(node)
    except BaseException:
        await to_the_end(capture.discard())
        raise
    await capture.follow(node)
    return node


async def refuse_unsavable(live: RunningSandbox) -> None:
    """Raise StateError if the machine has state that no checkpoint can hold; MachineError."""
    await refuse_mounted(live.record.config, live.hypervisor, live.record.name)


def start_capture(live: RunningSandbox, tier: str | None = None) -> Capture:
    """Begin a checkpoint, in the best possible tier unless ``tier`` is given. Raises ConfigError,
    HostError."""
    config = live.record.config
    chosen = choose_tier(live.run.qemu_pid, asked=tier, features=live.hypervisor.features)
    return chosen.way.capture(
        live.history,
        live.run,
        live.hypervisor,
        live.machine,
        memory_bytes=config.memory_bytes,
        arch=(config.arch or Architecture.host()).value,
        why=chosen.note,
    )


async def find_shape(live: RunningSandbox) -> dict[str, Any]:
    """The shape of the running machine (restore.py), and whether a key or button may be held down.
    Raises MachineError."""
    digest = live.record.image_digest
    shape = await restore.shape_of(live.run, live.hypervisor, live.record.config, digest)
    if live.record.config.enable_display:
        shape[restore.HELD] = await may_hold(live.machine, live.hypervisor)
    return shape


def _find_tag(history: History, tag: str) -> Node | None:
    return next((node for node in history.nodes() if node.tag == tag), None)


def _next_tag(history: History) -> str:
    tags = {node.tag for node in history.nodes()}
    number = len(tags) + 1
    while str(number) in tags:
        number += 1
    return str(number)

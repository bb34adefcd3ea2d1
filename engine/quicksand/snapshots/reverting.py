"""Going back to a checkpoint: a new QEMU is made ready while the old one runs, then takes over."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from quicksand.errors import (
    CheckpointNotFoundError,
    HistoryError,
    HostError,
    MachineError,
    QuicksandError,
)
from quicksand.host.files import map_os_errors
from quicksand.host.threads import in_thread_to_the_end
from quicksand.layout import sandbox_dir
from quicksand.planning import Parts, Ports, check_space, gather_parts, make_run_state, plan_machine
from quicksand.qemu.command import Inherited, plan
from quicksand.qemu.process import Listeners
from quicksand.qemu.qmp import Monitor
from quicksand.registry import Record, Registry, RunState, publish_state, remove_tree
from quicksand.snapshots import restore
from quicksand.snapshots.capture import Capture
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import add_layer
from quicksand.snapshots.operations import (
    Live,
    find_shape,
    prune_automatic,
    start_capture,
    working_on,
)
from quicksand.snapshots.origins import Origin, import_node
from quicksand.snapshots.records import TAG_MAX, Head, Node, new_id
from quicksand.stopping import end_strays

FIRST_DESCRIPTOR = 300
"""Of a QEMU that a keeper launches: above all that the keeper itself has open."""


async def revert(
    registry: Registry, record: Record, tag: str, *, keep_now: bool = True
) -> tuple[Node, Node | None]:
    """Go back to a checkpoint. With ``keep_now`` the present is kept as an automatic checkpoint.

    Returns the checkpoint and the automatic one. Raises CheckpointNotFoundError, HistoryError,
    HostError, MachineError; until the new QEMU has taken over, the old one goes on after any
    failure.
    """
    async with working_on(registry, record) as live:
        node = await find_or_import(registry, live, tag)
        shape = await find_shape(live)
        restore.check_shape(node, shape)
        await in_thread_to_the_end(live.history.sweep)
        check_space(live.place.root)
        successor = Successor(live, node, await gather_parts(registry, record))
        capture = start_capture(live) if keep_now else None
        try:
            await _both(
                successor.launch(), capture.prepare() if capture is not None else _nothing()
            )
            await live.keeper.ask("guard", on=not live.run.paused, forwards=plan_forwards(live.run))
            await successor.take_over(capture)
        except BaseException:
            # What is tidied up comes second to the error that is on its way to the caller.
            with contextlib.suppress(QuicksandError):
                await asyncio.shield(
                    _end_old(live) if successor.is_current() else _stay(live, successor, capture)
                )
            raise
        try:
            auto = await _keep_present(live, node, capture, shape) if capture is not None else None
        finally:
            await asyncio.shield(_end_old(live))
        await in_thread_to_the_end(lambda: prune_automatic(live.history))
        return node, auto


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
    tag = _automatic_tag(live, node)
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


def _automatic_tag(live: Live, node: Node) -> str:
    what = "before undo" if node.auto else f"before revert to {node.tag}"[:90]
    tag = first = f"{what} {time.strftime('%H:%M:%S')}"
    taken = {other.tag for other in live.history.nodes()}
    number = 2
    while tag in taken:
        tag, number = f"{first} ({number})", number + 1
    return tag


async def _end_old(live: Live) -> None:
    """End the QEMU that another one has taken over from. Raises MachineError when the sandbox has
    ended as a whole, or its keeper has."""
    try:
        await live.keeper.ask("kill", name=live.machine.name)
    except MachineError:
        if await _is_keeper_gone(live):
            end_strays(live.place, only=live.run.qemu_pid)
            raise
        # It has ended by itself just before.


async def _is_keeper_gone(live: Live) -> bool:
    try:
        await live.keeper.ask("guard", on=not live.run.paused)
    except MachineError:
        return True
    return False


async def _stay(live: Live, successor: Successor, capture: Capture | None) -> None:
    """The revert failed: the old QEMU goes on as if nothing had been."""
    with contextlib.suppress(QuicksandError):
        await successor.remove()
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


class Successor:
    """A QEMU in the making that goes on from a checkpoint."""

    def __init__(self, live: Live, node: Node, parts: Parts) -> None:
        self._live = live
        self._node = node
        self._parts = parts
        taken = {path.name for path in live.runtime.root.iterdir()}
        self._name = next(str(n) for n in range(2, 10**6) if str(n) not in taken)
        self._head = Head.going_on(node, machine=self._name)
        self._launched = False
        self._monitor: Monitor | None = None
        self._run: RunState | None = None

    async def launch(self) -> None:
        """Start it, standing still, with the checkpoint's memory."""
        live, place = self._live, self._live.place
        await in_thread_to_the_end(lambda: restore.check_disk_and_image(place, self._node))
        below = self._node.layers[-1]
        await in_thread_to_the_end(lambda: add_layer(place, self._head.top, below=below))
        ports = Ports(forwards=(), http=None)
        machine = plan_machine(live.record, self._parts, self._head, ports, place, at=self._node)
        with map_os_errors(live.runtime.root):
            directory = live.runtime.make(self._name)
            listeners = Listeners(directory)
        try:
            numbers = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + len(listeners.descriptors))
            qmp = len(listeners.inherited.qmp)
            listeners.inherited = Inherited(qmp=numbers[:qmp], agent=numbers[qmp:])
            binaries = self._parts.binaries
            words = [*binaries.firmware_arguments, *plan(machine, listeners.inherited)]
            reply = await live.keeper.ask(
                "launch",
                name=self._name,
                argv=[str(binaries.system), *words],
                descriptors=list(numbers),
                pass_descriptors=listeners.descriptors,
            )
            self._launched = True
        finally:
            listeners.close()
        state = make_run_state(
            machine,
            self._parts,
            listeners,
            pids=(live.run.keeper_pid, int(reply["pid"])),
            token=self._node.token,
            run=self._head.run or new_id(),
            origin=self._node.tag,
        )
        self._run = replace(
            state,
            started=live.run.started,
            forwards=live.run.forwards,
            http_port=live.run.http_port,
        )
        self._monitor = await Monitor.connect(directory)
        await restore.load_memory(place, directory, self._node, self._monitor, self._run.qemu_pid)

    async def take_over(self, capture: Capture | None) -> None:
        """Stop the old QEMU, copying its present into ``capture``, and go on in this one."""
        live = self._live
        assert self._monitor is not None
        assert self._run is not None
        if capture is not None:
            await capture.freeze(resume=False)
        else:
            await live.monitor.execute("stop")
        await restore.load_devices(live.place, self._node, self._monitor)
        directory = live.runtime.machine(self._name)
        socket = directory.agent_socket(0)
        token = await restore.wake(socket, live.record, self._node, self._monitor)
        self._run = replace(self._run, token=token)
        await self._move_forwards()
        publish_state(directory, self._run)
        head = replace(self._head, previous=live.history.head())
        await in_thread_to_the_end(lambda: live.history.set_head(head))
        await live.keeper.ask("promote", name=self._name)
        # If that fails, whoever works on the sandbox next does it (`History.settle`), or its end.
        with contextlib.suppress(HostError):
            await in_thread_to_the_end(lambda: live.history.set_head(self._head))
        await self._monitor.close()

    async def _move_forwards(self) -> None:
        """The forwarded ports lead here from now on: two processes cannot have them."""
        assert self._monitor is not None
        for rule in plan_forwards(self._live.run):
            host, _, _ = rule.partition("-")
            await _human(self._live.monitor, f"hostfwd_remove net0 {host}")
            await _human(self._monitor, f"hostfwd_add net0 {rule}")

    async def remove(self) -> None:
        """End it, as if it had never been."""
        live = self._live
        if self._monitor is not None:
            await self._monitor.close()
        if self._launched:
            with contextlib.suppress(MachineError):
                await live.keeper.ask("kill", name=self._name)
        if await _is_keeper_gone(live):
            # Nobody else would end it.
            end_strays(live.place, but=live.run.qemu_pid)
        remove_tree(live.runtime.machine(self._name).root)
        # Now that it is gone its ports are free for the old one, which may have them still.
        for rule in plan_forwards(live.run):
            with contextlib.suppress(QuicksandError):
                await _human(live.monitor, f"hostfwd_add net0 {rule}")
        # Its layer goes with the next sweep, unless the head knows it.

    def is_current(self) -> bool:
        """Whether it is the sandbox's machine: from then on there is no way back."""
        return self._live.runtime.current().name == self._name


def plan_forwards(run: RunState) -> list[str]:
    """The rules of a machine's forwards, as QEMU's monitor takes them."""
    from quicksand.config import GUEST_IP
    from quicksand.qemu.command import AGENT_HTTP_PORT

    pairs = [*run.forwards]
    if run.http_port is not None:
        pairs.append((run.http_port, AGENT_HTTP_PORT))
    return [f"tcp:127.0.0.1:{host}-{GUEST_IP}:{guest}" for host, guest in pairs]


async def _human(monitor: Monitor, line: str) -> None:
    """A command that QMP does not have. Its errors come as text in a successful reply."""
    said = str(await monitor.execute("human-monitor-command", **{"command-line": line})).strip()
    if said and "removed" not in said:
        raise MachineError(f"QEMU did not {line!r}: {said}")

"""A revert in a new QEMU, the successor, which is prepared while the old one runs and then takes
over from it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Self

from quicksand.base.effort import best_effort
from quicksand.base.errors import HistoryError, HostError, MachineError, QemuDiedError
from quicksand.base.files import PendingJson, map_os_errors
from quicksand.base.hypervisor import Hypervisor
from quicksand.base.threads import both, in_thread_to_the_end, to_the_end
from quicksand.display.vnc import listen, stop_listening
from quicksand.guest.agent.link import AgentLink
from quicksand.mounts import devices as machine_devices
from quicksand.mounts import ninep
from quicksand.qemu.command import forward_rules
from quicksand.qemu.keeper_successor import widen_backlogs
from quicksand.qemu.planning import Parts, Ports, gather_parts, plan_machine
from quicksand.qemu.qemu_hypervisor import Qemu
from quicksand.qemu.second_machine import launch_second
from quicksand.qemu.stopping import end_strays
from quicksand.records.nodes import Head, Node, new_id
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import RunState
from quicksand.snapshots import restore
from quicksand.snapshots.awakening import Awakening, Moments
from quicksand.snapshots.layers import add_layer
from quicksand.snapshots.memory_copying import Fate
from quicksand.snapshots.present import Present
from quicksand.snapshots.taking import RunningSandbox
from quicksand.snapshots.tier_choice import way_of


class Successor:
    """A QEMU that is about to replace the running one, to continue from a checkpoint."""

    def __init__(self, live: RunningSandbox, node: Node, head: Head) -> None:
        self._live = live
        self._node = node
        self.head = head
        """The sandbox's head once this QEMU has taken over."""
        self._directory = live.runtime.machine(head.machine)
        self._launched = False
        self._hypervisor: Hypervisor | None = None
        self.awakening = Awakening(self._directory, live.record, node)
        self._run: RunState | None = None
        self._reserved: PendingJson | None = None

    @classmethod
    def new(cls, live: RunningSandbox, node: Node) -> Self:
        """A successor that is not launched yet. Raises QemuDiedError if the sandbox has ended."""
        if not live.runtime.names():
            raise QemuDiedError("QEMU ended before another one could take over")
        return cls(live, node, Head.going_on(node, machine=live.runtime.new_name()))

    async def launch(self, parts: Parts) -> None:
        """Start it, paused, and load the checkpoint's memory. Raises HistoryError, HostError,
        MachineError."""
        run = self._run = await self._start(parts)
        self._hypervisor = await Qemu.connect(self._directory, run.qemu_command)
        await self.awakening.dial()
        place, way = self._live.place, way_of(self._node)
        await way.load_memory(place, self._directory, self._node, self._hypervisor, run.qemu_pid)
        if way.track is not None:  # a sandbox that goes back is likely to take checkpoints
            await way.track(place, self._directory, self._node, self._hypervisor, run)

    @property
    def run(self) -> RunState:
        """The state of its run; it must have been started."""
        assert self._run is not None
        return self._run

    async def load_devices(self) -> None:
        """Load the devices' state; its VM stays paused. Raises HistoryError, MachineError."""
        assert self._hypervisor is not None
        await way_of(self._node).load_devices(self._live.place, self._node, self._hypervisor)

    async def _start(self, parts: Parts) -> RunState:
        live, place = self._live, self._live.place
        await in_thread_to_the_end(lambda: restore.check_disk_and_image(place, self._node))
        below = self._node.layers[-1]
        await in_thread_to_the_end(lambda: add_layer(place, self.head.top, below=below))
        ports = Ports()
        devices = await asyncio.to_thread(self._devices)
        directories = ninep.shared(devices)
        machine = plan_machine(
            live.record, parts, self.head, ports, place, at=self._node, directories=directories
        )
        with map_os_errors(live.runtime.root):
            made = live.runtime.make(self.head.machine)
        if devices:
            machine_devices.note(made, devices)
        if self._node.shares:
            made.past_shares.touch(mode=0o600)
        run = await launch_second(
            live.keeper,
            machine,
            parts,
            made,
            keeper_pid=live.run.keeper_pid,
            token=self._node.token,
            run=self.head.run or new_id(),
            origin=self._node.tag,
        )
        self._launched = True
        return run

    def _devices(self) -> list[machine_devices.Device]:
        """The 9p devices of the running machine, of which none is mounted yet. Raises
        MountError."""
        found = machine_devices.read(self._live.machine)
        for device in found:
            ninep.require_there(device)
        return [replace(device, mounted=False) for device in found]

    async def reserve(self) -> None:
        """Reserve disk space for the head that `take_over` writes. Called once the old QEMU's disk
        is frozen. Raises DiskSpaceError, HistoryError, PathError."""
        history = self._live.history
        self._reserved = await in_thread_to_the_end(
            lambda: history.prepare_head(replace(self.head, previous=history.head()))
        )

    async def take_over(self, link: AgentLink | None, present: Present) -> None:
        """Make this QEMU, whose devices are loaded, the sandbox's machine once the ``present`` is
        stored; the old QEMU is paused. ``link`` takes over the connection to its agent. `settle`
        comes next. Raises HistoryError if the present cannot be kept, MachineError, AgentError,
        HostError."""
        live = self._live
        assert self._reserved is not None
        assert self._hypervisor is not None
        token = await self.awakening.wake(self._hypervisor)
        await self._move_forwards()
        run = replace(
            self.run,
            token=token,
            started=live.run.started,
            forwards=live.run.forwards,
            udp_forwards=live.run.udp_forwards,
            owner_pid=live.run.owner_pid,
            owner_started=live.run.owner_started,
            http_port=live.run.http_port,
            vnc_port=live.run.vnc_port,
        )
        await asyncio.to_thread(widen_backlogs, run.qemu_pid, run.forwarded)
        publish_state(self._directory, run)
        kept = await present.kept()
        if isinstance(kept, HistoryError) and not live.is_unfinished:
            raise kept
        await in_thread_to_the_end(self._reserved.put)
        try:
            # A cancelled request would close the link: both QEMUs would end.
            await to_the_end(live.keeper.ask("promote", name=self.head.machine))
            self.awakening.hand_over(link)
        finally:
            await self._let_go()

    def settle(self) -> None:
        """Write a head that forgets the old QEMU's. If that fails, or the client dies before, the
        next client (`History.settle`) or the next start does it."""
        with best_effort("write the new head", self._live.log, HostError):
            self._live.history.set_head(self.head)

    async def _move_forwards(self) -> None:
        """Move QEMU's own forwarded ports here: two processes cannot listen on the same port."""
        assert self._hypervisor is not None
        for rule in forward_rules(self._live.run.http_port):
            await self._live.hypervisor.remove_forward(rule)
            await self._hypervisor.add_forward(rule)
        if (port := self._live.run.vnc_port) is not None:
            await stop_listening(self._live.hypervisor)
            await listen(self._hypervisor, self._directory, port)

    async def _let_go(self) -> None:
        """Close this client's connections to the new QEMU. Idempotent."""
        self.awakening.close()
        if self._hypervisor is not None:
            await self._hypervisor.close()

    async def remove(self) -> None:
        """End the new QEMU and remove its directory. The next sweep removes its layer, unless the
        head names it."""
        live = self._live
        if self._reserved is not None:
            self._reserved.drop()
        await self._let_go()
        if self._launched:
            with best_effort("end the new machine", live.log, MachineError):
                await live.keeper.ask("kill", name=self.head.machine)
        if await is_keeper_gone(live):
            # Without a keeper nothing else ends it.
            end_strays(live.place, but=live.run.qemu_pid)
        live.runtime.remove_machine(self._directory.name)

    def is_current(self) -> bool:
        """Whether it has become the sandbox's machine; then the old one cannot continue."""
        return self._live.runtime.current().name == self.head.machine


async def revert_in_new_qemu(
    registry: Registry,
    live: RunningSandbox,
    node: Node,
    present: Present,
    link: AgentLink | None,
) -> Moments:
    """Have a sandbox go on from ``node`` in a new QEMU. ``link`` takes over the connection to its
    agent.

    Raises as `revert`; until the new QEMU has taken over, the old one goes on after any failure,
    unless its memory is already given up."""
    successor = Successor.new(live, node)
    try:
        await both(_launch(registry, live, successor), present.prepare(Fate.STAYS_PAUSED))
        await live.keeper.ask("guard", on=not live.run.paused, forwards=_rules(live))
        await present.look()
        await both(present.freeze(), successor.load_devices())
        await successor.reserve()
        present.store()  # while the new guest is resumed
        await successor.take_over(link, present)
    except BaseException:
        # Errors of the cleanup must not replace the one raised to the caller.
        with best_effort("undo a revert that failed", live.log):
            await to_the_end(_give_up(live, successor, present))
        raise
    await to_the_end(both(_end_old(live), in_thread_to_the_end(successor.settle)))
    return successor.awakening.moments(present.frozen_at)


async def _launch(registry: Registry, live: RunningSandbox, successor: Successor) -> None:
    parts = await gather_parts(registry, live.record, beside=live.run.qemu_command)
    await successor.launch(parts)


async def _give_up(live: RunningSandbox, successor: Successor, present: Present) -> None:
    if successor.is_current():
        await present.settle()
        await both(_end_old(live), in_thread_to_the_end(successor.settle))
    else:
        await _stay(live, successor, present)


async def _end_old(live: RunningSandbox) -> None:
    """End the old QEMU after the successor has taken over, without waiting for its end: freeing
    much memory takes long. Raises MachineError if the whole sandbox or its keeper has ended."""
    try:
        await live.keeper.ask("kill", name=live.machine.name, behind=True)
    except MachineError:
        if await is_keeper_gone(live):
            end_strays(live.place, only=live.run.qemu_pid)
            raise
        # Otherwise the old QEMU has just ended by itself.


def _rules(live: RunningSandbox) -> list[str]:
    return forward_rules(live.run.http_port)


async def _stay(live: RunningSandbox, successor: Successor, present: Present) -> None:
    """After a failed revert: remove the successor and let the old QEMU continue."""
    with best_effort("remove the new machine", live.log):
        await successor.remove()
    # The successor's ports are free now. The old QEMU refuses to add those that it still has.
    for rule in _rules(live):
        with best_effort(f"forward {rule} again, unless it is still", live.log):
            await live.hypervisor.add_forward(rule)
    await asyncio.to_thread(widen_backlogs, live.run.qemu_pid, live.run.forwarded)
    if live.run.vnc_port is not None:
        with best_effort("serve the screen at its port again", live.log):
            await listen(live.hypervisor, live.machine, live.run.vnc_port)
    goes_on = not live.is_unfinished and await live.resume()
    with best_effort("write the head of the old machine", live.log):
        await in_thread_to_the_end(live.settle_head)
    # Otherwise it is no longer the present, or the sandbox has ended.
    await (present.discard() if goes_on else present.leave())
    with best_effort("remove files that nothing needs", live.log):
        await in_thread_to_the_end(live.history.sweep)
    # An unfinished revert in place is finished when this client has gone.
    await live.keeper.ask("guard", on=live.is_unfinished)


async def is_keeper_gone(live: RunningSandbox) -> bool:
    """Whether the sandbox's keeper has ended."""
    try:
        await live.keeper.ask("guard", on=not live.run.paused)
    except MachineError:
        return True
    return False

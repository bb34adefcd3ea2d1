"""The successor: a QEMU that is prepared to continue from a checkpoint while another one, which it
will replace, still runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Self

from quicksand.base.effort import best_effort
from quicksand.base.errors import AgentUnreachableError, HostError, MachineError, QemuDiedError
from quicksand.base.files import PendingJson, map_os_errors
from quicksand.base.hypervisor import Hypervisor
from quicksand.base.lease import take_at_once
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.display.vnc import listen, stop_listening
from quicksand.guest.agent.link import ATTEMPT_S, AgentLink
from quicksand.guest.agent.session import Session, dial
from quicksand.mounts import devices as machine_devices
from quicksand.mounts import ninep
from quicksand.qemu.backlog import widen_backlogs
from quicksand.qemu.command import forward_rules
from quicksand.qemu.hypervisor import Qemu
from quicksand.qemu.planning import Parts, Ports, plan_machine
from quicksand.qemu.second_machine import launch_second
from quicksand.qemu.stopping import end_strays
from quicksand.records.nodes import Head, Node, new_id
from quicksand.records.registry import publish_state
from quicksand.records.sandboxes import RunState
from quicksand.snapshots import rehearsal, restore
from quicksand.snapshots.layers import add_layer
from quicksand.snapshots.taking import RunningSandbox
from quicksand.snapshots.tier_choice import way_of


class Successor:
    """A QEMU that is about to replace the running one, to continue from a checkpoint."""

    def __init__(self, live: RunningSandbox, node: Node, head: Head) -> None:
        self._live = live
        self._node = node
        self.head = head
        """The sandbox's head once it has taken over."""
        self._directory = live.runtime.machine(head.machine)
        self._launched = False
        self._hypervisor: Hypervisor | None = None
        self._session: Session | None = None
        self._run: RunState | None = None
        self._reserved: PendingJson | None = None
        self.rehearsed = False
        """Whether its guest has run its first steps and its programs are stopped."""

    @classmethod
    def new(cls, live: RunningSandbox, node: Node) -> Self:
        """A successor that is not launched yet. Raises QemuDiedError if the sandbox has ended."""
        if not live.runtime.names():
            raise QemuDiedError("QEMU ended before another one could take over")
        return cls(live, node, Head.going_on(node, machine=live.runtime.new_name()))

    async def launch(self, parts: Parts) -> None:
        """Start it, paused, and load the checkpoint's memory. Raises HistoryError, HostError,
        MachineError."""
        run = await self._start(parts)
        await self.adopt(run)
        assert self._hypervisor is not None
        place, way = self._live.place, way_of(self._node)
        await way.load_memory(place, self._directory, self._node, self._hypervisor, run.qemu_pid)
        if way.track is not None:  # a sandbox that goes back is likely to take checkpoints
            await way.track(place, self._directory, self._node, self._hypervisor, run)

    async def adopt(self, run: RunState, *, timeout: float | None = None) -> None:
        """Connect to a QEMU that was started already, in the state ``run``. Raises MachineError if
        it has ended or does not answer within ``timeout`` seconds, AgentError."""
        self._launched = True
        self._run = run
        self._hypervisor = await Qemu.connect(self._directory, run.qemu_command, timeout=timeout)
        # No other client uses this machine yet, so no lease is needed.
        self._session = await dial(self._directory.agent_socket(self._node.port))

    @property
    def run(self) -> RunState:
        """Its state; it must have been started."""
        assert self._run is not None
        return self._run

    async def rehearse(self) -> None:
        """Run the guest's first steps, then pause it again (rehearsal.py).

        Raises AgentError, HistoryError, MachineError, TimeoutError; it must be removed then.
        """
        assert self._hypervisor is not None
        async with asyncio.timeout(rehearsal.LIMIT_S):
            await rehearsal.hold_packets(self._live.record, self._hypervisor)
            await self.load_devices()
            # The guest's programs run until the agent has answered, so it is asked only once.
            session = await self._wake(again=rehearsal.give_up)
            await rehearsal.go_through(session, self._live.record, self._node)
            await self._hypervisor.pause()
        self.rehearsed = True

    async def load_devices(self) -> None:
        """Load the devices' state, unless it is rehearsed; its VM stays paused. Raises
        HistoryError, MachineError."""
        assert self._hypervisor is not None
        if not self.rehearsed:
            await way_of(self._node).load_devices(self._live.place, self._node, self._hypervisor)

    async def _wake(self, *, again: Callable[[], Awaitable[Session]]) -> Session:
        """Resume its guest; ``again`` as for `restore.wake`."""
        assert self._hypervisor is not None
        assert self._session is not None
        self._session = await restore.wake(self._session, again, self._node, self._hypervisor)
        return self._session

    async def let_wait(self, seconds: float) -> None:
        """Hand it to the keeper, which ends it in so many seconds unless a client adopts it.
        Raises MachineError."""
        await self._let_go()
        await self._live.keeper.ask("keep", name=self.head.machine, seconds=seconds)

    async def _start(self, parts: Parts) -> RunState:
        live, place = self._live, self._live.place
        await in_thread_to_the_end(lambda: restore.check_disk_and_image(place, self._node))
        below = self._node.layers[-1]
        await in_thread_to_the_end(lambda: add_layer(place, self.head.top, below=below))
        ports = Ports(forwards=(), http=None)
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

    async def _connect(self) -> Session:
        """Say hello anew, and again: a hello can get lost (`ATTEMPT_S`)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + restore.HELLO_S
        while True:
            session = await dial(self._directory.agent_socket(self._node.port))  # if QEMU lives
            try:
                await session.handshake(self._node.token, timeout=ATTEMPT_S)
                return session
            except AgentUnreachableError:
                session.close()
                if loop.time() >= deadline:
                    raise
            except BaseException:
                session.close()
                raise

    async def reserve(self) -> None:
        """Reserve disk space for the head that `take_over` writes. To be called when the old one's
        disk is frozen. Raises DiskSpaceError, HistoryError, PathError."""
        history = self._live.history
        self._reserved = await in_thread_to_the_end(
            lambda: history.prepare_head(replace(self.head, previous=history.head()))
        )

    async def take_over(self, link: AgentLink | None) -> None:
        """Make this QEMU, whose devices are loaded, the sandbox's machine; the old one is paused.
        The connection to its agent becomes that of ``link``. `settle` comes next. Raises
        MachineError, AgentError, HostError."""
        live = self._live
        assert self._reserved is not None
        assert self._hypervisor is not None
        if self.rehearsed:
            await rehearsal.release_packets(live.record, self._hypervisor)
        session = await self._wake(again=self._connect)
        token = await restore.repair_guest(session, live.record, self._node)
        if self.rehearsed:
            await rehearsal.let_go(session)
        await self._move_forwards()
        run = replace(
            self.run,
            token=token,
            started=live.run.started,
            forwards=live.run.forwards,
            http_port=live.run.http_port,
            vnc_port=live.run.vnc_port,
        )
        await asyncio.to_thread(widen_backlogs, run.qemu_pid, run.forwarded)
        publish_state(self._directory, run)
        await in_thread_to_the_end(self._reserved.put)
        try:
            # A cancelled request would close the link: both QEMUs would end.
            await to_the_end(live.keeper.ask("promote", name=self.head.machine))
            self._hand_over(link)
        finally:
            await self._let_go()

    def settle(self) -> None:
        """Write a head that forgets the old QEMU's. If that fails, or a client dies before, the
        next one (`History.settle`) or the next start does it."""
        with best_effort("write the new head", self._live.log, HostError):
            self._live.history.set_head(self.head)

    def _hand_over(self, link: AgentLink | None) -> None:
        """Give the session to ``link``: to connect anew would cost the guest another hundredth of a
        second. If another client has the port already, it waits for this session to end."""
        assert self._session is not None
        if link is None:
            return
        with contextlib.suppress(OSError):
            lease = take_at_once(self._directory.agent_socket(self._node.port))
            if lease is not None and link.adopt(self._directory, self._session, lease):
                self._session = None
            elif lease is not None:
                self._session.close()
                lease.release()

    async def _move_forwards(self) -> None:
        """Move the forwarded ports here: two processes cannot listen on the same port."""
        assert self._hypervisor is not None
        for rule in forward_rules(self._live.run.forwards, self._live.run.http_port):
            await self._live.hypervisor.remove_forward(rule)
            await self._hypervisor.add_forward(rule)
        if (port := self._live.run.vnc_port) is not None:
            await stop_listening(self._live.hypervisor)
            await listen(self._hypervisor, self._directory, port)

    async def _let_go(self) -> None:
        """Close this client's connections to it. Idempotent."""
        if self._session is not None:
            self._session.close()
        if self._hypervisor is not None:
            await self._hypervisor.close()

    async def remove(self) -> None:
        """End it and remove its directory. The next sweep removes its layer, unless the head names
        it."""
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


async def is_keeper_gone(live: RunningSandbox) -> bool:
    """Whether the sandbox's keeper has ended."""
    try:
        await live.keeper.ask("guard", on=not live.run.paused)
    except MachineError:
        return True
    return False

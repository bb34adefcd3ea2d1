"""A QEMU that goes on from a checkpoint while another one still runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Self

from quicksand.agent.session import Session, connect, dial
from quicksand.errors import HostError, MachineError, QemuDiedError
from quicksand.host.files import PendingJson, map_os_errors
from quicksand.host.threads import in_thread_to_the_end
from quicksand.planning import Parts, Ports, make_run_state, plan_machine
from quicksand.qemu.command import Inherited, plan
from quicksand.qemu.process import Listeners
from quicksand.qemu.qmp import CONNECT_TIMEOUT_S, Monitor
from quicksand.registry import RunState, publish_state, remove_tree
from quicksand.snapshots import rehearsal, restore
from quicksand.snapshots.layers import add_layer
from quicksand.snapshots.operations import Live
from quicksand.snapshots.records import Head, Node, new_id
from quicksand.stopping import end_strays

FIRST_DESCRIPTOR = 300
"""Of a QEMU that a keeper launches: above all that the keeper itself has open."""


class Successor:
    """A QEMU in the making that goes on from a checkpoint."""

    def __init__(self, live: Live, node: Node, head: Head) -> None:
        self._live = live
        self._node = node
        self.head = head
        """Where the sandbox stands once it has taken over."""
        self._directory = live.runtime.machine(head.machine)
        self._launched = False
        self._monitor: Monitor | None = None
        self._session: Session | None = None
        self._run: RunState | None = None
        self._reserved: PendingJson | None = None
        self.rehearsed = False
        """Whether its guest has gone through its first steps, and its programs stand still."""

    @classmethod
    def new(cls, live: Live, node: Node) -> Self:
        """One that is still to be launched. Raises QemuDiedError if all has ended meanwhile."""
        taken = set(live.runtime.names())
        if not taken:
            raise QemuDiedError("QEMU ended before another one could take over")
        name = next(str(n) for n in range(2, 10**6) if str(n) not in taken)
        return cls(live, node, Head.going_on(node, machine=name))

    async def launch(self, parts: Parts) -> None:
        """Start it, standing still, with the checkpoint's memory."""
        run = await self._start(parts)
        await self.adopt(run)
        assert self._monitor is not None
        await restore.load_memory(
            self._live.place, self._directory, self._node, self._monitor, run.qemu_pid
        )

    async def adopt(self, run: RunState, *, timeout: float = CONNECT_TIMEOUT_S) -> None:
        """It has been started already, as ``run`` tells. Raises MachineError if it has ended, or
        does not answer within ``timeout`` seconds."""
        self._launched = True
        self._run = run
        self._monitor = await Monitor.connect(self._directory, timeout=timeout)
        # Nobody else uses this machine yet, so no lease is needed.
        self._session = await dial(self._directory.agent_socket(self._node.port))

    @property
    def run(self) -> RunState:
        """Once it was started."""
        assert self._run is not None
        return self._run

    async def rehearse(self) -> None:
        """Have its guest go through its first steps, then stand still again (rehearsal.py).

        Raises AgentError, HistoryError, MachineError, TimeoutError; it is of no use then.
        """
        assert self._monitor is not None
        async with asyncio.timeout(rehearsal.LIMIT_S):
            await rehearsal.hold_packets(self._live.record, self._monitor)
            # Its programs run until the agent has answered, so that is asked only once.
            session = await self._wake(again=rehearsal.give_up)
            await rehearsal.go_through(session, self._live.record, self._node)
            await self._monitor.execute("stop")
        self.rehearsed = True

    async def _wake(self, *, again: Callable[[], Awaitable[Session]]) -> Session:
        """Let its guest run; ``again`` as for `restore.wake`."""
        assert self._monitor is not None
        assert self._session is not None
        if not self.rehearsed:
            await restore.load_devices(self._live.place, self._node, self._monitor)
        self._session = await restore.wake(self._session, again, self._node, self._monitor)
        return self._session

    async def let_wait(self, seconds: float) -> None:
        """Have it wait for somebody who adopts it, without this client."""
        await self._let_go()
        await self._live.keeper.ask("keep", name=self.head.machine, seconds=seconds)

    async def _start(self, parts: Parts) -> RunState:
        live, place = self._live, self._live.place
        await in_thread_to_the_end(lambda: restore.check_disk_and_image(place, self._node))
        below = self._node.layers[-1]
        await in_thread_to_the_end(lambda: add_layer(place, self.head.top, below=below))
        ports = Ports(forwards=(), http=None)
        machine = plan_machine(live.record, parts, self.head, ports, place, at=self._node)
        with map_os_errors(live.runtime.root):
            listeners = Listeners(live.runtime.make(self.head.machine))
        try:
            numbers = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + len(listeners.descriptors))
            qmp = len(listeners.inherited.qmp)
            listeners.inherited = Inherited(qmp=numbers[:qmp], agent=numbers[qmp:])
            binaries = parts.binaries
            words = [*binaries.firmware_arguments, *plan(machine, listeners.inherited)]
            reply = await live.keeper.ask(
                "launch",
                name=self.head.machine,
                argv=[str(binaries.system), *words],
                descriptors=list(numbers),
                pass_descriptors=listeners.descriptors,
            )
            self._launched = True
        finally:
            listeners.close()
        return make_run_state(
            machine,
            parts,
            listeners,
            pids=(live.run.keeper_pid, int(reply["pid"])),
            token=self._node.token,
            run=self.head.run or new_id(),
            origin=self._node.tag,
        )

    async def _connect(self) -> Session:
        socket = self._directory.agent_socket(self._node.port)
        return await connect(socket, self._node.token, timeout=restore.HELLO_S)

    async def reserve(self) -> None:
        """Have the room for what `take_over` writes, whatever else fills the disk meanwhile. Comes
        when the old one's disk is frozen. Raises DiskSpaceError, HistoryError, PathError."""
        history = self._live.history
        self._reserved = await in_thread_to_the_end(
            lambda: history.prepare_head(replace(self.head, previous=history.head()))
        )

    async def take_over(self) -> None:
        """Go on in this one; the old one stands still."""
        live = self._live
        assert self._reserved is not None
        assert self._monitor is not None
        if self.rehearsed:
            await rehearsal.release_packets(live.record, self._monitor)
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
        )
        publish_state(self._directory, run)
        await in_thread_to_the_end(self._reserved.put)
        await live.keeper.ask("promote", name=self.head.machine)
        # If that fails, whoever works on the sandbox next does it (`History.settle`), or its end.
        with contextlib.suppress(HostError):
            await in_thread_to_the_end(lambda: live.history.set_head(self.head))
        await self._let_go()

    async def _move_forwards(self) -> None:
        """The forwarded ports lead here from now on: two processes cannot have them."""
        assert self._monitor is not None
        for rule in plan_forwards(self._live.run):
            host, _, _ = rule.partition("-")
            await human(self._live.monitor, f"hostfwd_remove net0 {host}")
            await human(self._monitor, f"hostfwd_add net0 {rule}")

    async def _let_go(self) -> None:
        """Close what this client has open of it. Idempotent."""
        if self._session is not None:
            self._session.close()
        if self._monitor is not None:
            await self._monitor.close()

    async def remove(self) -> None:
        """End it, as if it had never been. Its layer goes with the next sweep, unless the head
        knows it."""
        live = self._live
        if self._reserved is not None:
            self._reserved.drop()
        await self._let_go()
        if self._launched:
            with contextlib.suppress(MachineError):
                await live.keeper.ask("kill", name=self.head.machine)
        if await is_keeper_gone(live):
            # Nobody else would end it.
            end_strays(live.place, but=live.run.qemu_pid)
        remove_tree(self._directory.root)

    def is_current(self) -> bool:
        """Whether it is the sandbox's machine: from then on there is no way back."""
        return self._live.runtime.current().name == self.head.machine


async def is_keeper_gone(live: Live) -> bool:
    """Whether nobody looks after the sandbox's processes any more."""
    try:
        await live.keeper.ask("guard", on=not live.run.paused)
    except MachineError:
        return True
    return False


def plan_forwards(run: RunState) -> list[str]:
    """The rules of a machine's forwards, as QEMU's monitor takes them."""
    from quicksand.config import GUEST_IP
    from quicksand.qemu.command import AGENT_HTTP_PORT

    pairs = [*run.forwards]
    if run.http_port is not None:
        pairs.append((run.http_port, AGENT_HTTP_PORT))
    return [f"tcp:127.0.0.1:{host}-{GUEST_IP}:{guest}" for host, guest in pairs]


async def human(monitor: Monitor, line: str) -> None:
    """A command that QMP does not have. Its errors come as text in a successful reply."""
    said = str(await monitor.execute("human-monitor-command", **{"command-line": line})).strip()
    if said and "removed" not in said:
        raise MachineError(f"QEMU did not {line!r}: {said}")

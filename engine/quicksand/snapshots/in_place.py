"""A revert in the running QEMU: its guest's memory is rewritten, and the devices' state loaded,
while the guest stands still for some hundredths of a second.

Until `_commit` the present is untouched, and the guest can go on in it. From then on the guest is
another machine, whose own directory has sockets that are links to those of the same QEMU. So code
that compares machines sees another QEMU take over. Its mark ``unfinished`` says that the memory is
neither one state nor the other; it goes when the guest has answered. If the client dies before, the
keeper has the revert finished by a new QEMU (finisher.py).

There are two forms. A *warm* revert keeps the translations of QEMU's TCG except for the pages that
are written; in a *flushed* one QEMU forgets all of them, as it does by itself when it loads the
state of the processors' common part (device_load.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from quicksand.base.arch import Architecture
from quicksand.base.effort import best_effort
from quicksand.base.errors import HistoryError, HostError, MachineError, QemuDiedError
from quicksand.base.files import PendingJson, map_os_errors
from quicksand.base.lease import Lease, take_at_once
from quicksand.base.remedies import Remedy, Words
from quicksand.base.threads import both, in_thread_to_the_end, to_the_end
from quicksand.disks.images.boot_files import KERNEL_SUFFIX
from quicksand.guest.agent.link import AgentLink
from quicksand.mounts import devices as machine_devices
from quicksand.mounts import ninep
from quicksand.qemu import disconnecting
from quicksand.records.layout import QMP_MONITORS
from quicksand.records.nodes import Head, Node
from quicksand.records.registry import publish_state
from quicksand.snapshots import finisher, other_clients, restore, rewriting
from quicksand.snapshots.awakening import Awakening, Moments
from quicksand.snapshots.device_load import STATE_MAX, DeviceLoad
from quicksand.snapshots.guest_ram import GuestRam, Runs, split_runs, without_runs
from quicksand.snapshots.layers import add_layer
from quicksand.snapshots.memory_copying import Fate
from quicksand.snapshots.present import Present
from quicksand.snapshots.rewriting import Rewriting
from quicksand.snapshots.storing import find_image
from quicksand.snapshots.taking import RunningSandbox
from quicksand.snapshots.tier_choice import choose_tier

ANSWER_S = 30.0
"""Seconds for QEMU to change its disk and to load its devices' state; this takes some hundredths of
one."""

WAKE_S = 5.0
"""Seconds for which a cancellation waits for the guest's answer, which takes a twentieth of one. A
guest that does not answer would take minutes."""

CLOSE_S = 5.0
"""Seconds for QEMU to close the disks that were opened for a revert."""

PART = 4096
"""Pages of memory that are written at once."""

BOOTED = "the first revert after a boot needs one"

CONNECTIONS_MAX = 200
"""Connections in QEMU's network above which a new QEMU is worth its time. Each load leaves one
connection of each mounted share, with its buffer of up to 256 KiB, which QEMU never frees."""


async def why_not(live: RunningSandbox, node: Node) -> str:
    """The reason why the sandbox cannot be reverted to ``node`` in the running QEMU; "" if it
    apparently can. Raises HistoryError, MachineError."""
    head, machine, config = live.history.head(), live.machine, live.record.config
    tier = choose_tier(live.run.qemu_pid, features=live.hypervisor.features).way.tier
    facts = {
        "a revert before it was not finished": live.is_unfinished,
        "the sandbox is paused, because it took too much of the host": (
            machine.oversized.exists() or machine.disk_full.exists()
        ),
        f"the checkpoint is of the tier {node.tier.name!r}": not node.tier.has_pages,
        "the memory of QEMU cannot be written": tier is not node.tier,
        "the state of its devices is very large": (
            node.devices is not None and node.devices.size > STATE_MAX
        ),
        "this hypervisor loads a state only once": not live.hypervisor.features.loads_again,
        "the guest's processor is not an x86_64": (
            (config.arch or Architecture.host()) is not Architecture.X86_64
        ),
        "the sandbox has QEMU arguments of its own": bool(config.extra_qemu_args),
        # QEMU would write that kernel to the guest's memory again.
        BOOTED: any(word.endswith(KERNEL_SUFFIX) for word in live.run.qemu_command),
    }
    for why, is_so in facts.items():
        if is_so:
            return why
    if why := rewriting.why_not(live.history, head, live.run.run, node):
        return why
    if await live.hypervisor.count_connections() > CONNECTIONS_MAX:
        return "QEMU keeps many connections that have ended"
    if reasons := await live.hypervisor.why_unsavable():
        return f"the machine's state cannot be saved: {reasons[0]}"
    return await asyncio.to_thread(disconnecting.why_not, live.run.qemu_pid)


class InPlace:
    """One revert of a running sandbox; see `revert`."""

    def __init__(self, live: RunningSandbox, node: Node) -> None:
        self._live = live
        self._node = node
        self._before = live.history.head()
        going_on = Head.going_on(node, machine=live.runtime.new_name())
        self._head = replace(going_on, memory=self._before.memory)  # what QEMU maps stays mapped
        self._machine = live.runtime.machine(self._head.machine)
        self._old_machine = live.machine
        self._awakening = Awakening(self._machine, live.record, node)
        self._devices = DeviceLoad(live.place, node, live.hypervisor, live.run.accel)
        self._memory: Rewriting | None = None
        self._found: Runs = []
        """The pages of the memory that may differ."""
        self._reserved: PendingJson | None = None
        self._port: Lease | None = None
        """The lease of the agent's port at which this client has been since before the pause."""
        self._open_before: frozenset[str] = frozenset()
        self._old_top = ""
        self._generation: bytes | None = None
        """See `Hypervisor.generation`."""
        self._is_committed = False
        """Whether the present has been given up."""

    @property
    def why_flushed(self) -> str:
        """The reason why QEMU has forgotten its translations; "" if it has kept them."""
        return self._devices.why_flushed

    async def revert(self, present: Present, link: AgentLink | None) -> Moments:
        """Have the guest go on from the checkpoint. Its agent's connection becomes that of
        ``link``.

        Raises QuicksandError. Then either the guest goes on in the present, or the present is given
        up, though it is kept, and only a new QEMU can go on (`RunningSandbox.is_unfinished`).
        """
        live = self._live
        try:
            await live.keeper.ask("guard", on=not live.run.paused)
            await both(self._prepare(), present.prepare(Fate.OVERWRITTEN))
            await in_thread_to_the_end(self._reserve)
            await present.look()
            await to_the_end(self._cross(present, link), patience=WAKE_S)
        except BaseException:
            with best_effort("undo a revert that failed", live.log):
                await to_the_end(self._leave(present))
            raise
        await to_the_end(self._tidy(present))
        return self._awakening.moments(present.frozen_at)

    async def _cross(self, present: Present, link: AgentLink | None) -> None:
        """Pass from the present to the checkpoint."""
        ended = await to_the_end(self._go_back(present))
        await self._wake(ended, link)

    async def _go_back(self, present: Present) -> list[str]:
        """Restore the paused guest's state before the attempt. Returns as `_restore`."""
        await present.freeze()
        await both(self._find(present), present.secure())
        await self._commit(present)
        try:
            return await self._restore()
        finally:
            present.store()  # the memory no longer is the present

    # While the guest runs

    async def _prepare(self) -> None:
        """Open all files that are needed. Raises HistoryError naming a damaged file, HostError,
        MachineError."""
        await both(self._prepare_memory(), self._prepare_disk())
        await in_thread_to_the_end(self._make_machine)
        # While the guest is paused, QEMU does not notice clients coming to a port or leaving it. So
        # either this client is at the port already, or it takes the place of another one.
        port = self._old_machine.agent_socket(self._node.port)
        with map_os_errors(port):
            self._port = take_at_once(port)
        if self._port is not None:
            await self._awakening.dial()

    def _make_machine(self) -> None:
        """Make the directory of the machine that the guest will be."""
        live, node = self._live, self._node
        with map_os_errors(live.runtime.root):
            made = live.runtime.make(self._machine.name)
            for number in range(QMP_MONITORS):
                # Made now, so that no client makes one in the other directory only.
                live.machine.qmp_socket(number).with_suffix(".lock").touch(mode=0o600)
            for entry in os.scandir(live.machine.root):
                if _goes_along(entry.name):
                    os.link(entry.path, made.root / entry.name)
        directories = machine_devices.read(live.machine)
        if directories:
            for device in directories:
                ninep.require_there(device)
            machine_devices.note(made, [replace(device, mounted=False) for device in directories])
        if node.shares:
            made.past_shares.touch(mode=0o600)
        assert self._head.run is not None
        self._run = replace(
            live.run, run=self._head.run, origin=node.tag, token=node.token, paused=False
        )
        publish_state(made, self._run)
        finisher.write_mark(made, live.record, node)

    async def _prepare_memory(self) -> None:
        """Open the checkpoint's memory and the state of its devices."""
        live, node, before = self._live, self._node, self._before
        await asyncio.to_thread(restore.check_disk_and_image, live.place, node)
        ram = await GuestRam.locate(
            live.hypervisor,
            live.run.qemu_pid,
            find_image(live.place, before.memory),
            live.record.config.memory_bytes,
            str(node.shape["arch"]),
        )
        self._memory = await in_thread_to_the_end(
            lambda: Rewriting(live.history, node, ram, before, self._old_machine, live.run.run)
        )
        await self._devices.prepare(live.machine, self._memory.expected)
        self._generation = await live.hypervisor.generation()

    async def _prepare_disk(self) -> None:
        """Open the new layer, and the layers that will lie below it."""
        live, layers, top = self._live, self._node.layers, self._head.top
        self._open_before = await live.hypervisor.open_layers()
        if layers[0] not in self._open_before:
            raise MachineError("the checkpoint's disk has nothing in common with that of its QEMU")
        await in_thread_to_the_end(lambda: add_layer(live.place, top, below=layers[-1]))
        for below, layer in pairwise(layers):
            if layer not in self._open_before:
                await live.hypervisor.open_layer(layer, writable=False, below=below)
        await live.hypervisor.open_layer(top, writable=True)

    def _reserve(self) -> None:
        """Reserve disk space for the new head. The present head is final."""
        history = self._live.history
        self._reserved = history.prepare_head(replace(self._head, previous=history.head()))

    # While it is paused

    async def _find(self, present: Present) -> None:
        """Find the pages to write. Raises MachineError if that is impossible."""
        assert self._memory is not None
        self._found = await asyncio.to_thread(self._memory.find, present.taken)
        self._devices.require_reachable(self._found)

    async def _commit(self, present: Present) -> None:
        """Give up the present, which is frozen. Raises MachineError, HostError: then it is not
        given up."""
        live = self._live
        assert self._reserved is not None
        now = await present.devices()
        self._old_top = await present.top_layer()
        await in_thread_to_the_end(lambda: self._devices.set_clocks(now))
        await in_thread_to_the_end(self._reserved.put)
        try:
            # A cancelled request would close the link, and nobody would know whether it was served.
            await to_the_end(live.keeper.ask("turn", name=self._machine.name))
        except MachineError:
            if live.runtime.current().name != self._machine.name:
                raise
        self._is_committed = True
        live.machine, live.run = self._machine, self._run

    async def _restore(self) -> list[str]:
        """Restore the guest's state. Returns the agent's ports at which other clients were, by
        their sockets' names. Raises MachineError, AgentError, HostError: then only a new QEMU can
        go on."""
        live = self._live
        assert self._memory is not None
        assert self._head.run is not None
        memory, run = self._memory, self._head.run
        ended = await asyncio.to_thread(
            other_clients.end_all, live.run, live.runtime, self._old_machine, self._port
        )
        if self._port is None:
            await self._awakening.dial()
        await self._write_memory(memory, self._found)
        async with self._answering():
            await live.hypervisor.pivot(self._old_top, self._head.top)
            await live.hypervisor.put_below(self._head.top, self._node.layers[-1])
            await self._devices.load()
        await in_thread_to_the_end(lambda: memory.finish(self._machine, run, self._generation))
        return ended

    @contextlib.asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """Kill QEMU if it does not obey in time within the block. Raises QemuDiedError."""
        try:
            async with asyncio.timeout(ANSWER_S):
                yield
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._live.run.qemu_pid, signal.SIGKILL)
            raise QemuDiedError(
                f"QEMU hung while the sandbox was reverted to {self._node.tag!r}, and was ended",
                hint=Words(
                    Remedy("start_at", at=self._node.id, name=self._live.record.name),
                    " resumes there",
                ),
            ) from None

    async def _wake(self, ended: Sequence[str], link: AgentLink | None) -> None:
        """Resume the guest and have it answer; ``ended``: as from `_restore`. Raises as that."""
        live = self._live
        token = await self._awakening.wake(live.hypervisor)
        live.run = replace(live.run, token=token)
        await in_thread_to_the_end(lambda: self._tell(ended))
        self._awakening.hand_over(link)

    async def _write_memory(self, memory: Rewriting, found: Runs) -> None:
        """Write the pages that differ. While some are written, QEMU forgets its translations of the
        next ones."""
        filler = self._devices.filler
        # Pages that will hold zeros are filled with them at once.
        zeros = [] if filler is None else await asyncio.to_thread(memory.zeros_of, found)
        parts = [(part, 0) for part in split_runs(zeros, lambda: PART)]
        others = split_runs(without_runs(found, zeros), lambda: PART)
        before: tuple[Runs, int | None] = [], filler
        for following in (*parts, *((part, filler) for part in others), ([], filler)):
            forgotten = partial(memory.write, *before)
            await both(
                self._devices.forget(following[0], memory.size, following[1]),
                in_thread_to_the_end(forgotten),
            )
            before = following
        await in_thread_to_the_end(lambda: memory.watch(found))

    def _tell(self, ended: Sequence[str]) -> None:
        """Tell the guest of the lost clients, and everybody that the guest is whole."""
        live, ours = self._live, self._machine.agent_socket(self._node.port)
        paths = [self._machine.root / name for name in ended]
        other_clients.tell_of([path for path in paths if path != ours], live.log)
        publish_state(self._machine, live.run)
        finisher.pass_mark(self._machine)

    # Afterwards

    async def _tidy(self, present: Present) -> None:
        """Close everything no longer needed, write a head that forgets the present, and wait until
        the present is stored. Raises nothing of its own."""
        live = self._live
        await self._close()
        with best_effort("write the new head", live.log, HostError, HistoryError):
            await in_thread_to_the_end(lambda: live.history.set_head(self._head))
        with best_effort("close layers that are needed no more", live.log):
            needed = {*self._node.layers, self._head.top}
            above_first = [self._old_top, self._before.top, *reversed(self._before.layers)]
            others = await live.hypervisor.open_layers() - needed
            known = [layer for layer in above_first if layer in others]
            await live.hypervisor.close_layers([*(others - {*known}), *known])
        with best_effort("remove the directory of the machine before", live.log):
            await asyncio.to_thread(live.runtime.remove_machine, self._old_machine.name)
        await present.settle()
        with best_effort("tell the keeper that the revert is done", live.log):
            finisher.remove_marks(self._machine)
            await live.keeper.ask("guard", on=False)

    async def _leave(self, present: Present) -> None:
        """Clean up after a failure or a cancellation."""
        live = self._live
        if self._is_committed and live.is_unfinished:
            with best_effort("pause the guest that is not right", live.log):
                async with asyncio.timeout(CLOSE_S):
                    await live.hypervisor.pause()
            await self._close()
            return
        if self._is_committed:
            await self._tidy(present)
            return
        await (present.discard() if await live.resume() else present.leave())
        await self._give_up()
        await live.keeper.ask("guard", on=False)

    async def _give_up(self) -> None:
        """Undo the preparation. Raises nothing of its own."""
        live = self._live
        await self._close()
        added = [self._head.top, *reversed(self._node.layers)]
        with best_effort("close the layers that were opened", live.log):
            await live.hypervisor.close_layers([x for x in added if x not in self._open_before])
        with best_effort("write the head of the old machine", live.log):
            await in_thread_to_the_end(live.settle_head)
        with best_effort("remove the directory of the new machine", live.log):
            await asyncio.to_thread(live.runtime.remove_machine, self._machine.name)

    async def _close(self) -> None:
        """Close this client's connections and files. Raises nothing of its own."""
        steps: list[Callable[[], object]] = [self._awakening.close]
        if self._port is not None:
            steps.append(self._port.release)
        if self._memory is not None:
            steps.append(self._memory.close)
        if self._reserved is not None:
            steps.append(self._reserved.drop)
        for step in steps:
            with best_effort("close what a revert had open", self._live.log):
                step()
        with best_effort("close the devices' state", self._live.log):
            async with asyncio.timeout(CLOSE_S):
                await self._devices.close()


def _goes_along(name: str) -> bool:
    """Whether a file of a machine's directory belongs to its QEMU, and so also to the guest's next
    machine: the sockets, the locks of those whose clients stay connected, and the count of servers
    of mounts."""
    is_monitors = name.startswith("qmp") and name.endswith(".lock")
    return name.endswith(".sock") or is_monitors or name in ("input.lock", "smb.starts")

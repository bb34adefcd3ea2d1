"""Taking a checkpoint: memory, devices and disk are captured in one pause of the VM.

The disk is handled alike in every tier. The memory is handled by the tier: paged.py and internal.py
each define a `Capture` and a `Way`. `docs/internals/snapshots.md` shows it in pictures.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from quicksand.base.effort import best_effort
from quicksand.base.errors import MachineError, StateError
from quicksand.base.files import map_os_errors, sync_dir
from quicksand.base.hypervisor import Features, Hypervisor
from quicksand.base.lease import is_leased
from quicksand.base.removal import remove
from quicksand.base.threads import both, in_thread_to_the_end, to_the_end
from quicksand.mounts.shares import may_be_mounted
from quicksand.records.layout import AGENT_PORTS, MachineDir, SandboxDir
from quicksand.records.nodes import Head, Node, new_id
from quicksand.records.sandboxes import RunState
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import Pivot, seal_disk
from quicksand.snapshots.memory_copying import Fate, Taken
from quicksand.snapshots.stepwise import THREAD
from quicksand.snapshots.storing import memory_files
from quicksand.things.checkpoint import Tier


class Capture(ABC):
    """One checkpoint in the making. The caller holds the history's lock.

    Call `prepare` while the VM runs, then `freeze` (the pause), `store` and `advance_head`; call
    `discard` if any of them fails.
    """

    tier: ClassVar[Tier]

    def __init__(
        self,
        history: History,
        run: RunState,
        hypervisor: Hypervisor,
        machine: MachineDir,
        *,
        memory_bytes: int,
        arch: str,
        why: str = "",
    ) -> None:
        """``run`` is the state of ``machine``, which ``hypervisor`` runs. ``why`` is the reason why
        no better tier is used; "" for the best one."""
        self.id = new_id()
        self.pause_s = 0.0
        self._place = history.place
        self._history = history
        self._run = run
        self._hypervisor = hypervisor
        self._machine = machine
        self._size = memory_bytes
        self._arch = arch
        self._why = why
        self._disk = Pivot(history, hypervisor)
        self._port = 0
        self._shares = True
        self._fate = Fate.RUNS_ON

    @property
    def _head(self) -> Head:
        """The head before this checkpoint, once `prepare` has begun."""
        return self._disk.before

    @property
    def directory(self) -> Path:
        return self._place.checkpoints / self.id

    @property
    def devices(self) -> Path:
        """The path of the devices' state from the pause on, in the tier "pages"."""
        return self.directory / "devices"

    @property
    def taken(self) -> Taken | None:
        """The captured pages, once the guest is frozen; None in tiers that write all memory."""
        return None

    @property
    def layer(self) -> str:
        """The layer to which the guest writes from the pause on."""
        return self._disk.layer

    async def prepare(self, *, fate: Fate = Fate.RUNS_ON) -> None:
        """Do everything that is possible before the pause. ``fate``: what happens to the guest
        afterwards. Raises HistoryError, HostError, MachineError."""
        self._fate = fate
        with map_os_errors(self.directory):
            self.directory.mkdir(mode=0o700)
        await self._disk.find_head()
        await both(self._disk.prepare(), self._prepare_memory())

    @abstractmethod
    async def _prepare_memory(self) -> None:
        """Prepare the capture of the memory while the VM runs. Raises HostError, MachineError."""

    async def freeze(self, *, resume: bool) -> None:
        """Pause the VM and capture its state; with ``resume`` the VM then runs again.

        A cancellation takes effect only when this is done. Raises StateError, HostError,
        MachineError; the VM then runs again.
        """
        try:
            await to_the_end(self._freeze(resume))
        except asyncio.CancelledError:
            # The caller learns of the cancellation, even if QEMU has ended meanwhile.
            with best_effort("resume the guest", self._place.engine_log):
                if not resume and not self._run.paused:
                    await to_the_end(self._hypervisor.resume())
            raise

    async def _freeze(self, resume: bool) -> None:
        await self._copy_before()
        await asyncio.to_thread(self._look_at_sockets)
        started = time.perf_counter()
        await self._hypervisor.pause()
        done = False
        try:
            await self._copy_paused()
            if await self._hypervisor.is_running():
                raise MachineError("somebody resumed the sandbox while its checkpoint was taken")
            done = True
        finally:
            if (resume or not done) and not self._run.paused:
                await self._hypervisor.resume()
            self.pause_s += time.perf_counter() - started

    async def _copy_before(self) -> None:  # noqa: B027
        """Copy memory ahead of the pause where the tier can do that; by default nothing."""

    @abstractmethod
    async def _copy_paused(self) -> None:
        """Capture memory, devices and disk while the VM is paused. Raises MachineError,
        HostError."""

    @contextlib.asynccontextmanager
    async def _briefly_paused(self) -> AsyncIterator[None]:
        """Pause the VM within the block, unless it is paused."""
        if self._run.paused:
            yield
            return
        started = time.perf_counter()
        await self._hypervisor.pause()
        try:
            yield
        finally:
            await self._hypervisor.resume()
            self.pause_s += time.perf_counter() - started

    async def store(
        self, *, tag: str, note: str, tier_note: str, shape: dict[str, Any], **marks: bool
    ) -> Node:
        """Write what was captured to disk and commit the checkpoint. ``marks`` may set ``auto`` and
        ``hidden`` (see `Node`). Raises HostError, HistoryError."""
        return await in_thread_to_the_end(lambda: self._store(tag, note, tier_note, shape, marks))

    def _store(
        self, tag: str, note: str, tier_note: str, shape: dict[str, Any], marks: dict[str, bool]
    ) -> Node:
        # Syncing the files takes most of the time, and the disk can sync several at once.
        with ThreadPoolExecutor(1, THREAD) as pool:
            merge = not marks.get("hidden", False)
            sealing = pool.submit(seal_disk, self._place, self._disk.frozen, merge=merge)
            memory = self._store_memory()
            sync_dir(self._place.memory)
            sync_dir(self.directory)
            layers = sealing.result()
        memory |= {"tier": self.tier, "tier_note": tier_note or self.note, "layers": layers}
        node = self._describe(tag, note, shape, marks, memory)
        self._history.commit(node)
        return node

    def _describe(
        self,
        tag: str,
        note: str,
        shape: dict[str, Any],
        marks: dict[str, bool],
        stored: dict[str, Any],
    ) -> Node:
        """Return its record; ``stored``: the fields that name its files."""
        return Node(
            id=self.id,
            tag=tag,
            parent=self._history.find_visible(self._head.node),
            created=time.time(),
            note=note,
            auto=marks.get("auto", False),
            hidden=marks.get("hidden", False),
            pinned=False,
            pause_s=self.pause_s,
            shape=shape,
            token=self._run.token,
            owner=self._place.root.name,
            shares=self._shares,
            port=self._port,
            **stored,
        )

    def _look_at_sockets(self) -> None:
        """Find a port of the agent that has a client now (see `Node.port`), and whether the guest
        may have mounts."""
        sockets = map(self._machine.agent_socket, range(AGENT_PORTS))
        self._port = next((port for port, socket in enumerate(sockets) if is_leased(socket)), 0)
        self._shares = may_be_mounted(self._machine)

    @property
    @abstractmethod
    def note(self) -> str:
        """The reason why the checkpoint is not taken in a better way; "" for the best."""

    @abstractmethod
    def _store_memory(self) -> dict[str, Any]:
        """Write memory and devices to disk; returns the fields of `Node` that describe them."""

    @abstractmethod
    async def advance_head(self, node: Node) -> None:
        """Write a head that descends from the new checkpoint. Raises HostError."""

    async def follow(self, node: Node) -> None:
        """Let the running machine read the checkpoint's layers instead of its own if they are
        fewer: with hundreds of layers a pause would take longer."""
        if node.layers != self._disk.frozen:
            # If this fails, QEMU keeps its layers: before 6.1 it cannot replace them, and it
            # refuses a layer above one of which a client that died did not tell it.
            with best_effort(
                "read the merged layers", self._place.engine_log, MachineError, StateError
            ):
                await self._disk.follow(node.layers)

    async def discard(self) -> None:
        """Remove the files that a failed attempt has left."""
        await asyncio.to_thread(self._discard_files)
        await self._disk.undo()

    async def forget(self) -> None:
        """Remove the files of a checkpoint that could not be stored, but leave the disk's layers
        as they are."""
        await asyncio.to_thread(self._discard_files)

    def _discard_files(self) -> None:
        (self.directory / "node.json").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the next sweep removes the rest
            remove(self._place.root, part=f"{self.directory.parent.name}/{self.id}")
        for path in memory_files(self._place, self.id):
            path.unlink(missing_ok=True)


LoadMemory = Callable[[SandboxDir, MachineDir, Node, Hypervisor, int], Awaitable[None]]
LoadDevices = Callable[[SandboxDir, Node, Hypervisor], Awaitable[None]]
Track = Callable[[SandboxDir, MachineDir, Node, Hypervisor, RunState], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to take checkpoints of one tier, and to continue from one in a QEMU."""

    tier: Tier
    capture: type[Capture]
    fits: Callable[[Features], bool]
    """Whether a hypervisor can do what the tier needs."""
    refusal: Callable[[int | None], tuple[str, str]]
    """Called with QEMU's process id, or None for any QEMU of this user. Returns why the tier is not
    possible ("" if it is), and a hint on how to make it possible."""
    note: Callable[[int | None], str]
    """Returns why pauses are longer than they could be, or "". Parameter as for `refusal`."""
    copied: Callable[[str], str]
    """Called with that note; returns, in words for people, what a pause copies."""
    load_memory: LoadMemory
    """Loads a checkpoint's memory into a fresh QEMU, given its machine's directory and process id.
    Raises HistoryError naming a damaged file, MachineError."""
    load_devices: LoadDevices
    """Loads the devices' state, if it did not come with the memory; the VM is paused afterwards.
    Raises HistoryError, MachineError."""
    track: Track | None = None
    """Starts tracking the guest's writes, if possible, so that the run's next checkpoint stores
    only these. QEMU has exactly the checkpoint's memory. Raises MachineError. None in a tier whose
    checkpoints each have all of the memory."""

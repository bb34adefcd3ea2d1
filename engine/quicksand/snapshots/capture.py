"""Taking a checkpoint, tier "pages": one pause for memory, devices and disk.

In the pause pages are only copied to memory that is warm already (copying.py); what is new among
them is found and written after the VM goes on (storing.py). `docs/internals/snapshots.md` tells it
with pictures.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from quicksand.host.files import map_os_errors, sync_dir
from quicksand.host.lease import is_leased
from quicksand.host.threads import in_thread_to_the_end
from quicksand.layout import AGENT_PORTS, MachineDir
from quicksand.planning import check_space
from quicksand.qemu.qmp import Monitor
from quicksand.registry import RunState
from quicksand.snapshots.copying import Copier, Copy
from quicksand.snapshots.firmware import find_firmware, keep_firmware
from quicksand.snapshots.guest_ram import GuestRam
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import seal_layers
from quicksand.snapshots.pages import PageIndex, write_file
from quicksand.snapshots.pivot import Pivot
from quicksand.snapshots.records import PAGES, File, Head, Node, new_id
from quicksand.snapshots.storing import Storage, Stored, find_image, memory_files


class Capture:
    """One checkpoint in the making. The caller holds the history's lock.

    `prepare` while the VM runs, `freeze` for the pause, `store` after it; `discard` if any fails.
    The disk is the same work in every tier; what is done for the memory has methods of its own,
    which `internal.InternalCapture` replaces.
    """

    tier = PAGES

    def __init__(
        self,
        history: History,
        run: RunState,
        monitor: Monitor,
        machine: MachineDir,
        *,
        memory_bytes: int,
        arch: str,
        why: str = "",
    ) -> None:
        """``run`` is that of ``machine``, to which ``monitor`` is connected; ``why`` it is of no
        better tier."""
        self.id = new_id()
        self.pause_s = 0.0
        self._place = history.place
        self._history = history
        self._run = run
        self._monitor = monitor
        self._machine = machine
        self._size = memory_bytes
        self._arch = arch
        self._why = why
        self._disk = Pivot(history, run, monitor)
        self._copy: Copy | None = None
        self._stored: Stored | None = None
        self._port = 0

    @property
    def _head(self) -> Head:
        """Where the sandbox stood, once `prepare` has looked."""
        return self._disk.before

    @property
    def directory(self) -> Path:
        return self._place.checkpoints / self.id

    async def prepare(self) -> None:
        """All that can be done before the pause. Raises HistoryError, HostError, MachineError."""
        with map_os_errors(self.directory):
            self.directory.mkdir(mode=0o700)
        await self._disk.prepare()
        await self._prepare_memory()

    async def _prepare_memory(self) -> None:
        image = find_image(self._place, self._head.memory)
        self._ram = await GuestRam.locate(
            self._monitor, self._run.qemu_pid, image, self._size, self._arch
        )
        self._rom = await find_firmware(self._monitor, self._run.qemu_pid, self._arch)
        await in_thread_to_the_end(self._prepare_copy)

    def _prepare_copy(self) -> None:
        self._storage = Storage(
            self._history, self.id, self._head, run=self._run.run, size=self._size
        )
        known = self._storage.find_known()
        self._copier = Copier(self._ram, self._machine.tracked, self._run.run, known)
        check_space(self._place.memory, self._copier.prepare())

    async def freeze(self, *, resume: bool) -> None:
        """The pause: afterwards the VM runs again, or stands still unless ``resume``.

        Runs to its end even if it is cancelled. Raises StateError, MachineError; the VM goes on.
        """
        task = asyncio.create_task(self._freeze(resume), name="quicksand-freeze")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait((task,))
            if not resume and not self._run.paused and not task.exception():
                await self._monitor.execute("cont")
            raise

    async def _freeze(self, resume: bool) -> None:
        await self._copy_before()
        self._port = await asyncio.to_thread(self._find_port)
        started = time.perf_counter()
        await self._monitor.execute("stop")
        done = False
        try:
            await self._copy_instant()
            done = True
        finally:
            if (resume or not done) and not self._run.paused:
                await self._monitor.execute("cont")
            self.pause_s += time.perf_counter() - started

    async def _copy_before(self) -> None:
        """What of the memory can be copied before the pause."""
        if not self._run.paused:
            await self._copier.copy_before(self._instant)

    async def _copy_instant(self) -> None:
        """Memory, devices and disk of this instant."""
        copying = asyncio.to_thread(self._copy_pages)
        # Neither goes on after the other has failed and the VM runs again.
        found = await asyncio.gather(copying, self._freeze_rest(), return_exceptions=True)
        for failed in (result for result in found if isinstance(result, BaseException)):
            raise failed

    @contextlib.asynccontextmanager
    async def _instant(self) -> AsyncIterator[None]:
        """The VM stands still."""
        started = time.perf_counter()
        await self._monitor.execute("stop")
        try:
            yield
        finally:
            await self._monitor.execute("cont")
            self.pause_s += time.perf_counter() - started

    async def _freeze_rest(self) -> None:
        """The devices' state and the disk, while the memory is copied."""
        path = self.directory / "devices"
        await self._monitor.execute("xen-save-devices-state", filename=str(path), live=False)
        await self._disk.turn()

    def _copy_pages(self) -> None:
        self._copy = self._copier.copy_rest()

    async def store(
        self, *, tag: str, note: str, tier_note: str, shape: dict[str, Any], **marks: bool
    ) -> Node:
        """Write what was copied and commit the checkpoint, ``auto`` or ``hidden``. Raises
        HostError, HistoryError."""
        return await in_thread_to_the_end(lambda: self._store(tag, note, tier_note, shape, marks))

    def _store(
        self, tag: str, note: str, tier_note: str, shape: dict[str, Any], marks: dict[str, bool]
    ) -> Node:
        memory = self._store_memory()
        layers = self._disk.frozen
        seal_layers(self._place, layers)
        sync_dir(self._place.memory)
        sync_dir(self.directory)
        node = Node(
            id=self.id,
            tag=tag,
            parent=self._history.find_visible(self._head.node),
            created=time.time(),
            note=note,
            tier=self.tier,
            tier_note=tier_note or self.note,
            auto=marks.get("auto", False),
            hidden=marks.get("hidden", False),
            pinned=False,
            pause_s=self.pause_s,
            layers=layers,
            shape=shape,
            token=self._run.token,
            owner=self._place.root.name,
            port=self._port,
            **memory,
        )
        self._history.commit(node)
        return node

    def _find_port(self) -> int:
        """One that has a client now."""
        sockets = map(self._machine.agent_socket, range(AGENT_PORTS))
        return next((port for port, socket in enumerate(sockets) if is_leased(socket)), 0)

    @property
    def note(self) -> str:
        """Why the checkpoint is not made in a better way."""
        return self._copier.note

    def _store_memory(self) -> dict[str, Any]:
        """Bring memory and devices to the disk; returns the fields of `Node` that tell of them."""
        devices = self._seal_devices()
        assert self._copy is not None
        stored = self._stored = self._storage.store(self._copy)
        rom = keep_firmware(self._rom, self._place.memory) if self._rom is not None else None
        index = write_file(
            self.directory / "pages.index", iter([PageIndex(self._size, stored.runs).encode()])
        )
        return {
            "bytes_written": stored.written + index.size + devices.size,
            "memory": stored.memory,
            "pages": stored.files,
            "index": index,
            "devices": devices,
            "firmware": rom,
            "image": stored.image,
        }

    def _seal_devices(self) -> File:
        """The device state as QEMU wrote it: synced, and known by its checksum."""
        path = self.directory / "devices"
        with map_os_errors(path):
            data = path.read_bytes()
            path.unlink()
        return write_file(path, iter([data]))

    async def advance_head(self, node: Node) -> None:
        """The sandbox stands on the new checkpoint."""
        assert self._stored is not None, "store comes first"
        head = Head(
            layers=node.layers,
            top=self._disk.layer,
            node=node.id,
            run=self._run.run,
            # What the run maps stays that, whatever image the checkpoint has.
            memory=self._head.memory,
            stored=self._stored.stored,
            machine=self._head.machine,
            waiting=self._head.waiting,
        )
        await in_thread_to_the_end(lambda: self._history.set_head(head))
        await asyncio.to_thread(self._copier.commit, node.id)

    async def discard(self) -> None:
        """Undo what a failed attempt has left."""
        await asyncio.to_thread(self._discard_files)
        await self._disk.undo()

    async def forget(self) -> None:
        """Undo the files of a checkpoint that could not be stored."""
        await asyncio.to_thread(self._discard_files)

    def _discard_files(self) -> None:
        (self.directory / "node.json").unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        for path in memory_files(self._place, self.id):
            path.unlink(missing_ok=True)

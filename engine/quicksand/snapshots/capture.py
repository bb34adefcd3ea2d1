"""Taking a checkpoint, tier "pages": one pause for memory, devices and disk.

In the pause pages are only copied to memory that is warm already (copying.py); what is new among
them is found and written after the VM goes on (storing.py). `docs/internals/snapshots.md` tells it
with pictures.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from quicksand.errors import HistoryError, MachineError, QuicksandError
from quicksand.host.files import map_os_errors, sync_dir
from quicksand.host.threads import in_thread_to_the_end
from quicksand.layout import MachineDir, layer_name
from quicksand.planning import check_space
from quicksand.qemu.qmp import Monitor
from quicksand.registry import RunState
from quicksand.snapshots.copying import Copier, Copy
from quicksand.snapshots.firmware import find_firmware, keep_firmware
from quicksand.snapshots.guest_ram import GuestRam
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import add_layer, seal_layers
from quicksand.snapshots.pages import PageIndex, write_file
from quicksand.snapshots.records import PAGES, File, Head, Node, new_id
from quicksand.snapshots.storing import Storage, Stored, find_image, memory_files

DISK = "/machine/peripheral/vda"
"""The guest's disk among QEMU's objects."""

OURS = "disk-"
"""Begins QEMU's names of the layers that checkpoints have added; the layer's id follows."""


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
        self._layer = new_id()
        self._before: Head | None = None
        """Where the sandbox stood, once `prepare` has looked."""
        self._node_name = ""
        """QEMU's name of the disk's active layer."""
        self._copy: Copy | None = None
        self._stored: Stored | None = None
        self._pivoted = False

    @property
    def _head(self) -> Head:
        assert self._before is not None, "prepare comes first"
        return self._before

    @property
    def directory(self) -> Path:
        return self._place.checkpoints / self.id

    async def prepare(self) -> None:
        """All that can be done before the pause. Raises HistoryError, HostError, MachineError."""
        self._before = await self._find_head()
        await in_thread_to_the_end(self._prepare_files)
        await self._prepare_memory()
        file: dict[str, Any] = {
            "driver": "file",
            "node-name": f"{OURS}{self._layer}-file",
            "filename": str(layer_name(self._layer)),
            "aio": "threads",
            "discard": "unmap",
        }
        layer: dict[str, Any] = {
            "driver": "qcow2",
            "node-name": f"{OURS}{self._layer}",
            "file": file["node-name"],
            "backing": None,
            "discard": "unmap",
            "detect-zeroes": "unmap",
        }
        for node in (file, layer):
            await self._monitor.execute("blockdev-add", **node)
        # From here on the new layer is the top one, whether QEMU writes to it already or not: an
        # empty layer changes nothing.
        top = replace(self._head, layers=(*self._head.layers, self._head.top), top=self._layer)
        await in_thread_to_the_end(lambda: self._history.set_head(top))

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

    async def _find_head(self) -> Head:
        """The head, with the layer that QEMU writes to in fact."""
        head = self._history.head()
        # Not by query-block: that tells the whole chain below it, cut off at some length.
        disk = await self._monitor.execute("qom-get", path=DISK, property="drive")
        self._node_name = str(disk)
        active = self._layer_of(self._node_name)
        if active == head.top:
            return head
        if head.layers and active == head.layers[-1]:
            return replace(head, layers=head.layers[:-1], top=active)
        raise HistoryError(f"QEMU writes to the layer {active}, which the head does not name")

    def _layer_of(self, node_name: str) -> str:
        """The layer that is QEMU's node of that name: one of ours, or the one it began with."""
        if node_name.startswith(OURS):
            return node_name.removeprefix(OURS)
        for word in self._run.qemu_command:
            if word.startswith("{"):
                node = json.loads(word)
                if node.get("node-name") == f"{node_name}-file":
                    return Path(node["filename"]).stem
        raise MachineError(f"QEMU writes to {node_name!r}, which is no layer")

    def _prepare_files(self) -> None:
        with map_os_errors(self.directory):
            self.directory.mkdir(mode=0o700)
        add_layer(self._place, self._layer, below=self._head.top)
        # What is unwritten now need not be written in the pause.
        top = self._place.layer(self._head.top)
        with map_os_errors(top):
            descriptor = os.open(top, os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

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
        await self._pivot()

    async def _pivot(self) -> None:
        """From here on the guest writes to the next layer."""
        await self._monitor.execute(
            "blockdev-snapshot", node=self._node_name, overlay=f"{OURS}{self._layer}"
        )
        self._pivoted = True

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
        layers = (*self._head.layers, self._head.top)
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
            **memory,
        )
        self._history.commit(node)
        return node

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
            top=self._layer,
            node=node.id,
            run=self._run.run,
            # What the run maps stays that, whatever image the checkpoint has.
            memory=self._head.memory,
            stored=self._stored.stored,
            machine=self._head.machine,
        )
        await in_thread_to_the_end(lambda: self._history.set_head(head))
        await asyncio.to_thread(self._copier.commit, node.id)

    async def discard(self) -> None:
        """Undo what a failed attempt has left. The frozen layer stays below the new one, if QEMU
        writes there already: that costs nothing but a file."""
        await asyncio.to_thread(self._discard_files)
        if self._before is not None and not self._pivoted:
            await asyncio.to_thread(self._history.set_head, self._before)
            for name in (f"{OURS}{self._layer}", f"{OURS}{self._layer}-file"):
                # It may not have got so far as to add them.
                with contextlib.suppress(QuicksandError):
                    await self._monitor.execute("blockdev-del", **{"node-name": name})
            self._place.layer(self._layer).unlink(missing_ok=True)

    async def forget(self) -> None:
        """Undo the files of a checkpoint that could not be stored."""
        await asyncio.to_thread(self._discard_files)

    def _discard_files(self) -> None:
        (self.directory / "node.json").unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        for path in memory_files(self._place, self.id):
            path.unlink(missing_ok=True)

"""The tier "internal": QEMU itself writes memory and devices as an internal snapshot.

QEMU stores a snapshot's memory in any qcow2 file that it is given (QMP ``snapshot-save``, QEMU 6.0
and later). Each checkpoint has a separate file for it, which is not attached to any device of the
guest. So the layers of the disk hold no memory, deleting a checkpoint deletes its memory, and
everything else (layers, clones, checksums) is as in the tier "pages".

The tier needs nothing of the host but QEMU. The VM is paused until all of its memory is written.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from quicksand.base.capacity import check_space
from quicksand.base.effort import best_effort
from quicksand.base.errors import DiskSpaceError, MachineError, QemuDiedError
from quicksand.base.hypervisor import Hypervisor
from quicksand.base.threads import in_thread_to_the_end
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.records.layout import MachineDir, SandboxDir
from quicksand.records.nodes import BLANK, Node
from quicksand.snapshots.capture import Capture, Way
from quicksand.snapshots.image import seal_image
from quicksand.snapshots.verified import Verified
from quicksand.things.checkpoint import INTERNAL

NODE = "state"
"""The hypervisor's name for a snapshot's file."""

DISK_SIZE = 1024 * 1024
"""Bytes of the empty disk in that file. QEMU stores a snapshot's memory behind the disk's end
(qcow2 specification, VM state)."""

LOADING_ROOM = 64 * 1024 * 1024
"""Bytes by which the file may grow while QEMU loads it (metadata, in practice some hundred KiB)."""


class InternalCapture(Capture):
    """A checkpoint of the tier "internal" in the making."""

    tier = INTERNAL

    @property
    def note(self) -> str:
        return f"QEMU's own snapshot: {self._why}"

    @property
    def _file(self) -> Path:
        return state_file(self._place, self.id)

    async def _prepare_memory(self) -> None:
        check_space(self._place.memory, self._size)
        await in_thread_to_the_end(lambda: create_overlay(self._file, backing=None, size=DISK_SIZE))
        await self._hypervisor.close_state(NODE)  # a client that was killed may have left it open
        await self._hypervisor.open_state(NODE, self._file)

    async def _freeze(self, resume: bool) -> None:
        try:
            await super()._freeze(resume)
        finally:
            await self._close()

    async def _close(self) -> None:
        await _close_file(self._hypervisor, self._place)

    async def _copy_paused(self) -> None:
        # The VM is already paused and the job leaves it paused, so the disk has the same moment.
        try:
            await self._hypervisor.save_state(NODE, self.id)
        except QemuDiedError:
            raise
        except MachineError as error:
            # QEMU reports a full disk as an input/output error.
            try:
                check_space(self._place.memory)
            except DiskSpaceError as full:
                raise full from error
            raise
        await self._disk.turn()

    def _store_memory(self) -> dict[str, Any]:
        state = seal_image(self._file, Verified.of_user())
        return {
            "bytes_written": self._file.stat().st_blocks * 512,
            "memory": BLANK,
            "pages": (),
            "index": None,
            "devices": None,
            "state": state,
        }

    async def advance_head(self, node: Node) -> None:
        here = self._head
        if not node.hidden:
            # The pages on disk belong to an earlier checkpoint, so no run may refer to them. A
            # hidden checkpoint leaves the head where it was.
            here = replace(here, node=node.id, run=None)
        head = replace(here, layers=node.layers, top=self._disk.layer)
        await in_thread_to_the_end(lambda: self._history.set_head(head))

    async def discard(self) -> None:
        await self._close()
        await super().discard()

    def _discard_files(self) -> None:
        super()._discard_files()
        self._file.unlink(missing_ok=True)


def state_file(place: SandboxDir, id_: str) -> Path:
    """The qcow2 file with a checkpoint's memory and devices."""
    return place.memory / f"{id_}.state"


async def _close_file(hypervisor: Hypervisor, place: SandboxDir) -> None:
    with best_effort("close a snapshot's file in QEMU", place.engine_log):
        await hypervisor.close_state(NODE)


async def load_snapshot(
    hypervisor: Hypervisor, place: SandboxDir, node: Node, scratch: Path
) -> None:
    """Load memory and devices from the file of ``node``, whose checksums were compared, into a QEMU
    that has not run yet.

    QEMU writes to the file it loads from, so it gets an overlay ``scratch``, which is removed
    afterwards. Raises ImageError, HostError, MachineError.
    """
    assert node.state is not None, "a checkpoint of this tier is a snapshot of QEMU's"
    path = place.memory / node.state.name
    check_qcow2(path)
    size = path.stat().st_size + LOADING_ROOM
    await in_thread_to_the_end(lambda: create_overlay(scratch, backing=path, size=size))
    try:
        await hypervisor.open_state(NODE, scratch, over=path)
        await hypervisor.load_state(NODE, node.id)
    finally:
        await _close_file(hypervisor, place)
        scratch.unlink(missing_ok=True)


async def _load_memory(
    place: SandboxDir, machine: MachineDir, node: Node, hypervisor: Hypervisor, pid: int
) -> None:
    await load_snapshot(hypervisor, place, node, machine.loading)


async def _load_devices(place: SandboxDir, node: Node, hypervisor: Hypervisor) -> None:
    """Nothing to do: the snapshot's devices were loaded with its memory."""


WAY = Way(
    tier=INTERNAL,
    capture=InternalCapture,
    fits=lambda features: features.whole_state,
    refusal=lambda _: ("", ""),
    note=lambda _: "",
    copied=lambda _: "all of the guest's memory that is not zeros",
    load_memory=_load_memory,
    load_devices=_load_devices,
)

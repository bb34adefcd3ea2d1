"""The tier "internal": memory and devices are a snapshot that QEMU itself writes and reads.

QEMU puts a snapshot's memory into any qcow2 file that it is given (QMP snapshot-save, from QEMU 6.0
on). Here that is a file of its own for each checkpoint, which no device of the guest has: so the
layers of the disk hold no memory, a checkpoint's memory goes with its file, and everything else
(layers, deleting, clones, checksums) is as in the tier "pages".

Needs nothing of the host but QEMU. The VM stands still until all of its memory is written.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from quicksand.errors import DiskSpaceError, MachineError, QemuDiedError, QuicksandError
from quicksand.host.threads import in_thread_to_the_end
from quicksand.images.overlay import create_overlay
from quicksand.images.qcow2 import check_qcow2
from quicksand.layout import SandboxDir
from quicksand.planning import check_space
from quicksand.qemu.jobs import run_job
from quicksand.qemu.qmp import Monitor
from quicksand.snapshots.capture import Capture
from quicksand.snapshots.image import seal_image
from quicksand.snapshots.records import BLANK, INTERNAL, Node
from quicksand.snapshots.verified import Verified

NODE = "state"
"""QEMU's names for the block nodes of a snapshot's file begin so."""

DISK_SIZE = 1024 * 1024
"""Bytes of the empty disk in that file: QEMU keeps a snapshot's memory behind the disk's end."""

LOADING_ROOM = 64 * 1024 * 1024
"""Bytes that QEMU may add to the file while it loads (its tables; some hundred KiB in fact)."""


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
        await _drop_nodes(self._monitor)  # those of a client that was killed
        await _add(self._monitor, NODE, self._file)

    async def _copy_before(self) -> None:
        """QEMU cannot begin before the pause."""

    async def _freeze(self, resume: bool) -> None:
        try:
            await super()._freeze(resume)
        finally:
            await _drop_nodes(self._monitor)

    async def _copy_instant(self) -> None:
        # The VM is stopped already, so the job leaves it so: the disk is of the same instant.
        try:
            await run_job(self._monitor, "snapshot-save", tag=self.id, vmstate=NODE, devices=[NODE])
        except QemuDiedError:
            raise
        except MachineError as error:
            # QEMU calls a full disk an input/output error.
            try:
                check_space(self._place.memory)
            except DiskSpaceError as full:
                raise full from error
            raise
        await _require_snapshot(self._monitor, self.id)
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
            # What is known of the memory's pages is of another checkpoint. One that nobody sees
            # changes nothing: the sandbox stands where it stood.
            here = replace(here, node=node.id, run=None)
        head = replace(here, layers=node.layers, top=self._disk.layer)
        await in_thread_to_the_end(lambda: self._history.set_head(head))

    async def discard(self) -> None:
        await _drop_nodes(self._monitor)
        await super().discard()

    def _discard_files(self) -> None:
        super()._discard_files()
        self._file.unlink(missing_ok=True)


def state_file(place: SandboxDir, id_: str) -> Path:
    """The file of a checkpoint's snapshot."""
    return place.memory / f"{id_}.state"


async def load_snapshot(monitor: Monitor, path: Path, node: Node, scratch: Path) -> None:
    """Load memory and devices into a QEMU that has not run yet. ``path`` was found whole.

    QEMU writes to a file that it loads from: it gets ``scratch`` over this one, which stays as it
    is. Raises ImageError, HostError, MachineError.
    """
    check_qcow2(path)
    size = path.stat().st_size + LOADING_ROOM
    await in_thread_to_the_end(lambda: create_overlay(scratch, backing=path, size=size))
    try:
        await _add(monitor, NODE, scratch, over=path)
        await _require_snapshot(monitor, node.id)
        await run_job(monitor, "snapshot-load", tag=node.id, vmstate=NODE, devices=[NODE])
    finally:
        await _drop_nodes(monitor)
        scratch.unlink(missing_ok=True)


async def _add(monitor: Monitor, name: str, path: Path, *, over: Path | None = None) -> None:
    """Give QEMU a qcow2 file; with ``over`` the file is that one, and what is written to it goes to
    ``path``."""
    await _add_file(monitor, f"{name}-file", path, read_only=False)
    inner = f"{name}-file"
    if over is not None:
        await _add_file(monitor, f"{name}-saved", over, read_only=True)
        await _add_qcow2(monitor, f"{name}-inner", inner, backing=f"{name}-saved")
        inner = f"{name}-inner"
    await _add_qcow2(monitor, name, inner, backing=None)


async def _add_file(monitor: Monitor, name: str, path: Path, *, read_only: bool) -> None:
    await monitor.execute(
        "blockdev-add",
        **{"driver": "file", "node-name": name, "filename": str(path), "aio": "threads"},
        # Published files are shared by many.
        **{"read-only": read_only, "locking": "off" if read_only else "auto"},
        # A checkpoint's file is synced when it is sealed, not in the pause.
        cache={"direct": False, "no-flush": True},
    )


async def _add_qcow2(monitor: Monitor, name: str, file: str, *, backing: str | None) -> None:
    await monitor.execute(
        "blockdev-add",
        **{"driver": "qcow2", "node-name": name, "file": file, "backing": backing},
        cache={"direct": False, "no-flush": True},
    )


async def _drop_nodes(monitor: Monitor) -> None:
    """Have QEMU close the files of snapshots. What cannot be closed now the next one tries."""
    for part in ("", "-inner", "-saved", "-file"):
        with contextlib.suppress(QuicksandError):
            await monitor.execute("blockdev-del", **{"node-name": f"{NODE}{part}"})


async def _require_snapshot(monitor: Monitor, tag: str) -> None:
    """Raise MachineError unless the file has a snapshot of that name with a VM's memory."""
    for node in await monitor.execute("query-named-block-nodes", flat=True):
        if node["node-name"] == NODE:
            for found in node["image"].get("snapshots", ()):
                if found["name"] == tag and found["vm-state-size"] > 0:
                    return
    raise MachineError(f"QEMU's file has no snapshot {tag}")

"""Freezing the disk of a running machine by giving it a new top layer, to which the guest then
writes (QMP ``blockdev-snapshot``)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from quicksand.base.errors import HistoryError, MachineError, QuicksandError, StateError
from quicksand.base.files import map_os_errors
from quicksand.base.regular import open_regular
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import layer_name
from quicksand.records.nodes import Head, new_id
from quicksand.records.sandboxes import RunState
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import add_layer

DISK = "/machine/peripheral/vda"
"""QOM path of the guest's disk in QEMU."""

OURS = "disk-"
"""Prefix of QEMU's node names for layers that were added while it ran; the layer's id follows."""


class Pivot:
    """The switch to one new top layer. The caller holds the history's lock.

    Call `prepare`, then `turn`; the VM may run or be paused. Call `undo` if anything fails.
    """

    def __init__(self, history: History, run: RunState, monitor: Monitor) -> None:
        """``run`` is the state of the machine to which ``monitor`` is connected."""
        self.layer = new_id()
        """The id of the new layer."""
        self.turned = False
        self._history = history
        self._run = run
        self._monitor = monitor
        self._before: Head | None = None
        self._node_name = ""
        """QEMU's node name of the active layer."""

    @property
    def before(self) -> Head:
        """The head before the switch."""
        assert self._before is not None, "find_head comes first"
        return self._before

    @property
    def frozen(self) -> tuple[str, ...]:
        """The layers of the disk at the moment of `turn`, the lowest first."""
        return (*self.before.layers, self.before.top)

    async def find_head(self) -> None:
        """Find out which layer the guest writes to. Raises HistoryError, MachineError."""
        self._before = await self._find_head()

    async def prepare(self) -> None:
        """Create the new layer and open it in QEMU; `find_head` comes first. Raises HistoryError,
        HostError, MachineError."""
        await in_thread_to_the_end(self._prepare_files)
        await self._add(self.layer, writable=True, backing=None)
        # From here on the head names the new layer, whether QEMU writes to it already or not: an
        # empty layer on top does not change the disk.
        top = replace(self.before, layers=self.frozen, top=self.layer)
        await in_thread_to_the_end(lambda: self._history.set_head(top))

    async def _find_head(self) -> Head:
        """The head, corrected to the layer that QEMU actually writes to."""
        head = self._history.head()
        # Not by query-block, which describes the whole chain below it and truncates that.
        disk = await self._monitor.execute("qom-get", path=DISK, property="drive")
        self._node_name = str(disk)
        active = self._layer_of(self._node_name)
        if active == head.top:
            return head
        if head.layers and active == head.layers[-1]:
            return replace(head, layers=head.layers[:-1], top=active)
        raise HistoryError(f"QEMU writes to the layer {active}, which the head does not name")

    def _layer_of(self, node_name: str) -> str:
        """The layer behind a node name of QEMU: one that was added, or the one it started with."""
        if node_name.startswith(OURS):
            return node_name.removeprefix(OURS)
        for word in self._run.qemu_command:
            if word.startswith("{"):
                node = json.loads(word)
                if node.get("node-name") == f"{node_name}-file":
                    return Path(node["filename"]).stem
        raise MachineError(f"QEMU writes to {node_name!r}, which is no layer")

    def _prepare_files(self) -> None:
        place = self._history.place
        add_layer(place, self.layer, below=self.before.top)
        # Data flushed now need not be flushed in the pause.
        top = place.layer(self.before.top)
        with map_os_errors(top):
            descriptor = open_regular(top)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

    async def turn(self) -> None:
        """Switch the guest to the new layer. A cancellation takes effect only when that is done.
        Raises MachineError."""
        await to_the_end(self._turn())

    async def _turn(self) -> None:
        await self._monitor.execute(
            "blockdev-snapshot", node=self._node_name, overlay=f"{OURS}{self.layer}"
        )
        self.turned = True

    async def _add(self, layer: str, *, writable: bool, backing: str | None) -> None:
        """Open a layer in QEMU. ``backing``: the node below it; None for one that the layer gets
        later."""
        name = f"{OURS}{layer}"
        file: dict[str, Any] = {
            "driver": "file",
            "node-name": f"{name}-file",
            "filename": str(layer_name(layer)),
            "read-only": not writable,
            "aio": "threads",
            "discard": "unmap",
            # Others may have a frozen layer open, too.
            "locking": "auto" if writable else "off",
        }
        await self._monitor.execute("blockdev-add", **file)
        options = _qcow2_node(name, backing=backing, writable=writable)
        await self._monitor.execute("blockdev-add", **options)

    async def follow(self, layers: tuple[str, ...]) -> None:
        """Let QEMU read ``layers`` below its top layer: the first ones of `frozen`, and one with
        the content of all the others. The VM may run. Raises MachineError; QEMU goes on with the
        layers that it has then."""
        *kept, merged = layers
        await self._add(merged, writable=False, backing=self._node_of(kept[-1]))
        top = _qcow2_node(f"{OURS}{self.layer}", backing=f"{OURS}{merged}", writable=True)
        await self._monitor.execute("blockdev-reopen", options=[top])
        gone = [self._node_of(layer) for layer in reversed(self.frozen[len(kept) :])]
        names = [name for node in gone for name in (node, f"{node}-file")]
        # All at once: for each of them alone QEMU would have to be waited for. One that cannot be
        # closed stays open, which costs only memory.
        await asyncio.gather(*(self._close(name) for name in names), return_exceptions=True)

    async def _close(self, name: str) -> None:
        await self._monitor.execute("blockdev-del", **{"node-name": name})

    def _node_of(self, layer: str) -> str:
        """QEMU's node name of a layer."""
        for word in self._run.qemu_command:
            if word.startswith("{"):
                node = json.loads(word)
                if Path(str(node.get("filename", ""))).stem == layer:
                    return str(node["node-name"]).removesuffix("-file")
        return f"{OURS}{layer}"

    async def undo(self) -> None:
        """Remove what a failed attempt has left. If QEMU writes to the new layer already, it stays:
        that costs only a file."""
        if self._before is None or self.turned or not await self._is_unused():
            return
        await in_thread_to_the_end(lambda: self._history.set_head(self.before))
        for name in (f"{OURS}{self.layer}", f"{OURS}{self.layer}-file"):
            # `prepare` may have failed before it added them.
            with contextlib.suppress(QuicksandError):
                await self._close(name)
        self._history.place.layer(self.layer).unlink(missing_ok=True)

    async def _is_unused(self) -> bool:
        """Whether QEMU says that the guest does not write to the new layer. If it does not answer,
        nobody knows."""
        with contextlib.suppress(QuicksandError):
            disk = await self._monitor.execute("qom-get", path=DISK, property="drive")
            return self._layer_of(str(disk)) != self.layer
        return False


def _qcow2_node(name: str, *, backing: str | None, writable: bool) -> dict[str, Any]:
    return {
        "driver": "qcow2",
        "node-name": name,
        "file": f"{name}-file",
        "backing": backing,
        "read-only": not writable,
        "discard": "unmap",
        "detect-zeroes": "unmap" if writable else "off",
    }


def freeze_stopped(history: History, name: str) -> tuple[str, ...]:
    """Freeze the disk of a stopped sandbox by adding a new top layer. Returns the frozen layers,
    the lowest first. Raises StateError after an unfinished start, HistoryError, ImageError,
    HostError."""
    head = history.head()
    if head.previous is not None:
        raise StateError(
            f"the last start of {name!r} was not finished",
            hint=f"`quicksand-tui start {name}`, then stop it and try again",
        )
    top = new_id()
    add_layer(history.place, top, below=head.top)
    layers = (*head.layers, head.top)
    history.set_head(replace(head, layers=layers, top=top))
    return layers

"""QEMU as a `Hypervisor`: each of its methods in QMP commands.

The layers of a disk are block nodes of QEMU: those from its start have the names in its command
line; those added while it ran have `OURS` and the layer's id as their names.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import uuid
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from quicksand.base.errors import MachineError, StateError
from quicksand.base.hypervisor import Hypervisor
from quicksand.qemu.features import FEATURES
from quicksand.qemu.qmp import CONNECT_TIMEOUT_S, Monitor, human, run_job, wait_for_event
from quicksand.qemu.translations import QtestTranslations
from quicksand.records.layout import MachineDir, layer_name

DISK = "/machine/peripheral/vda"
"""QOM path of the guest's disk."""

DISK_NODE = "disk"
"""The node of the disk's top layer in the command line."""

OURS = "disk-"
"""Prefix of the names of nodes for layers that were added; the layer's id follows."""

PARTS_OF_STATE = ("", "-inner", "-saved", "-file")
"""Suffixes of the nodes for a file with a state, the upper ones first."""

LOAD_TIMEOUT_S = 30.0

NO_FLUSH = {"direct": False, "no-flush": True}
"""The caller syncs a state's file, outside of the pause."""

_FIRMWARE = re.compile(r"^\s*pc\.bios\s+\d+ [KMG]iB\s+0x[0-9a-f]+\s+0x([0-9a-f]+)", re.MULTILINE)
_ADDRESS = re.compile(r" is (0x[0-9a-f]+)")


class Qemu(Hypervisor):
    """A running QEMU."""

    features = FEATURES

    def __init__(self, monitor: Monitor, command: Sequence[str] = ()) -> None:
        """``command`` is QEMU's command line, which is needed for all work on the disk."""
        self.monitor = monitor
        """The monitor, for the parts that only QEMU has, such as its display."""
        self._command = command
        self._nodes: dict[str, str] = {}
        """The names of the nodes of open layers, as far as known."""

    async def _execute(self, command: str, **arguments: Any) -> Any:
        return await self.monitor.execute(command, **arguments)

    @classmethod
    async def connect(
        cls,
        machine: MachineDir,
        command: Sequence[str] = (),
        *,
        timeout: float | None = None,
    ) -> Qemu:
        """Connect to the QEMU in that directory. Raises as `Monitor.connect`, also if it does not
        answer within ``timeout`` seconds (None: CONNECT_TIMEOUT_S)."""
        return cls(await Monitor.connect(machine, timeout=timeout or CONNECT_TIMEOUT_S), command)

    async def close(self) -> None:
        await self.monitor.close()

    async def version(self) -> str:
        version = (await self._execute("query-version"))["qemu"]
        return f"{version['major']}.{version['minor']}.{version['micro']}"

    # The processors

    async def pause(self) -> None:
        await self._execute("stop")

    async def resume(self) -> None:
        await self._execute("cont")

    async def is_running(self) -> bool:
        return bool((await self._execute("query-status"))["running"])

    # Memory and devices

    async def host_address(self, guest: int) -> int:
        said = await self._ask_human(f"gpa2hva {guest:#x}")
        found = _ADDRESS.search(said)
        if found is None:
            raise MachineError(f"QEMU does not tell where the guest's memory is: {said}")
        return int(found[1], 16)

    async def firmware_size(self) -> int:
        found = _FIRMWARE.search(await self._ask_human("info ramblock"))
        if found is None:
            raise MachineError("QEMU does not tell how large the machine's firmware is")
        return int(found[1], 16)

    async def _ask_human(self, line: str) -> str:
        """Return QEMU's answer to an HMP command that QMP lacks."""
        return str(await self._execute("human-monitor-command", **{"command-line": line}))

    async def save_devices(self, path: Path) -> None:
        await self._execute("xen-save-devices-state", filename=str(path), live=False)

    async def load_devices(self, descriptor: int, *, name: str) -> None:
        await self.monitor.pass_descriptor(descriptor, "state")
        # QEMU announces the steps of a migration only if it is asked to.
        wanted = [{"capability": "events", "state": True}]
        with self.monitor.listen("MIGRATION") as events:
            await self._execute("migrate-set-capabilities", capabilities=wanted)
            await self._execute("migrate-incoming", uri="fd:state")
            try:
                async with asyncio.timeout(LOAD_TIMEOUT_S):
                    loaded = await wait_for_event(
                        events,
                        lambda step: step["status"] in ("completed", "failed"),
                        doing="migrate-incoming",
                    )
            except TimeoutError:
                raise MachineError(
                    f"QEMU did not load the state of {name!r} within {LOAD_TIMEOUT_S:g} s"
                ) from None
        if loaded["status"] != "completed":
            raise MachineError(f"QEMU did not take the state of {name!r}")

    async def open_state(self, name: str, path: Path, *, over: Path | None = None) -> None:
        inner = f"{name}-file"
        await self._open_file(inner, path, read_only=False)
        if over is not None:
            await self._open_file(f"{name}-saved", over, read_only=True)
            await self._open_qcow2(f"{name}-inner", inner, backing=f"{name}-saved")
            inner = f"{name}-inner"
        await self._open_qcow2(name, inner, backing=None)

    async def _open_file(self, node: str, path: Path, *, read_only: bool) -> None:
        await self._execute(
            "blockdev-add",
            **{"driver": "file", "node-name": node, "filename": str(path), "aio": "threads"},
            # Published files are shared by many.
            **{"read-only": read_only, "locking": "off" if read_only else "auto"},
            cache=NO_FLUSH,
        )

    async def _open_qcow2(self, node: str, file: str, *, backing: str | None) -> None:
        await self._execute(
            "blockdev-add",
            **{"driver": "qcow2", "node-name": node, "file": file, "backing": backing},
            cache=NO_FLUSH,
        )

    async def save_state(self, name: str, tag: str) -> None:
        await run_job(self.monitor, "snapshot-save", tag=tag, vmstate=name, devices=[name])
        await self._require_state(name, tag)

    async def load_state(self, name: str, tag: str) -> None:
        await self._require_state(name, tag)
        await run_job(self.monitor, "snapshot-load", tag=tag, vmstate=name, devices=[name])

    async def _require_state(self, name: str, tag: str) -> None:
        """Raise MachineError unless the file has a snapshot of that name with a VM's memory."""
        for node in await self._execute("query-named-block-nodes", flat=True):
            if node["node-name"] == name:
                for found in node["image"].get("snapshots", ()):
                    if found["name"] == tag and found["vm-state-size"] > 0:
                        return
        raise MachineError(f"QEMU's file has no snapshot {tag}")

    async def close_state(self, name: str) -> None:
        await self._close([f"{name}{part}" for part in PARTS_OF_STATE])

    def translations(self, socket: Path) -> QtestTranslations:
        return QtestTranslations(self.monitor, socket)

    async def generation(self) -> bytes | None:
        try:
            found = await self._execute("query-vm-generation-id")
        except StateError:  # the machine has no vmgenid
            return None
        return uuid.UUID(str(found["guid"])).bytes_le

    async def why_unsavable(self) -> Sequence[str]:
        reasons = (await self._execute("query-migrate")).get("blocked-reasons", [])
        if not isinstance(reasons, list):
            raise MachineError(f"QEMU said {reasons!r} of what keeps it from being saved")
        return [str(reason) for reason in reasons]

    # The disk

    async def top_layer(self) -> str:
        # Not by query-block, which describes the whole chain below the node, truncated.
        node = str(await self._execute("qom-get", path=DISK, property="drive"))
        layer = self._layer_of(node)
        if layer is None:
            raise MachineError(f"QEMU writes to {node!r}, which is no layer")
        self._nodes[layer] = node
        return layer

    async def open_layers(self) -> frozenset[str]:
        self._nodes = await self._find_nodes()
        return frozenset(self._nodes)

    async def _find_nodes(self) -> dict[str, str]:
        """The layers that are open, with the names of their nodes."""
        found = {}
        for node in await self._execute("query-named-block-nodes", flat=True):
            name = str(node["node-name"])
            layer = self._layer_of(name)
            if layer is not None:
                found[layer] = name
        return found

    def _layer_of(self, node: str) -> str | None:
        """The layer of a node; None if it is another kind of node."""
        if node.startswith(OURS):
            return None if node.endswith("-file") else node.removeprefix(OURS)
        for name, path in self._files:
            if name == f"{node}-file" and not path.is_absolute():  # as those of the image are
                return path.stem
        return None

    async def _node_of(self, layer: str) -> str:
        """QEMU's name of the node of an open layer. Raises MachineError if it is not open."""
        if layer not in self._nodes:
            self._nodes = await self._find_nodes()
        try:
            return self._nodes[layer]
        except KeyError:
            raise MachineError(f"QEMU does not have the layer {layer} open") from None

    @cached_property
    def _files(self) -> list[tuple[str, Path]]:
        """The nodes of files that QEMU started with, with their paths."""
        found = []
        for word in self._command:
            # The user's own arguments may be in QEMU's kind of JSON, with single quotes.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                node = json.loads(word)
                found.append((str(node["node-name"]), Path(str(node["filename"]))))
        return found

    async def open_layer(self, layer: str, *, writable: bool, below: str | None = None) -> None:
        if below is None and not writable:
            raise ValueError("a layer that nobody writes to lies above another one")
        name = f"{OURS}{layer}"
        file: dict[str, Any] = {
            "driver": "file",
            "node-name": f"{name}-file",
            "filename": str(layer_name(layer)),
            "read-only": not writable,
            "aio": "threads",
            "discard": "unmap",
            # Other nodes may have a frozen layer open, too.
            "locking": "auto" if writable else "off",
        }
        await self._execute("blockdev-add", **file)
        backing = None if below is None else await self._node_of(below)
        await self._execute("blockdev-add", **_layer_node(name, backing, writable=writable))
        self._nodes[layer] = name

    async def pivot(self, old: str, new: str) -> None:
        node, overlay = await self._node_of(old), await self._node_of(new)
        await self._execute("blockdev-snapshot", node=node, overlay=overlay)

    async def put_below(self, top: str, below: str) -> None:
        node = _layer_node(await self._node_of(top), await self._node_of(below), writable=True)
        await self._execute("blockdev-reopen", options=[node])

    async def close_layers(self, layers: Sequence[str]) -> None:
        nodes = [self._nodes.pop(layer, f"{OURS}{layer}") for layer in layers]
        await self._close([name for node in nodes for name in (node, f"{node}-file")])

    async def _close(self, nodes: Sequence[str]) -> None:
        """Close those of ``nodes`` that are open, the upper ones first."""
        # All at once: each of them alone would need a wait for QEMU.
        deletions = (self._execute("blockdev-del", **{"node-name": node}) for node in nodes)
        results = await asyncio.gather(*deletions, return_exceptions=True)
        errors = {
            node: result
            for node, result in zip(nodes, results, strict=True)
            if isinstance(result, BaseException)
        }
        if not errors:
            return
        found = await self._execute("query-named-block-nodes", flat=True)
        there = {str(node["node-name"]) for node in found}
        for node, error in errors.items():
            if node in there or not isinstance(error, StateError):
                raise error

    async def grow_disk(self, size: int) -> None:
        await self._execute("block_resize", **{"node-name": DISK_NODE}, size=size)

    # The network

    async def add_forward(self, rule: str) -> None:
        await human(self.monitor, f"hostfwd_add net0 {rule}")

    async def remove_forward(self, rule: str) -> None:
        host, _, _ = rule.partition("-")
        await human(self.monitor, f"hostfwd_remove net0 {host}")

    async def count_connections(self) -> int:
        said = await self._ask_human("info usernet")
        return sum(line.lstrip().startswith("TCP[") for line in said.splitlines())


def _layer_node(name: str, backing: str | None, *, writable: bool) -> dict[str, Any]:
    return {
        "driver": "qcow2",
        "node-name": name,
        "file": f"{name}-file",
        "backing": backing,
        "read-only": not writable,
        "discard": "unmap",
        "detect-zeroes": "unmap" if writable else "off",
    }


def monitor_of(hypervisor: Hypervisor) -> Monitor:
    """Return the monitor of a QEMU, for calls that no other hypervisor has in that form. Raises
    MachineError for another hypervisor."""
    if not isinstance(hypervisor, Qemu):
        raise MachineError(f"that needs QEMU, and this is {type(hypervisor).__name__}")
    return hypervisor.monitor

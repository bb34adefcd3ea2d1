"""Loading the devices' state of a checkpoint into a QEMU that has run.

QEMU has always done so with loadvm, which loads an internal snapshot of a disk. So the state
becomes the only content of a small disk (state_disk.py). The disk is opened ahead; in the pause
only the clocks in it are changed.
"""

from __future__ import annotations

import os
import struct
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import HistoryError, MachineError
from quicksand.base.files import map_os_errors
from quicksand.base.hypervisor import Hypervisor, Translations
from quicksand.base.regular import create, open_regular
from quicksand.base.threads import in_thread_to_the_end
from quicksand.records.config import Accelerator
from quicksand.records.layout import MachineDir, SandboxDir
from quicksand.records.nodes import Node, new_id
from quicksand.snapshots.device_state import CPU_COMMON, DeviceState, rewound, wakings
from quicksand.snapshots.guest_ram import PAGE, Runs
from quicksand.snapshots.pages import MappedFile

CLUSTER_BITS = 12
CLUSTER = 1 << CLUSTER_BITS
REFCOUNT_ORDER = 4
"""References are counted in 16 bits."""
COUNTED = CLUSTER * 8 // (1 << REFCOUNT_ORDER)
"""Clusters whose references are counted in one cluster."""
STATE_MAX = 64 * 1024 * 1024
"""The most bytes of a state. States have 0.2 to 0.4 MiB, plus the pictures that a screen's device
holds: 8 MiB for a desktop of 1280 x 800."""
HEADER_BYTES = 104
_REFCOUNT_TABLE, _ACTIVE_L1, _SNAPSHOTS, _SNAPSHOT_L1, _L2 = 1, 2, 3, 4, 5
_ID = b"1"
_EXTRA_BYTES = 24
_NO_ICOUNT = 2**64 - 1


@dataclass(frozen=True, slots=True)
class StateDisk:
    data: bytes
    """The file."""
    state_at: int
    """The offset of the state in the file; it is contiguous."""


def make_state_disk(state: bytes, tag: str) -> StateDisk:
    """A disk of one cluster, with the internal snapshot ``tag`` whose VM state is ``state``. Raises
    HistoryError if that is too large."""
    if len(state) > STATE_MAX:
        raise HistoryError(f"the devices' state has {len(state)} bytes, more than {STATE_MAX}")
    used = -(-len(state) // CLUSTER)
    tables = -(-used * 8 // CLUSTER)
    counts = -(-(_L2 + tables + used) // (COUNTED - 1))  # their own clusters are counted, too
    counted_at = _L2 + tables
    first = counted_at + counts
    # The VM state lies behind the disk, whose one cluster is in the place of the first L2 table.
    l1_entries = 1 + tables
    out = bytearray((first + used) * CLUSTER)
    _put(out, 0, _header(l1_entries))
    _put(out, _REFCOUNT_TABLE, _places(counted_at, counts))
    _put(out, counted_at, struct.pack(">H", 1) * (first + used))
    _put(out, _SNAPSHOTS, _snapshot(tag, len(state), l1_entries))
    _put(out, _SNAPSHOT_L1, struct.pack(">Q", 0) + _places(_L2, tables))
    _put(out, _L2, _places(first, used))
    _put(out, first, state)
    return StateDisk(bytes(out), first * CLUSTER)


def _put(out: bytearray, cluster: int, data: bytes) -> None:
    out[cluster * CLUSTER : cluster * CLUSTER + len(data)] = data


def _places(first: int, count: int) -> bytes:
    """Entries of an L1 or L2 table for clusters that follow each other."""
    return struct.pack(f">{count}Q", *((first + n) * CLUSTER for n in range(count)))


def _header(l1_entries: int) -> bytes:
    return struct.pack(
        ">4sIQIIQIIQQIIQQQQII",
        b"QFI\xfb", 3,
        0, 0,  # no backing file
        CLUSTER_BITS,
        CLUSTER,  # the size of the disk
        0,  # not encrypted
        l1_entries, _ACTIVE_L1 * CLUSTER,
        _REFCOUNT_TABLE * CLUSTER, 1,
        1, _SNAPSHOTS * CLUSTER,
        0, 0, 0,  # no features
        REFCOUNT_ORDER, HEADER_BYTES,
    )  # fmt: skip


def _snapshot(tag: str, state_bytes: int, l1_entries: int) -> bytes:
    name = tag.encode("ascii")
    fixed = struct.pack(
        ">QIHHIIQII",
        _SNAPSHOT_L1 * CLUSTER, l1_entries,
        len(_ID), len(name),
        0, 0,  # when it was taken
        0,  # how long the VM had run
        state_bytes & 0xFFFFFFFF,  # replaced by the 64 bits below
        _EXTRA_BYTES,
    )  # fmt: skip
    return fixed + struct.pack(">QQQ", state_bytes, CLUSTER, _NO_ICOUNT) + _ID + name


TAG = "state"
"""The state's name in the disk."""

RUNS_MAX = 8192
"""Runs of pages above which QEMU forgets all its translations: renewing these takes it a tenth of a
second, and forgetting each run some ten microseconds."""

FILLER = 0xA5
"""The byte with which QEMU fills pages to forget them: proof that their memory was written."""

COVERED = range(0xA0000 // PAGE, 0x100000 // PAGE)
"""Pages of a PC's memory over which the guest can have something else: its firmware, or a device's
registers (Intel Q35 datasheet, PAM and SMRAM). Writes to these addresses may go there."""


def _is_covered(runs: Runs) -> bool:
    return any(first < COVERED.stop and first + count > COVERED.start for first, count in runs)


class DeviceLoad:
    """The devices' state of the checkpoint ``node``, for one load. Call `prepare` while the guest
    runs; `forget`, `set_clocks` and `load` while it is paused; `close` in any case. Raises
    HistoryError, HostError, MachineError."""

    def __init__(self, place: SandboxDir, node: Node, hypervisor: Hypervisor, accel: str) -> None:
        self._path = place.checkpoints / node.id / "devices"
        self._node = node
        self._hypervisor = hypervisor
        self._translates = accel == Accelerator.TCG
        # A client that was killed may have left a disk in QEMU.
        self._name = f"revert-{new_id()}"
        self._stack = AsyncExitStack()
        self._disk: Path | None = None
        self._translations: Translations | None = None
        self._wakings: list[tuple[int, int]] = []
        self.why_flushed = ""
        """The reason why QEMU forgets all translations; "" if it keeps them."""

    async def prepare(self, machine: MachineDir, expected: Runs) -> None:
        """Write the state to a file in the directory of ``machine``, and open it in its QEMU.
        ``expected``: the pages that would have to be written at this moment."""
        self._disk = machine.state_disk
        await in_thread_to_the_end(lambda: self._write(expected))
        await self._hypervisor.open_state(self._name, self._disk)
        if self._translates and not self.why_flushed:
            translations = self._hypervisor.translations(machine.qtest_socket)
            self._translations = await self._stack.enter_async_context(translations)

    def _write(self, expected: Runs) -> None:
        data = self._read()
        if self._translates:
            self._state = self._choose(DeviceState(data), expected)
            data = self._state.data
        made = make_state_disk(data, TAG)
        self._state_at = made.state_at
        assert self._disk is not None
        self._disk.unlink(missing_ok=True)  # a client that was killed has left it
        with map_os_errors(self._disk), create(self._disk) as file:
            file.write(made.data)

    def _read(self) -> bytes:
        assert self._node.devices is not None
        with MappedFile(self._path, self._node.devices) as mapped:
            return bytes(mapped.data)

    def _choose(self, state: DeviceState, expected: Runs) -> DeviceState:
        """The part of the state to load. QEMU forgets its translations with the sections
        CPU_COMMON, which are needed only if a processor was in the middle of something."""
        found = wakings(state.processors())
        if found is None:
            self.why_flushed = "a processor was waiting for what only a full load gives back to it"
        elif _is_covered(expected):
            self.why_flushed = "the guest wrote where a PC's firmware may be"
        elif len(expected) > RUNS_MAX:
            self.why_flushed = "what the guest wrote is scattered all over its memory"
        if self.why_flushed:
            return state
        assert found is not None
        self._wakings = found
        return state.without(CPU_COMMON)

    def require_reachable(self, runs: Runs) -> None:
        """Raise MachineError unless `forget` can reach these pages."""
        if self._translations is not None and _is_covered(runs):
            raise MachineError("the guest wrote where a PC's firmware may be")

    @property
    def filler(self) -> int | None:
        """The byte that fills forgotten pages, if QEMU forgets by pages."""
        return FILLER if self._translations is not None else None

    async def forget(self, runs: Runs, memory: int, filler: int | None) -> None:
        """Drop QEMU's translations of these pages of the guest's memory of ``memory`` bytes, which
        are then full of ``filler``, unless it drops all translations."""
        if self._translations is not None and filler is not None:
            ranges = [(first * PAGE, count * PAGE) for first, count in runs]
            await self._translations.forget(ranges, memory, filler)

    def set_clocks(self, now: bytes) -> None:
        """Let the guest's clocks continue from the checkpoint, in a QEMU whose state is ``now``:
        its own clocks cannot go back (`rewound`)."""
        if self._state is None:
            return
        assert self._disk is not None
        with map_os_errors(self._disk):
            descriptor = open_regular(self._disk, os.O_WRONLY)
            try:
                for at, change in rewound(self._state, now):
                    os.pwrite(descriptor, change, self._state_at + at)
            finally:
                os.close(descriptor)

    async def load(self) -> None:
        """Load the state; the guest stays paused."""
        await self._hypervisor.load_state(self._name, TAG)
        if self._translations is not None and self._wakings:
            await self._translations.interrupt(self._wakings)

    async def close(self) -> None:
        """Close the disk in QEMU. Idempotent."""
        await self._stack.aclose()
        if self._disk is not None:
            disk, self._disk = self._disk, None
            try:
                await self._hypervisor.close_state(self._name)
            finally:
                disk.unlink(missing_ok=True)

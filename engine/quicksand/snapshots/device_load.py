"""Loading the devices' state of a checkpoint into a QEMU that has run.

QEMU has always done so with loadvm, which loads an internal snapshot of a disk. So the state
becomes the only content of a small disk (state_disk.py). The disk is opened ahead; in the pause
only the clocks in it are changed.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path

from quicksand.base.errors import MachineError
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
from quicksand.snapshots.state_disk import make_state_disk

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

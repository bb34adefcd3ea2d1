"""Pausing a sandbox's VM, and resuming it."""

from __future__ import annotations

from dataclasses import replace

from quicksand.base.errors import StateError
from quicksand.life import machinery
from quicksand.life.sandbox_life import Life
from quicksand.records.layout import runtime_dir
from quicksand.records.paused import forget_mark, mark_of
from quicksand.records.registry import publish_state


class Pausing:
    """The pauses of one sandbox. `pause` and `resume` are methods of `Sandbox`."""

    def __init__(self, life: Life) -> None:
        self._life = life

    async def pause(self) -> None:
        """Pause the VM (QMP ``stop``). Until `resume` the guest runs no instruction, so its agent
        does not answer either. If another client is taking a checkpoint, that comes first. Raises
        StateError, HistoryError, MachineError."""
        await self._set(True)

    async def resume(self) -> None:
        """Resume a paused VM (QMP ``cont``). It is no error if the VM is not paused. Raises as
        `pause`."""
        await self._set(False)

    async def _set(self, paused: bool) -> None:
        """Pause or resume the VM. Raises StateError if it is not running or QEMU did not obey,
        HistoryError if another client takes too long with a checkpoint, MachineError."""
        life = self._life
        if life.entry().run is None:
            raise life.not_running()
        # A checkpoint or a revert also pauses and resumes it.
        async with machinery.finished_history(life.registry, life.require_record()):
            await self._set_now(paused)

    async def _set_now(self, paused: bool) -> None:
        life = self._life
        run = life.entry().run
        if run is None:
            raise life.not_running()
        machine = runtime_dir(life.registry.paths, life.id).current()
        hypervisor = await machinery.Qemu.connect(machine)
        held = mark_of(machine)
        try:
            await (hypervisor.pause() if paused else hypervisor.resume())
            if await hypervisor.is_running() is paused:
                raise StateError(f"QEMU did not {'pause' if paused else 'resume'} the sandbox")
        finally:
            await hypervisor.close()
        if not paused:
            forget_mark(machine, held)
        life.run = replace(run, paused=paused)
        publish_state(machine, life.run)
        if not paused and life.link is not None:
            await machinery.set_clock_soon(life.link, life.log)

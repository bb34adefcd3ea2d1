"""The mounts of a machine that is being started."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from quicksand.base.errors import MountError
from quicksand.base.paths import Paths
from quicksand.guest.agent.session import Ask
from quicksand.mounts import devices, ninep
from quicksand.mounts.after_past import AfterPast
from quicksand.mounts.devices import Device
from quicksand.mounts.directories import Directories, KnownDirectory
from quicksand.mounts.left_out import note_left_out
from quicksand.mounts.mounting import Served, mount_served, serve_all
from quicksand.qemu.binaries import QemuBinaries
from quicksand.qemu.command import SharedDirectory
from quicksand.records.layout import MachineDir, sandbox_dir
from quicksand.records.mount import NINEP, Mount
from quicksand.records.sandboxes import Record


class MountsAtStart:
    """Serves a machine's directories while its guest starts, and mounts them when it has started.

    Unless it is the sandbox's first start, mounts whose directories are gone are left out: they
    must not keep an existing sandbox from starting.
    """

    def __init__(self, record: Record, places: Paths, *, is_past: bool) -> None:
        """``is_past``: the guest continues from a checkpoint in which it may have had mounts."""
        self._record = record
        self._place = sandbox_dir(places, record.id)
        self._directories = Directories(self._place.mounted, places)
        self._is_past = is_past
        self._mounts: Sequence[tuple[Mount, KnownDirectory]] = ()
        self._devices: Sequence[Device] = ()
        self._serving: asyncio.Task[Served] | None = None
        self.notices: tuple[str, ...] = ()
        """Mounts that could not be made, in words."""

    def choose_devices(self, binaries: QemuBinaries) -> Sequence[SharedDirectory]:
        """Choose the directories that QEMU serves by 9p. Blocks for I/O. Raises MountError."""
        self._devices = ninep.choose(
            self._record.config.mounts,
            self._check,
            binaries,
            may_leave_out=self._record.committed,
        )
        return ninep.shared(self._devices)

    def note(self, machine: MachineDir) -> None:
        """Record the mounts that a machine's guest may have. Called before it runs. Raises
        HostError."""
        if self._devices:
            devices.note(machine, self._devices)
        if self._is_past:
            machine.past_shares.touch(mode=0o600)

    async def begin(self, machine: MachineDir) -> None:
        """Begin to serve the directories that quicksand itself serves."""
        if self._record.config.mounts:
            self._mounts = await asyncio.to_thread(self._choose)
        if self._mounts and not self._is_past:
            self._serving = asyncio.create_task(
                serve_all(machine, self._mounts), name="quicksand-mounts"
            )

    async def finish(self, machine: MachineDir, ask: Ask) -> None:
        """Have the guest mount them. Raises MountError, StateError, AgentError, HostError."""
        if self._serving is not None:
            for share, secret in await self._serving:
                await mount_served(machine, share, secret, ask)
        elif self._is_past:
            after = AfterPast(machine, ask)
            await after.mount_all(self._mounts)
            for error in after.failed.values():
                raise error
        await ninep.mount_all(machine, [device.mount for device in self._devices], ask)

    async def give_up(self) -> None:
        """End the work of `begin`; servers that have started end with QEMU. Idempotent."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait((self._serving,))
            if not self._serving.cancelled():
                self._serving.exception()

    def _check(self, mount: Mount) -> KnownDirectory:
        """Return the directory of a mount; if this is the first start, a person has just named it.
        Blocks for I/O. Raises MountError, HostError."""
        directories = self._directories
        return (directories.check if self._record.committed else directories.choose)(mount)

    def _choose(self) -> list[tuple[Mount, KnownDirectory]]:
        """Return the mounts that quicksand itself serves, and note those that cannot be mounted.
        Blocks for I/O. Raises MountError, HostError."""
        good: list[tuple[Mount, KnownDirectory]] = []
        left_out: dict[str, str] = {}
        for mount in self._record.config.mounts:
            try:
                known = self._check(mount)
                if mount.type == NINEP:
                    ninep.check_shareable(mount)
                else:
                    good.append((mount, known))
            except MountError as error:
                if not self._record.committed:
                    raise
                left_out[mount.guest] = str(error)
        note_left_out(self._place, left_out)
        self.notices = tuple(f"not mounted at {at}: {why}" for at, why in left_out.items())
        return good

"""The host's directories in a sandbox's guest."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from quicksand.base.errors import ConfigError, MountError, QuicksandError, StateError
from quicksand.base.remedies import Remedy, Words
from quicksand.life.guest import InGuest
from quicksand.life.sandbox_life import Life
from quicksand.mounts import devices as machine_devices
from quicksand.mounts import mounting, ninep
from quicksand.mounts.at_start import AfterPast
from quicksand.mounts.directories import Directories, KnownDirectory
from quicksand.mounts.known_mounts import (
    Written,
    forget_left_out,
    note_left_out,
    read_left_out,
    read_left_out_mounts,
    read_told,
)
from quicksand.mounts.mounter import Mounter
from quicksand.mounts.share_server import require_program
from quicksand.mounts.shares import Share, last_words, list_shares, read_shares, traffic_of
from quicksand.records.layout import MachineDir, SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.mount import CIFS, NINEP, Mount
from quicksand.things.sandbox_facts import GuestTraffic


@dataclass(frozen=True, slots=True, kw_only=True)
class MountHandle:
    """A directory that is mounted."""

    host: str
    guest: str
    readonly: bool
    type: str = CIFS
    is_served: bool = True
    """False once its server has ended; the guest then sees errors there."""
    reason: str = ""
    """The last words of its server when it ended; "" if it never has."""
    is_seen: bool = True
    """False if the process that asked the guest to mount it has ended since: only the guest knows
    whether it is mounted."""
    traffic: GuestTraffic | None = None
    """The bytes carried since it was mounted; None for 9p, and if nobody counts."""
    protect: bool = False
    """Whether the guest cannot change files that host programs run or obey (`Mount.protect`)."""
    told: Sequence[Written] = ()
    """Files written by the guest that programs of the host run or obey, the latest first."""


class Mounts:
    """The mounts of one sandbox. Each method raises what its namesake in `Sandbox` raises."""

    def __init__(self, life: Life, guest: InGuest) -> None:
        self._life = life
        self._guest = guest

    def _machine(self) -> MachineDir:
        return runtime_dir(self._life.registry.paths, self._life.id).current()

    def _place(self) -> SandboxDir:
        return sandbox_dir(self._life.registry.paths, self._life.id)

    def _directories(self) -> Directories:
        return Directories(self._place().mounted, self._life.registry.paths)

    def _choose(self, mount: Mount) -> KnownDirectory:
        """Choose the directory to serve. Blocks for I/O. Raises MountError, HostError."""
        shares = read_shares(self._machine())
        written = [one.known.path for one in shares if one.known and not one.mount.readonly]
        return self._directories().choose(mount, written)

    def list(self) -> Sequence[MountHandle]:
        machine = self._machine()
        served = [
            replace(
                _handle_of(share.mount, share.is_served, is_seen=share.mounter is None),
                reason=last_words(machine, share.number),
                traffic=traffic_of(machine, share.number) if share.is_served else None,
                told=read_told(machine, share.number),
            )
            for share in read_shares(machine)
            if not _is_under_way(share.mounter)
        ]
        devices = [
            _handle_of(device.mount, is_seen=device.mounter is None)
            for device in machine_devices.read(machine)
            if device.mounted and not _is_under_way(device.mounter)
        ]
        return [*served, *devices]

    async def add(self, mount: Mount) -> MountHandle:
        record = self._life.require_record()
        self._require_running()
        if mount.type == NINEP:
            raise StateError(
                "a directory can be mounted by 9p at a sandbox's start only: QEMU has the devices "
                "that it started with",
                hint=Words(
                    "mount it without `9p`, or make a sandbox with it",
                    Words(": `run -v HOST:GUEST:9p`", python=" (mounts=)"),
                ),
            )
        mounting.check_possible(record.config)
        async with self._life.history().locked():
            known = await asyncio.to_thread(self._choose, mount)
            share = await mounting.add_mount(self._machine(), mount, known, self._guest.ask)
            await asyncio.to_thread(forget_left_out, self._place(), (mount.guest,))
        return _handle_of(share.mount, share.is_served)

    async def remove(self, guest: str, *, force: bool) -> None:
        self._require_running()
        async with self._life.history().locked():
            machine = self._machine()
            shares = sorted(read_shares(machine), key=lambda share: share.is_served)
            here: dict[str, Share | Mount] = {share.mount.guest: share for share in shares}
            here |= {mount.guest: mount for mount in machine_devices.mounted(machine)}
            share = here.get(guest)
            if isinstance(share, Mount):
                await ninep.unmount(machine, share, self._guest.ask, force=force)
                return
            if share is None:
                if guest in await asyncio.to_thread(read_left_out, self._place()):
                    await asyncio.to_thread(forget_left_out, self._place(), (guest,))
                    return
                raise ConfigError(
                    f"nothing is mounted at {guest!r}",
                    hint=f"mounted are: {', '.join(sorted(here)) or 'none'}",
                )
            await mounting.remove_mount(machine, share, self._guest.ask, force=force)

    def _require_running(self) -> None:
        run = self._life.entry().run
        if run is None:
            raise StateError(f"the sandbox {self._life.name!r} is not running")
        if run.paused:
            raise StateError(
                f"the sandbox {self._life.name!r} is paused, and its guest cannot take part",
                hint=Words(Remedy("resume", name=self._life.name), " first"),
            )

    async def write_back(self) -> Sequence[Mount]:
        """Have the guest write its unwritten data to its mounts; returns the mounts."""
        machine = self._machine()
        shares = await asyncio.to_thread(list_shares, machine)
        mounts = [share.mount for share in shares] + await asyncio.to_thread(
            machine_devices.mounted, machine
        )
        if mounts:
            await mounting.write_back(self._guest.asker, self._life.log)
        return mounts

    @contextlib.asynccontextmanager
    async def without_ninep(self, wanted: bool) -> AsyncIterator[None]:
        """Keep everything unmounted that is mounted by 9p within the block, if that is ``wanted``;
        afterwards it is mounted again. Raises StateError, MountError if a directory is in use or
        cannot be mounted again, AgentError."""
        mounts = await asyncio.to_thread(machine_devices.mounted, self._machine()) if wanted else []
        if mounts:
            self._require_running()
        try:
            for mount in mounts:
                await ninep.unmount(self._machine(), mount, self._guest.ask)
            yield
        finally:
            machine = self._machine()
            now = await asyncio.to_thread(machine_devices.mounted, machine)
            gone = [mount for mount in mounts if mount not in now]
            await ninep.mount_all(machine, gone, self._guest.ask)

    @staticmethod
    def require_servers(mounts: Sequence[Mount]) -> None:
        """Raises MountError if ``mounts`` could not be mounted again, however they are."""
        if any(mount.type != NINEP for mount in mounts):
            require_program()

    async def attach_again(self, mounts: Sequence[Mount], what: str, *, is_past: bool) -> None:
        """After ``what``, by which another QEMU has taken over: mount ``mounts``, and if
        ``is_past``, detach the mounts that its guest has from its past. Raises MountError,
        AgentError."""
        if not mounts and not is_past:
            return
        directories = self._directories()
        async with self._life.history().locked():
            machine = self._machine()
            failed: dict[str, str] = {}
            wanted = []
            for mount in mounts:
                try:
                    if mount.type == NINEP:
                        await ninep.mount_all(machine, [mount], self._guest.ask)
                    else:
                        wanted.append((mount, await asyncio.to_thread(directories.check, mount)))
                except QuicksandError as error:
                    failed[mount.guest] = str(error)
            after = AfterPast(machine, self._guest.ask)
            await after.mount_all(wanted)
            failed |= {guest: str(error) for guest, error in after.failed.items()}
            made = {mount.guest for mount in mounts} - failed.keys()
            await asyncio.to_thread(forget_left_out, self._place(), made)
            if failed:
                left_out = await asyncio.to_thread(read_left_out, self._place())
                known = await asyncio.to_thread(read_left_out_mounts, self._place())
                await asyncio.to_thread(
                    note_left_out, self._place(), left_out | failed, [*known, *mounts]
                )
        if failed:
            raise MountError(
                f"{what}, but not every mount is there again: {'; '.join(failed.values())}",
                hint=Words(Remedy("mount"), " mounts it again"),
            )


def _is_under_way(mounter: Mounter | None) -> bool:
    return mounter is not None and mounter.is_at_it


def _handle_of(mount: Mount, is_served: bool = True, *, is_seen: bool = True) -> MountHandle:
    return MountHandle(
        host=mount.host,
        guest=mount.guest,
        readonly=mount.readonly,
        type=mount.type,
        protect=mount.protect,
        is_served=is_served,
        is_seen=is_seen,
    )

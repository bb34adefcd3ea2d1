"""The mounts of a machine that is being started, and mounting in a guest that may have mounts from
its past: after a revert, at a start from a checkpoint, in a clone.

A mount of the past is replaced by its successor at the same place, so that no program finds the
empty directory below. A mount without a successor is detached afterwards, by the name of its share,
which no other share has. Mounts that lay in it are gone with it; so only mounts that the guest
lists after that are recorded as mounted, and all others are mounted once more.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from quicksand.base.errors import MountError, QuicksandError
from quicksand.base.paths import Paths
from quicksand.guest.agent.session import Ask
from quicksand.mounts import devices, mounting, ninep, shares
from quicksand.mounts.devices import Device
from quicksand.mounts.directories import Directories, KnownDirectory
from quicksand.mounts.known_mounts import note_left_out
from quicksand.mounts.mounter import NOBODY
from quicksand.mounts.mounting import Served, mount_served, serve_all
from quicksand.mounts.share_server import start_server
from quicksand.mounts.shares import Share, ask_for_shares
from quicksand.qemu.binaries import QemuBinaries
from quicksand.qemu.command import SharedDirectory
from quicksand.records.layout import SHARES, MachineDir, sandbox_dir
from quicksand.records.mount import NINEP, Mount
from quicksand.records.sandboxes import Record

Wanted = tuple[Mount, KnownDirectory]

AT_ONCE = 4
"""Mounts that a guest makes at the same time. Its kernel makes one after another, and the limit of
each, `mounting.MOUNT_S`, runs from its request."""


class AfterPast:
    """Mounts directories in the guest of a machine; to be used with the history's lock."""

    def __init__(self, machine: MachineDir, ask: Ask) -> None:
        self._machine = machine
        self._ask = ask
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._made: list[Share] = []
        self.failed: dict[str, QuicksandError] = {}
        """The errors of directories that could not be mounted, by the guest's path."""

    async def mount_all(self, wanted: Sequence[Wanted]) -> None:
        """Mount the directories, and detach everything left of the past; see `failed` for those
        that are not mounted. Raises AgentError, HostError."""
        await mounting.end_unknown(self._machine)
        try:
            await self._replace_past(wanted)
        except BaseException:
            for share in self._made:
                shares.note(self._machine, replace(share, mounter=NOBODY))
            raise

    async def _replace_past(self, wanted: Sequence[Wanted]) -> None:
        past = await mounting.find_past(self._machine, self._ask)
        here = {share.name for share in await asyncio.to_thread(shares.list_shares, self._machine)}
        stale = past.mounted - here
        # A client that is still busy on every stream would refuse the others.
        first = [*_outer_first(wanted)][: SHARES - len(past.in_use)]
        await self._mount(first, past.in_use)
        await mounting.detach_stale(self._machine, stale, self._ask)
        self._machine.past_shares.unlink(missing_ok=True)
        await self._tell_of_seen()
        if left := self._left(wanted):
            self.failed.clear()
            await self._mount(left, ())
            await self._tell_of_seen()
            for mount, _ in self._left(wanted):
                gone = MountError(f"{mount.host} was mounted at {mount.guest}, and is gone again")
                self.failed.setdefault(mount.guest, gone)

    async def _mount(self, wanted: Sequence[Wanted], avoid: Collection[int]) -> None:
        for wave in _waves(wanted):
            await asyncio.gather(*(self._mount_one(*one, avoid) for one in wave))

    async def _mount_one(self, mount: Mount, known: KnownDirectory, avoid: Collection[int]) -> None:
        secret = secrets.token_hex(16)
        try:
            async with self._turns:
                await mounting.check_free(self._machine, mount.guest)
                share = await start_server(self._machine, mount, secret, known=known, avoid=avoid)
                share = await mounting.mount_untold(self._machine, share, secret, self._ask)
        except QuicksandError as error:
            self.failed[mount.guest] = error
        else:
            self._made.append(share)

    async def _tell_of_seen(self) -> None:
        """Note which of the new mounts the guest still has; the others are given up."""
        if not self._made:
            return
        mounted = (await ask_for_shares(self._ask)).mounted
        for share in self._made:
            if share.name in mounted:
                shares.note(self._machine, share)
            else:
                shares.forget(self._machine, share)
        self._made = [share for share in self._made if share.name in mounted]

    def _left(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        made = {share.mount.guest for share in self._made}
        return [one for one in wanted if one[0].guest not in made]


def _outer_first(wanted: Sequence[Wanted]) -> Iterator[Wanted]:
    for wave in _waves(wanted):
        yield from wave


def _waves(wanted: Sequence[Wanted]) -> Iterator[list[Wanted]]:
    """Yield groups of mounts that can be made at the same time; mounts inside others come after
    these, since a mount of the past takes those inside it with it."""
    left = list(wanted)
    while left:
        places = {PurePosixPath(mount.guest) for mount, _ in left}
        inner = [one for one in left if places & {*PurePosixPath(one[0].guest).parents}]
        yield [one for one in left if one not in inner]
        left = inner


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

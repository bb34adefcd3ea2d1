"""Mounting in a guest that may have mounts from its past: after a revert, at a start from a
checkpoint, in a clone.

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
from quicksand.guest.agent.session import Ask
from quicksand.mounts import mounting, shares
from quicksand.mounts.directories import KnownDirectory
from quicksand.mounts.guest_shares import ask_for_shares
from quicksand.mounts.mounter import NOBODY
from quicksand.mounts.share_server import start_server
from quicksand.mounts.shares import Share
from quicksand.records.layout import SHARES, MachineDir
from quicksand.records.mount import Mount

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

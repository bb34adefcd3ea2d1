"""The mounts of a machine that is being started."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from quicksand.agent.session import Ask
from quicksand.host.paths import Paths
from quicksand.layout import MachineDir
from quicksand.mounts.mount import Mount
from quicksand.mounts.mounting import (
    Served,
    detach_stale,
    find_stale,
    mount_served,
    serve_all,
    split_missing,
)


class MountsAtStart:
    """Serves a machine's directories while its guest starts, and mounts them when it has."""

    def __init__(self, machine: MachineDir, places: Paths, *, is_past: bool) -> None:
        """``is_past``: the guest continues from a checkpoint and may have mounts from then."""
        self._machine = machine
        self._places = places
        self._is_past = is_past
        self._mounts: Sequence[Mount] = ()
        self._serving: asyncio.Task[Served] | None = None
        self.notices: tuple[str, ...] = ()
        """Mounts that could not be made, in words."""

    async def begin(self, mounts: Sequence[Mount], *, is_first: bool) -> None:
        """Begin to serve ``mounts``. Unless it is the first start, those whose directories are gone
        are left out: they must not keep an existing sandbox from starting."""
        self._mounts = mounts
        if mounts and not is_first:
            self._mounts, words = await asyncio.to_thread(split_missing, mounts, self._places)
            self.notices = tuple(words)
        if self._mounts and not self._is_past:
            self._serving = asyncio.create_task(
                serve_all(self._machine, self._mounts, self._places), name="quicksand-mounts"
            )

    async def finish(self, ask: Ask) -> None:
        """Have the guest mount them. Raises MountError, StateError, AgentError, HostError."""
        stale = await find_stale(ask) if self._is_past else set()
        if self._serving is not None:
            served = await self._serving
        else:
            served = await serve_all(self._machine, self._mounts, self._places, avoid=stale)
        for share, secret in served:
            await mount_served(self._machine, share, secret, ask)
        await detach_stale(self._machine, stale, ask)

    async def give_up(self) -> None:
        """End what `begin` has begun; servers that have started end with QEMU. Idempotent."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait((self._serving,))
            if not self._serving.cancelled():
                self._serving.exception()

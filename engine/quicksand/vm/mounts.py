"""The host's directories in a sandbox's guest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from quicksand.errors import ConfigError, MountError, QuicksandError, StateError
from quicksand.layout import MachineDir, runtime_dir
from quicksand.mounts import mounting
from quicksand.mounts.mount import CIFS, Mount
from quicksand.mounts.shares import Share, list_shares, read_shares
from quicksand.vm.guest import Guest
from quicksand.vm.life import Life


@dataclass(frozen=True, slots=True, kw_only=True)
class MountHandle:
    """A directory that is mounted."""

    host: str
    guest: str
    readonly: bool
    type: str = CIFS
    is_served: bool = True
    """False once its server has ended; the guest then sees errors there."""


class Mounts:
    """The mounts of one sandbox. Each method raises what its namesake in `Sandbox` raises."""

    def __init__(self, life: Life, guest: Guest) -> None:
        self._life = life
        self._guest = guest

    def _machine(self) -> MachineDir:
        return runtime_dir(self._life.registry.paths, self._life.id).current()

    def list(self) -> Sequence[MountHandle]:
        return [_handle_of(share) for share in read_shares(self._machine())]

    async def add(self, mount: Mount) -> MountHandle:
        record = self._life.require_record()
        self._require_running()
        mounting.check_possible(record.config)
        places = self._life.registry.paths
        async with self._life.registry.history(self._life.id).locked():
            share = await mounting.add_mount(self._machine(), mount, places, self._guest.request)
        return _handle_of(share)

    async def remove(self, guest: str, *, force: bool) -> None:
        self._require_running()
        async with self._life.registry.history(self._life.id).locked():
            machine = self._machine()
            shares = sorted(read_shares(machine), key=lambda share: share.is_served)
            here = {share.mount.guest: share for share in shares}
            share = here.get(guest)
            if share is None:
                raise ConfigError(
                    f"nothing is mounted at {guest!r}",
                    hint=f"mounted are: {', '.join(sorted(here)) or 'none'}",
                )
            await mounting.remove_mount(machine, share, self._guest.request, force=force)

    def _require_running(self) -> None:
        run = self._life.entry().run
        if run is None:
            raise StateError(f"the sandbox {self._life.name!r} is not running")
        if run.paused:
            raise StateError(
                f"the sandbox {self._life.name!r} is paused, and its guest cannot take part",
                hint=f"`quicksand-tui resume {self._life.name}` first",
            )

    async def write_back(self) -> Sequence[Mount]:
        """Have the guest write what it still holds of its mounts; returns the mounts."""
        shares = await asyncio.to_thread(list_shares, self._machine())
        if shares:
            await mounting.write_back(self._guest.asker)
        return [share.mount for share in shares]

    async def attach_again(self, mounts: Sequence[Mount], what: str) -> None:
        """After ``what``, by which another QEMU has taken over: detach what its guest has mounted
        from its past, and mount ``mounts``. Raises MountError, AgentError."""
        places = self._life.registry.paths
        async with self._life.registry.history(self._life.id).locked():
            machine = self._machine()
            stale = await mounting.find_stale(self._guest.request)
            failed: list[str] = []
            for mount in mounts:
                try:
                    await mounting.add_mount(
                        machine, mount, places, self._guest.request, avoid=stale
                    )
                except QuicksandError as error:
                    failed.append(str(error))
            await mounting.detach_stale(machine, stale, self._guest.request)
        if failed:
            raise MountError(
                f"{what}, but not every mount is there again: {'; '.join(failed)}",
                hint="`quicksand-tui mount` mounts it again",
            )


def _handle_of(share: Share) -> MountHandle:
    mount = share.mount
    return MountHandle(
        host=mount.host,
        guest=mount.guest,
        readonly=mount.readonly,
        type=mount.type,
        is_served=share.is_served,
    )

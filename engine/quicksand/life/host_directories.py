"""Mounting directories of the host in the guest of a sandbox."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.errors import ConfigError
from quicksand.life.guest import InGuest
from quicksand.life.sandbox_life import Life
from quicksand.records.mount import CIFS, Mount

if TYPE_CHECKING:
    from quicksand.life.sandbox_mounts import MountHandle, Mounts


class HostDirectories:
    """The directories of the host in one sandbox. `mount`, `unmount` and `active_mounts` are
    `Sandbox`'s, too."""

    def __init__(self, life: Life, guest: InGuest) -> None:
        self._life = life
        self._guest = guest

    @cached_property
    def mounts(self) -> Mounts:
        # Most commands only run a program in a guest, and are over before these modules are needed.
        from quicksand.life.sandbox_mounts import Mounts  # noqa: PLC0415

        return Mounts(self._life, self._guest)

    async def mount(
        self,
        host: str | Path,
        guest: str,
        readonly: bool = False,
        *,
        type: str = CIFS,  # noqa: A002 - as the field of Mount
        fsync: bool = True,
        protect: bool = False,
    ) -> MountHandle:
        """Mount a directory of the host in the running guest, until it is unmounted or the VM
        stops. The directory stays mounted when the sandbox is reverted; files that the guest has
        open there are then lost. A clone has no mounts unless `clone` is told.

        ``guest`` is an absolute path; the directory is made if it is missing. A ``readonly`` mount
        cannot be changed, not even by root in the guest. Without ``fsync`` (`Mount.fsync`) many
        small files are written faster, but are less safe from a power failure of the host. With
        ``protect`` (`Mount.protect`) the guest cannot change git's hooks and the like. Raises
        ConfigError, MountError if the directory cannot be served or mounted, StateError if the
        sandbox is not running or has no network card.
        """
        mount = Mount(str(host), guest, readonly, type, fsync=fsync, protect=protect)
        return await self.mounts.add(mount)

    async def unmount(self, handle: MountHandle | str, *, force: bool = False) -> None:
        """Take a mount away, given its handle or the guest's path. With ``force`` it is removed
        even if programs use it; they get errors. A mount that could not be made is no longer listed
        as missing. Raises ConfigError if nothing is mounted there, MountError if it is in use,
        StateError."""
        guest = getattr(handle, "guest", handle)
        if not isinstance(guest, str):
            raise ConfigError(f"{handle!r:.80} is neither a mount nor a path of the guest")
        await self.mounts.remove(guest, force=force)

    def active_mounts(self) -> list[MountHandle]:
        """The directories that are mounted at this moment, without those that the guest is still
        being asked to mount. Blocks for a few small files."""
        return [*self.mounts.list()]
